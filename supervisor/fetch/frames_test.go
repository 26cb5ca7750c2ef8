package fetch

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/control"
)

// TestFrames: several messages that come at once, or one in pieces, are those that were sent;
// whatever else comes is an error.
func TestFrames(t *testing.T) {
	frame := func(size uint32, body string) string {
		return string(binary.BigEndian.AppendUint32(nil, size)) + body
	}
	good := frame(8, `{"id":7}`)
	for name, c := range map[string]struct {
		raw  string
		want int // messages
		err  error
	}{
		"nothing":            {"", 0, io.EOF},
		"three at once":      {good + good + good, 3, io.EOF},
		"half a length":      {good + "\x00\x00", 1, io.ErrUnexpectedEOF},
		"a length alone":     {frame(8, ""), 0, io.ErrUnexpectedEOF},
		"half a message":     {frame(8, `{"id"`), 0, io.ErrUnexpectedEOF},
		"a length too large": {frame(control.MaxMessage+1, "{}"), 0, control.ErrTooLarge},
		"the largest length": {frame(1<<32-1, "{}"), 0, control.ErrTooLarge},
		"no JSON":            {frame(2, "{{"), 0, nil},
		"larger than what is kept": {frame(keptFrame*2,
			`{"id":7,"refuse":"`+strings.Repeat("x", keptFrame*2-20)+`"}`) + good, 2, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs, err := control.Pair("test")
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			go func() {
				defer theirs.Close()
				// In pieces that end anywhere.
				for len(c.raw) > 0 {
					n := min(len(c.raw), 11)
					if c.want > 2 {
						n = len(c.raw)
					}
					if _, err := io.WriteString(theirs, c.raw[:n]); err != nil {
						// It is read no further.
						return
					}
					c.raw = c.raw[n:]
				}
			}()
			f, n := newFrames(ours), 0
			for {
				var a answer
				if err = f.receive(&a); err != nil {
					break
				}
				if n++; a.ID != 7 {
					t.Errorf("%+v", a)
				}
			}
			if n != c.want || c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("%d messages and %v; want %d and %v", n, err, c.want, c.err)
			}
		})
	}
}

// TestFramesTakeNoDescriptor: one that comes along is not open afterwards.
func TestFramesTakeNoDescriptor(t *testing.T) {
	ours, file, err := control.Pair("test")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs := control.New(file)
	defer theirs.Close()
	open := func() int {
		all, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before := open()
	if err := theirs.Send(answer{ID: 7}, w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var a answer
	if err := newFrames(ours).receive(&a); err != nil || a.ID != 7 {
		t.Fatalf("%+v, %v", a, err)
	}
	if n := open(); n != before-1 {
		t.Errorf("%d descriptors, %d before", n, before-1)
	}
	// Nobody can write to it any more.
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the pipe: %v", err)
	}
}
