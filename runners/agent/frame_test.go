package agent

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// Frames come whole however their bytes are cut, and what is no frame is refused.
func TestSplitter(t *testing.T) {
	var text bytes.Buffer
	w := NewWriter(&text)
	for _, message := range []string{"one", "", strings.Repeat("long", 1000)} {
		if err := w.Write(message); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int{1, 3, 7, 64, text.Len()} {
		var got []string
		s := NewSplitter(func(body []byte) error {
			got = append(got, string(body))
			return nil
		})
		for rest := text.Bytes(); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if _, err := s.Write(rest[:min(size, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		if len(got) != 3 || got[0] != `"one"` || got[1] != `""` || len(got[2]) != 4002 {
			t.Errorf("%d bytes at a time: %d frames", size, len(got))
		}
		if err := s.End(); err != nil {
			t.Error(err)
		}
	}
	s := NewSplitter(func([]byte) error { return nil })
	if _, err := s.Write([]byte{0, 0, 0, 9, 'x'}); err != nil {
		t.Error(err)
	}
	if err := s.End(); !errors.Is(err, errFrame) {
		t.Errorf("in the middle of a frame: %v", err)
	}
	if _, err := NewSplitter(nil).Write([]byte{0xff, 0, 0, 0}); !errors.Is(err, errFrame) {
		t.Errorf("a frame that is too large: %v", err)
	}
}
