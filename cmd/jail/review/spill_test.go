package review

import (
	"bytes"
	"strings"
	"testing"
)

func TestSpill(t *testing.T) {
	for _, n := range []int{0, 1, 10, 100000} {
		var s spill
		var want, got bytes.Buffer
		for i := range n {
			line := strings.Repeat(string(rune('a'+i%26)), 30) + "\n"
			want.WriteString(line)
			if _, err := s.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
			if len(s.buf) > maxSpill+len(line) {
				t.Fatal("it holds more in memory than it should")
			}
		}
		if (s.file != nil) != (n == 100000) {
			t.Errorf("%d lines: a file is used: %v", n, s.file != nil)
		}
		if err := s.copyTo(&got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%d lines came back as %d bytes of %d", n, got.Len(), want.Len())
		}
	}
}
