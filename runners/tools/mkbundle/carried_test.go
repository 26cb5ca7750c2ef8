package main

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"
)

// TestCarry: a module's archive gets other entries at the same place and of the same size, whatever
// segments it lies in, and nothing else in the module's memory changes.
func TestCarry(t *testing.T) {
	archive := zipped(t, map[string]string{"keep.py": strings.Repeat("kept\n", 9), "old.py": strings.Repeat(
		"gone, and as long as what comes", 9)})
	const at = 300
	memory := slices.Concat([]byte("PK\x05\x06 is a word of the program's"), make([]byte, at), archive, []byte(
		"behind"))
	at2 := bytes.Index(memory, archive)
	// As wizer leaves them: cut anywhere, one segment across the archive's beginning.
	segments := []segment{{0, memory[:40]}, {at2 - 5, memory[at2-5 : at2+10]}, {at2 + 10, memory[at2+10 : at2+60]}, {at2 + 60, memory[at2+60:]}}
	module := func(segments []segment, more ...byte) []byte {
		section := encodeSegments(segments)
		out := append([]byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00"), more...)
		out = binary.AppendUvarint(append(out, dataID), uint64(len(section)))
		return append(append(out, section...), "\x00\x02\x01n"...)
	}
	add := map[string][]byte{"new.py": []byte("new\n")}
	code, err := carry(module(segments), add, []string{"old.py"})
	if err != nil {
		t.Fatal(err)
	}
	before, data, after, err := dataSection(code)
	if err != nil || string(before[8:]) != "\x01\x04\x01\x60\x00\x00" || string(after) != "\x00\x02\x01n" {
		t.Fatalf("%q ... %q, %v", before, after, err)
	}
	got := image(data)
	if len(got) != len(memory) || !bytes.Equal(got[:at2], memory[:at2]) || !bytes.HasSuffix(got, []byte(
		"behind")) {
		t.Fatal("what is beside the archive changed")
	}
	r, err := zip.NewReader(bytes.NewReader(got[at2:at2+len(archive)]), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]string{}
	for _, f := range r.File {
		o, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(o)
		read[f.Name] = string(text)
	}
	if len(read) != 2 || read["new.py"] != "new\n" || read["keep.py"] != strings.Repeat("kept\n", 9) {
		t.Errorf("%q", read)
	}

	for name, c := range map[string]struct {
		code    []byte
		add     map[string][]byte
		without []string
		want    string
	}{
		"no room":           {module(segments), add, nil, "too long"},
		"an entry twice":    {module(segments), map[string][]byte{"keep.py": nil}, nil, "already"},
		"nothing to remove": {module(segments), add, []string{"old.py", "none.py"}, "no none.py"},
		"two archives": {module(append(segments, segment{len(memory), archive})), add, []string{"old.py"},
			"more than one"},
		"none":              {module(segments[:1]), add, nil, "no archive"},
		"numbered segments": {module(segments, dataCountID, 1, 4), add, nil, "by their number"},
		"no data":           {[]byte("\x00asm\x01\x00\x00\x00"), add, nil, "no data"},
		"no module":         {[]byte("\x7fELF"), add, nil, "not a WebAssembly module"},
	} {
		if _, err := carry(c.code, c.add, c.without); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestSignedNumbers(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 127, 128, 8191, 8192, 1<<31 - 1} {
		if r := (reader{appendInt(nil, n)}); r.int() != n || len(r.rest) != 0 {
			t.Errorf("%d is read otherwise", n)
		}
	}
	if r := (reader{[]byte{0x7f}}); r.int() != -1 {
		t.Error("-1 is read otherwise")
	}
}

func zipped(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, text := range files {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name}) // stored, so that it has a size to make room with
		if err == nil {
			_, err = f.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
