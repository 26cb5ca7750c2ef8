package wasi

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
)

// digestSection is the name of the custom section that holds the digest of the whole module.
const digestSection = "jail.module"

// nothing is a function body without locals that does nothing but trap, with its length.
const nothing = "\x03\x00\x00\x0b"

// Hollow returns the module without the parts that only a compiler reads: every function's code is
// a trap, and custom sections are gone. The engine accepts it in place of the module if it has the
// machine code, and does not read and validate the code again, which is most of the time of a short
// run of a large module. The digest of the whole module is in it as a custom section, so that the
// engine finds machine code only for the module that it was made of. Its tables have the limits of
// BoundTables; that no other copy of the module is made for them saves a tenth of the time of a
// load. Its data is that of the module, in fewer segments (appendData). The module has passed
// Check.
func Hollow(module []byte) []byte { return AppendHollow(nil, module) }

// HollowRoom is how much longer a hollow module can be than the module, in most cases.
const HollowRoom = 64

// AppendHollow appends the hollow module to out, which is empty, or returns the module itself.
func AppendHollow(out, module []byte) []byte {
	var sum [sha256.Size]byte
	var summed sync.WaitGroup
	// It takes as long as the rest.
	summed.Go(func() { sum = sha256.Sum256(module) })
	out = append(slices.Grow(out, len(module)+HollowRoom), module[:8]...)
	out = append(out, 0, byte(1+len(digestSection)+len(sum)), byte(len(digestSection)))
	out = append(out, digestSection...)
	at := len(out)
	out, ok := appendSections(append(out, make([]byte, len(sum))...), module)
	summed.Wait()
	if !ok {
		return module
	}
	copy(out[at:], sum[:])
	return out
}

// appendSections appends the sections of the hollow module to out. ok is false if the module is cut
// short.
func appendSections(out, module []byte) (_ []byte, ok bool) {
	grows, numbered := growsTables(module), false
	r := reader{b: module[8:]}
	for len(r.b) > 0 {
		start := r.b
		id := r.u8()
		body := r.take(r.u32())
		switch {
		case r.short:
			return nil, false
		case id == 0:
		case id == 4 && grows:
			bounded, ok := boundedTables(body)
			if !ok {
				bounded = body
			}
			out = binary.AppendUvarint(append(out, id), uint64(len(bounded)))
			out = append(out, bounded...)
		case id == 10:
			n := (&reader{b: body}).u32()
			count := binary.AppendUvarint(nil, uint64(n))
			out = binary.AppendUvarint(append(out, id), uint64(len(count)+len(nothing)*int(n)))
			out = append(out, count...)
			for range n {
				out = append(out, nothing...)
			}
		case id == 11:
			out = appendData(out, body, numbered)
		default:
			numbered = numbered || id == 12
			out = append(out, start[:len(start)-len(r.b)]...)
		}
	}
	return out, true
}

// BoundTables returns the module with a limit on how far its tables can grow: together
// MaxTableElements. The engine keeps tables outside linear memory and asks nobody, so the limit has
// to stand in the module; to the module a growth beyond it fails, as one for want of memory would.
// A module that cannot grow a table is returned as it is. The module has passed Check.
func BoundTables(module []byte) []byte {
	if !growsTables(module) {
		return module
	}
	r := reader{b: module[8:]}
	for len(r.b) > 0 {
		start := len(module) - len(r.b)
		id := r.u8()
		body := r.take(r.u32())
		if r.short {
			return module
		}
		if id != 4 {
			continue
		}
		bounded, ok := boundedTables(body)
		if !ok {
			return module
		}
		out := make([]byte, 0, len(module)+len(bounded))
		out = append(out, module[:start]...)
		out = append(out, 4)
		out = binary.AppendUvarint(out, uint64(len(bounded)))
		out = append(out, bounded...)
		return append(out, r.b...)
	}
	return module
}

// growsTables reports whether the bytes of a table.grow instruction occur. Its
// second part is a number that may be written longer than it has to be.
func growsTables(module []byte) bool {
	return bytes.Contains(module, []byte{0xfc, 0x0f}) || bytes.Contains(module, []byte{0xfc, 0x8f})
}

func boundedTables(section []byte) ([]byte, bool) {
	r := reader{b: section}
	n := r.u32()
	if n == 0 || n > maxTables {
		return nil, false
	}
	out := binary.AppendUvarint(nil, uint64(n))
	for range n {
		kind := r.u8()
		l := r.limits()
		most := max(l.min, MaxTableElements/uint64(n))
		if l.hasMax {
			most = min(most, l.max)
		}
		out = append(out, kind, l.flags|1)
		out = binary.AppendUvarint(out, l.min)
		out = binary.AppendUvarint(out, most)
	}
	return out, !r.short
}

const (
	// manySegments is the number of data segments from which on appendData joins them.
	manySegments = 64
	// maxRuns is the maximum number of segments after the joining, so that the time stays linear.
	// If there would be more, none are joined.
	maxRuns = 64
	// maxZeros is the maximum gap in bytes between two segments that are joined.
	maxZeros = 64
)

// A run is a part of linear memory that some segments of data fill, one behind the other, with
// zeros between them.
type run struct {
	at, end  uint64
	segments int
}

// appendData appends a section of data in which segments that are close together are one. Go's
// linker leaves zeros out, so that a module of Go has tens of thousands of segments; the engine's
// time for each is more than that for its bytes. Linear memory has the same content afterwards. A
// module that uses segments by their numbers has none of them joined.
func appendData(out, section []byte, numbered bool) []byte {
	runs := runsOf(section)
	if numbered || len(runs) == 0 {
		return append(binary.AppendUvarint(append(out, 11), uint64(len(section))), section...)
	}
	// The length comes first, and is known last.
	out = append(out, 11, 0, 0, 0, 0, 0)
	start := len(out)
	out = binary.AppendUvarint(out, uint64(len(runs)))
	rest := reader{b: section}
	rest.u32()
	for _, r := range runs {
		out = appendS32(append(out, 0, 0x41), int32(uint32(r.at)))
		out = binary.AppendUvarint(append(out, 0x0b), r.end-r.at)
		begin := len(out)
		for range r.segments {
			at, data, _ := rest.segment()
			out = append(out, zeros[:at-r.at-uint64(len(out)-begin)]...)
			out = append(out, data...)
		}
	}
	for i, size := 0, len(out)-start; i < 5; i++ {
		out[start-5+i] = byte(size>>(7*i))&0x7f | 0x80
	}
	out[start-1] &= 0x7f
	return out
}

var zeros [maxZeros]byte

// runsOf returns what the segments of a section fill, in their order. It returns nothing if there
// are few of them, if they lie too far apart, or if the address of one is no constant.
func runsOf(section []byte) (runs []run) {
	r := reader{b: section}
	count := r.u32()
	if count < manySegments {
		return nil
	}
	for range count {
		at, data, ok := r.segment()
		if !ok {
			return nil
		}
		end := at + uint64(len(data))
		if n := len(runs); n > 0 && runs[n-1].reaches(at) && !fills(runs[:n-1], runs[n-1].end, at) {
			runs[n-1].end, runs[n-1].segments = end, runs[n-1].segments+1
		} else if runs = append(runs, run{at, end, 1}); n == maxRuns {
			return nil
		}
	}
	if len(r.b) > 0 {
		return nil
	}
	return runs
}

// reaches reports whether a segment at that address can be joined to the run.
func (r run) reaches(at uint64) bool { return at >= r.end && at-r.end <= maxZeros }

// fills reports whether one of the runs overlaps the range from begin to end.
func fills(runs []run, begin, end uint64) bool {
	return slices.ContainsFunc(runs, func(r run) bool { return r.at < end && begin < r.end })
}

// segment reads an active segment at a constant address of the first memory. ok is false for any
// other.
func (r *reader) segment() (at uint64, data []byte, ok bool) {
	if r.u32() != 0 || r.u8() != 0x41 {
		return 0, nil, false
	}
	at = uint64(uint32(r.s32()))
	if r.u8() != 0x0b {
		return 0, nil, false
	}
	data = r.take(r.u32())
	return at, data, !r.short
}

// s32 reads a signed LEB128 of 32 bits.
func (r *reader) s32() int32 {
	before := len(r.b)
	v := r.leb(5)
	if bits := 7 * (before - len(r.b)); bits > 0 && v>>(bits-1)&1 != 0 {
		v |= ^uint64(0) << bits
	}
	return int32(uint32(v))
}

// appendS32 appends a signed LEB128.
func appendS32(out []byte, v int32) []byte {
	for {
		b := byte(v) & 0x7f
		v >>= 7
		if v == 0 && b&0x40 == 0 || v == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}
