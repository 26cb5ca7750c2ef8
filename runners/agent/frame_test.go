package agent

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// Frames come whole however their bytes are cut, and what is no frame is refused.
func TestReader(t *testing.T) {
	var text bytes.Buffer
	w := NewWriter(&text)
	for _, message := range []string{"one", "", strings.Repeat("long", 1000)} {
		if err := w.Write(message); err != nil {
			t.Fatal(err)
		}
	}
	for name, cut := range map[string]func(io.Reader) io.Reader{"a byte at a time": iotest.OneByteReader,
		"halves": iotest.HalfReader, "as it is": func(r io.Reader) io.Reader { return r }} {
		var got []string
		r := NewReader(cut(bytes.NewReader(text.Bytes())))
		for {
			var message string
			err := r.Read(&message)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got = append(got, message)
		}
		if len(got) != 3 || got[0] != "one" || got[1] != "" || len(got[2]) != 4000 {
			t.Errorf("%s: %d frames", name, len(got))
		}
	}
	for text, want := range map[string]error{"\x00\x00": io.ErrUnexpectedEOF,
		"\x00\x00\x00\x09x": io.ErrUnexpectedEOF, "\x00\x00\x00\x09": io.ErrUnexpectedEOF,
		"\xff\x00\x00\x00": errFrame, "\x00\x00\x00\x01x": errFrame} {
		var message any
		err := NewReader(strings.NewReader(text)).Read(&message)
		if !errors.Is(err, want) || !errors.Is(err, errFrame) {
			t.Errorf("%q: %v, want %v: %v", text, err, errFrame, want)
		}
	}
}
