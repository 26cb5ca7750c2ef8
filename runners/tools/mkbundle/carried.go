package main

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// carryAll puts files into the archive that the module name of a folder carries: see carry.
func carryAll(dir, name string, files, without []string) error {
	add := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		add[filepath.Base(file)] = text
	}
	name = filepath.Join(dir, name)
	code, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if code, err = carry(code, add, without); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(name, code, 0o644)
}

// carry puts files into the one zip archive that a module carries in its memory, as
// wasi-vfs packs a library into an interpreter, and returns the module. The archive
// keeps its size, which the module's own table of files says: entries without make
// room, and what is left over stands before the first entry, where zip allows it.
func carry(code []byte, add map[string][]byte, without []string) ([]byte, error) {
	before, data, after, err := dataSection(code)
	if err != nil {
		return nil, err
	}
	memory := image(data)
	start, end, err := findArchive(memory)
	if err != nil {
		return nil, err
	}
	archive, err := repack(memory[start:end], add, without)
	if err != nil {
		return nil, err
	}
	section := encodeSegments(append(cut(data, start, end), segment{start, archive}))
	out := append(slices.Clip(before), dataID)
	out = binary.AppendUvarint(out, uint64(len(section)))
	return slices.Concat(out, section, after), nil
}

// Ids of sections: https://webassembly.github.io/spec/core/binary/modules.html
const (
	dataID      = 11
	dataCountID = 12
)

// segment is bytes that a module has in its memory when it starts.
type segment struct {
	at   int
	data []byte
}

// dataSection returns the segments of a module, and what stands before and after them.
func dataSection(code []byte) (before []byte, data []segment, after []byte, err error) {
	if len(code) < 8 || string(code[:8]) != "\x00asm\x01\x00\x00\x00" {
		return nil, nil, nil, errModule
	}
	r := reader{code[8:]}
	for len(r.rest) > 0 {
		before = code[:len(code)-len(r.rest)]
		id := r.bytes(1)
		body := r.bytes(r.uint())
		if id == nil || body == nil {
			return nil, nil, nil, errModule
		}
		switch id[0] {
		case dataCountID:
			return nil, nil, nil, errors.New("its code names segments by their number, which this " +
				"would change")
		case dataID:
			data, err = decodeSegments(body)
			return before, data, r.rest, err
		}
	}
	return nil, nil, nil, errors.New("it has no data")
}

func decodeSegments(body []byte) ([]segment, error) {
	const i32Const, end = 0x41, 0x0b
	r := reader{body}
	var all []segment
	for range r.uint() {
		head := r.bytes(2)
		if head == nil || head[0] != 0 || head[1] != i32Const {
			return nil, errors.New("a segment of its data has no fixed place")
		}
		at := r.int()
		stop := r.bytes(1)
		data := r.bytes(r.uint())
		if stop == nil || stop[0] != end || data == nil || at < 0 {
			return nil, errModule
		}
		all = append(all, segment{at, data})
	}
	return all, nil
}

func encodeSegments(all []segment) []byte {
	out := binary.AppendUvarint(nil, uint64(len(all)))
	for _, s := range all {
		out = append(appendInt(append(out, 0, 0x41), s.at), 0x0b)
		out = append(binary.AppendUvarint(out, uint64(len(s.data))), s.data...)
	}
	return out
}

// image is the memory that segments make.
func image(all []segment) []byte {
	size := 0
	for _, s := range all {
		size = max(size, s.at+len(s.data))
	}
	memory := make([]byte, size)
	for _, s := range all {
		copy(memory[s.at:], s.data)
	}
	return memory
}

// cut takes the bytes from start to end out of segments.
func cut(all []segment, start, end int) []segment {
	var out []segment
	for _, s := range all {
		if n := min(len(s.data), start-s.at); n > 0 {
			out = append(out, segment{s.at, s.data[:n]})
		}
		if skip := max(0, end-s.at); skip < len(s.data) {
			out = append(out, segment{s.at + skip, s.data[skip:]})
		}
	}
	return out
}

// findArchive returns where the one zip archive in memory begins and ends. Its last record says how
// long its list of entries is, and how far from its beginning that list is.
func findArchive(memory []byte) (start, end int, err error) {
	const size = 22
	last, first := []byte("PK\x05\x06"), []byte("PK\x03\x04")
	for at := 0; ; at++ {
		next := bytes.Index(memory[at:], last)
		if next < 0 {
			break
		}
		at += next
		if at+size > len(memory) {
			break
		}
		list := binary.LittleEndian.Uint32(memory[at+12:])
		offset := binary.LittleEndian.Uint32(memory[at+16:])
		from := at - int(list) - int(offset)
		if from < 0 || !bytes.HasPrefix(memory[from:], first) {
			// The code that reads archives has this word as well.
			continue
		}
		if end > 0 {
			return 0, 0, errors.New("it carries more than one archive")
		}
		start, end = from, at+size+int(binary.LittleEndian.Uint16(memory[at+20:]))
	}
	if end == 0 || end > len(memory) {
		return 0, 0, errors.New("it carries no archive")
	}
	return start, end, nil
}

// repack returns an archive of the same size with other entries. Those that stay keep their bytes.
func repack(archive []byte, add map[string][]byte, without []string) ([]byte, error) {
	old, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	left := slices.Clone(without)
	for _, f := range old.File {
		if i := slices.Index(left, f.Name); i >= 0 {
			left = slices.Delete(left, i, i+1)
			continue
		}
		if _, ok := add[f.Name]; ok {
			return nil, fmt.Errorf("its archive has %s already", f.Name)
		}
		if err := w.Copy(f); err != nil {
			return nil, err
		}
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("its archive has no %s", strings.Join(left, " "))
	}
	for _, name := range slices.Sorted(maps.Keys(add)) {
		f, err := w.Create(name)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(add[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	room := len(archive) - b.Len()
	if room < 0 {
		return nil, fmt.Errorf("its archive would be %d bytes too long: more has to give way", -room)
	}
	return append(make([]byte, room, len(archive)), b.Bytes()...), nil
}

// int reads a signed number in LEB128.
func (r *reader) int() int {
	n := 0
	for shift := 0; shift < 35; shift += 7 {
		b := r.bytes(1)
		if b == nil {
			return -1
		}
		n |= int(b[0]&0x7f) << shift
		if b[0]&0x80 == 0 {
			if b[0]&0x40 != 0 {
				n -= 1 << (shift + 7)
			}
			return n
		}
	}
	r.rest = nil
	return -1
}

// appendInt writes a number of at least 0 as int reads it.
func appendInt(out []byte, n int) []byte {
	for ; n > 0x3f; n >>= 7 {
		out = append(out, byte(n&0x7f|0x80))
	}
	return append(out, byte(n))
}
