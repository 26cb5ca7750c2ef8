package workspace

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
)

// errIndex is returned for a file that is no git index, or is a split index or of an unknown
// version, which jail does not edit.
var errIndex = errors.New("not a git index that can be edited")

const (
	// indexStat is the length of the ten 4-byte numbers before the object id.
	indexStat     = 40
	indexExtended = 1 << 14
	indexStage    = 3 << 12
	// skip-worktree, one of the extended flags.
	indexSkip = 1 << 14
)

// editIndex sets the skip-worktree bit of each entry of a git index, except entries in a merge, to
// the result of bit, and returns the new content and whether it differs. Like git, it writes
// version 3 instead of 2 only if an entry needs it. The format is gitformat-index(5).
func editIndex(content []byte, bit func(name string, set bool) bool) (
	edited []byte, changed bool, err error,
) {
	for _, sum := range []func() hash.Hash{sha1.New, sha256.New} {
		size := sum().Size()
		if len(content) < 12+size {
			return nil, false, errIndex
		}
		body, trailer := content[:len(content)-size], content[len(content)-size:]
		// index.skipHash.
		unsigned := len(bytes.Trim(trailer, "\x00")) == 0
		if !unsigned && !bytes.Equal(hashOf(sum, body), trailer) {
			continue
		}
		e := indexEditor{in: body, oid: size, bit: bit}
		if err = e.edit(); err != nil {
			continue
		}
		if !e.changed {
			return content, false, nil
		}
		if unsigned {
			return append(e.out, trailer...), true, nil
		}
		return append(e.out, hashOf(sum, e.out)...), true, nil
	}
	return nil, false, errIndex
}

func hashOf(sum func() hash.Hash, content []byte) []byte {
	h := sum()
	h.Write(content)
	return h.Sum(nil)
}

type indexEditor struct {
	in, out []byte
	// oid is the size of an object id in bytes.
	oid     int
	version uint32
	bit     func(name string, set bool) bool
	// extended: an entry of out has extended flags.
	extended bool
	changed  bool
	// last is the name of the previous entry. Version 4 leaves out the prefix that they share.
	last []byte
}

func (e *indexEditor) edit() error {
	if string(e.in[:4]) != "DIRC" {
		return errIndex
	}
	e.version = binary.BigEndian.Uint32(e.in[4:])
	count := binary.BigEndian.Uint32(e.in[8:])
	if e.version < 2 || e.version > 4 {
		return fmt.Errorf("%w: version %d", errIndex, e.version)
	}
	e.out = append(make([]byte, 0, len(e.in)+len(e.in)/32), e.in[:12]...)
	rest := e.in[12:]
	for range count {
		n, err := e.entry(rest)
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	if e.version < 4 {
		e.version = 2
		if e.extended {
			e.version = 3
		}
		binary.BigEndian.PutUint32(e.out[4:], e.version)
	}
	return e.extensions(rest)
}

// entry copies one entry, edited, and returns its length.
func (e *indexEditor) entry(in []byte) (length int, err error) {
	fixed := indexStat + e.oid + 2
	if len(in) < fixed+2 {
		return 0, errIndex
	}
	flags, more := binary.BigEndian.Uint16(in[fixed-2:]), uint16(0)
	at := fixed
	if flags&indexExtended != 0 {
		if e.version < 3 {
			return 0, errIndex
		}
		more = binary.BigEndian.Uint16(in[at:])
		at += 2
	}
	name, suffix := at, at
	if e.version == 4 {
		if suffix, err = e.strip(in, at); err != nil {
			return 0, err
		}
	}
	end := bytes.IndexByte(in[suffix:], 0)
	if end < 0 {
		return 0, errIndex
	}
	end += suffix
	e.last = append(e.last, in[suffix:end]...)
	full := e.last
	length = end + 1
	if e.version < 4 {
		length = (end + 8) &^ 7
		e.last = nil
	}
	if length > len(in) {
		return 0, errIndex
	}
	was := more
	if flags&indexStage == 0 {
		more &^= indexSkip
		if e.bit(string(full), was&indexSkip != 0) {
			more |= indexSkip
		}
	}
	e.changed = e.changed || more != was
	flags &^= indexExtended
	if more != 0 {
		flags |= indexExtended
		e.extended = true
	}
	begin := len(e.out)
	e.out = binary.BigEndian.AppendUint16(append(e.out, in[:fixed-2]...), flags)
	if more != 0 {
		e.out = binary.BigEndian.AppendUint16(e.out, more)
	}
	e.out = append(append(e.out, in[name:end]...), 0)
	for e.version < 4 && (len(e.out)-begin)%8 != 0 {
		e.out = append(e.out, 0)
	}
	return length, nil
}

// strip reads at offset at how many bytes a version 4 entry cuts off the end of e.last, cuts them,
// and returns the offset of the rest of the new name.
func (e *indexEditor) strip(in []byte, at int) (int, error) {
	cut := 0
	for i := at; i < len(in) && i < at+4; i++ {
		if i > at {
			cut++
		}
		cut = cut<<7 | int(in[i]&0x7f)
		if in[i]&0x80 == 0 {
			if cut > len(e.last) {
				return 0, errIndex
			}
			e.last = e.last[:len(e.last)-cut]
			return i + 1, nil
		}
	}
	return 0, errIndex
}

// extensions copies the extensions, except EOIE and IEOT, which have offsets of entries and are
// optional. For a split index, whose entries are in another file, it returns errIndex.
func (e *indexEditor) extensions(in []byte) error {
	for len(in) > 0 {
		if len(in) < 8 || uint64(len(in)-8) < uint64(binary.BigEndian.Uint32(in[4:])) {
			return errIndex
		}
		length := 8 + int(binary.BigEndian.Uint32(in[4:]))
		switch string(in[:4]) {
		case "link":
			return fmt.Errorf("%w: it is split", errIndex)
		case "EOIE", "IEOT":
		default:
			e.out = append(e.out, in[:length]...)
		}
		in = in[length:]
	}
	return nil
}
