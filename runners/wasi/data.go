package wasi

import (
	"encoding/binary"
	"slices"
)

const (
	// manySegments is how many segments of data a module has whose data is joined.
	manySegments = 64
	// maxRuns bounds how many segments are left of them, so that the time stays linear.
	maxRuns = 64
	// maxZeros bounds how many zeros come between two segments that are joined, in bytes.
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

// fills reports whether one of the runs has written something from begin to end.
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
