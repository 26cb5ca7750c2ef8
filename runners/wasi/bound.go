package wasi

import (
	"bytes"
	"encoding/binary"
)

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
