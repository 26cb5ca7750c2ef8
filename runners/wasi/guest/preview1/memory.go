package preview1

import "encoding/binary"

// memory is the guest's linear memory for the time of one call. Every access is
// by a pointer and a length that the guest chose, so every one is checked.
type memory []byte

// at returns n bytes at ptr, or false where they are not all in the memory.
func (m memory) at(ptr, n uint32) ([]byte, bool) {
	end := uint64(ptr) + uint64(n)
	if end > uint64(len(m)) {
		return nil, false
	}
	return m[ptr:end:end], true
}

func (m memory) putU32(ptr, v uint32) Errno {
	b, ok := m.at(ptr, 4)
	if !ok {
		return errFault
	}
	binary.LittleEndian.PutUint32(b, v)
	return success
}

func (m memory) putU64(ptr uint32, v uint64) Errno {
	b, ok := m.at(ptr, 8)
	if !ok {
		return errFault
	}
	binary.LittleEndian.PutUint64(b, v)
	return success
}

// maxPathBytes is more than any path may have; longer ones are not copied.
const maxPathBytes = 4096

// path reads a path. It is copied, so that it cannot change while it is used.
func (m memory) path(ptr, n uint32) (string, Errno) {
	b, ok := m.at(ptr, n)
	switch {
	case !ok:
		return "", errFault
	case n > maxPathBytes:
		return "", errNameLong
	}
	return string(b), success
}

// maxVectors bounds the buffers of one call, as the kernel does; a longer list
// is served in part, which every reader and writer has to expect.
const maxVectors = 1024

// vectors reads a list of n buffers. It uses room for the slices.
func (m memory) vectors(ptr, n uint32, room [][]byte) ([][]byte, Errno) {
	n = min(n, maxVectors)
	list, ok := m.at(ptr, n*8)
	if !ok {
		return nil, errFault
	}
	for ; len(list) > 0; list = list[8:] {
		b, ok := m.at(binary.LittleEndian.Uint32(list), binary.LittleEndian.Uint32(list[4:]))
		if !ok {
			return nil, errFault
		}
		room = append(room, b)
	}
	return room, success
}
