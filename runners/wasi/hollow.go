package wasi

import (
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

// appendSections appends those of a hollow module. ok is false if the module is cut short.
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
