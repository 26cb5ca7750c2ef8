package native_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners/native"
)

// elf makes a header, and one program header that names a loader.
func elf(loader string, change func(b []byte)) []byte {
	b := make([]byte, 64+56, 64+56+len(loader)+1)
	copy(b, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(b[16:], 3)  // ET_DYN
	le.PutUint16(b[18:], 62) // EM_X86_64
	le.PutUint64(b[32:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], 1)
	le.PutUint32(b[64:], 3) // PT_INTERP
	le.PutUint64(b[64+8:], 64+56)
	le.PutUint64(b[64+32:], uint64(len(loader)+1))
	b = append(append(b, loader...), 0)
	if change != nil {
		change(b)
	}
	return b
}

func TestRead(t *testing.T) {
	const loader = "/lib64/ld-linux-x86-64.so.2"
	for name, c := range map[string]struct {
		file   []byte
		want   native.Program
		refuse string
	}{
		"dynamic": {elf(loader, nil), native.Program{Interpreter: loader}, ""},
		"static":  {elf(loader, func(b []byte) { b[64] = 1 }), native.Program{}, ""},
		"script":  {[]byte("#!/bin/sh\n"), native.Program{Interpreter: "/bin/sh", Script: true}, ""},
		"script with an argument": {[]byte("#! \t/usr/bin/env -S python3 -u\nx"),
			native.Program{Interpreter: "/usr/bin/env", Script: true}, ""},
		"script of one line": {[]byte("#!/bin/sh"),
			native.Program{Interpreter: "/bin/sh", Script: true}, ""},
		"script with a long line": {[]byte("#!/bin/sh " + strings.Repeat("x", 1000)),
			native.Program{Interpreter: "/bin/sh", Script: true}, ""},
		"empty":                {nil, native.Program{}, "neither an ELF program"},
		"text":                 {[]byte("echo\n"), native.Program{}, "neither an ELF program"},
		"no interpreter":       {[]byte("#! \n/bin/sh"), native.Program{}, "names no interpreter"},
		"relative interpreter": {[]byte("#!sh\n"), native.Program{}, "not an absolute path"},
		"of Windows":           {[]byte("#!/bin/sh\r\n"), native.Program{}, "carriage return"},
		"interpreter that is cut": {[]byte("#!/" + strings.Repeat("x", 1000)), native.Program{},
			"longer than 256 bytes"},
		"cut header":          {elf(loader, nil)[:40], native.Program{}, "cut off"},
		"cut program headers": {elf(loader, nil)[:80], native.Program{}, "cut off"},
		"cut loader":          {elf(loader, nil)[:130], native.Program{}, "cut off"},
		"32 bits": {elf(loader, func(b []byte) { b[4] = 1 }), native.Program{},
			"another processor"},
		"big endian": {elf(loader, func(b []byte) { b[5] = 2 }), native.Program{},
			"another processor"},
		"another machine": {elf(loader, func(b []byte) { b[18] = 183 }), native.Program{},
			"another processor"},
		"object file": {elf(loader, func(b []byte) { b[16] = 1 }), native.Program{},
			"not a program"},
		"no program headers": {elf(loader, func(b []byte) { b[56] = 0 }), native.Program{},
			"make no sense"},
		"many program headers": {elf(loader, func(b []byte) { b[57] = 0xff }), native.Program{},
			"make no sense"},
		"headers far away": {elf(loader, func(b []byte) { b[39] = 0xff }), native.Program{},
			"make no sense"},
		"relative loader": {elf("ld.so", nil), native.Program{}, "make no sense|makes no sense"},
		"loader without an end": {elf(loader, func(b []byte) { b[len(b)-1] = 'x' }),
			native.Program{}, "makes no sense"},
		"huge loader": {elf(loader, func(b []byte) { b[64+32+3] = 1 }),
			native.Program{}, "makes no sense"},
	} {
		got, err := native.Read(bytes.NewReader(c.file))
		switch {
		case c.refuse == "" && (err != nil || got != c.want):
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		case c.refuse != "":
			said := err != nil && errors.Is(err, native.ErrFormat)
			found := false
			for _, text := range strings.Split(c.refuse, "|") {
				found = found || said && strings.Contains(err.Error(), text)
			}
			if !found {
				t.Errorf("%s: %+v, %v, want an ErrFormat with %q", name, got, err, c.refuse)
			}
		}
	}
}

// TestReadHost: what runs here is read as what it is.
func TestReadHost(t *testing.T) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if p, err := native.Read(f); err != nil || p.Script {
		t.Errorf("%+v, %v", p, err)
	}
}

// FuzzRead: never a panic, and an interpreter is an absolute path without a zero byte.
func FuzzRead(f *testing.F) {
	f.Add(elf("/lib/ld.so", nil))
	f.Add([]byte("#!/bin/sh -e\n"))
	f.Add([]byte("#!"))
	f.Add([]byte("#!/bin\x00sh\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		p, err := native.Read(bytes.NewReader(file))
		if err != nil && !errors.Is(err, native.ErrFormat) {
			t.Errorf("%v", err)
		}
		if err == nil && p.Interpreter != "" && (p.Interpreter[0] != '/' ||
			strings.ContainsRune(p.Interpreter, 0)) {
			t.Errorf("interpreter %q", p.Interpreter)
		}
		if err == nil && p.Script && p.Interpreter == "" {
			t.Error("a script without an interpreter")
		}
	})
}
