package api

import (
	"bytes"
	"strings"
	"testing"
)

func TestBounded(t *testing.T) {
	var b bounded
	for _, text := range []string{"ab", strings.Repeat("x", maxPlain-3), "c"} {
		if n, err := b.Write([]byte(text)); n != len(text) || err != nil || b.more {
			t.Errorf("%.3q: %d, %v, more %v", text, n, err, b.more)
		}
	}
	if n, err := b.Write([]byte("more")); n != 4 || err != nil || !b.more ||
		b.kept.Len() != maxPlain || !bytes.HasSuffix(b.kept.Bytes(), []byte("xc")) {
		t.Errorf("%d, %v, more %v, %d kept", n, err, b.more, b.kept.Len())
	}
}
