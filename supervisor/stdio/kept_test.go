package stdio

import (
	"bytes"
	"strings"
	"testing"
)

func TestKept(t *testing.T) {
	const most = 100
	b := Kept{Most: most}
	for _, text := range []string{"ab", strings.Repeat("x", most-3), "c"} {
		if n, err := b.Write([]byte(text)); n != len(text) || err != nil || b.Cut {
			t.Errorf("%.3q: %d, %v, cut %v", text, n, err, b.Cut)
		}
	}
	if n, err := b.Write([]byte("more")); n != 4 || err != nil || !b.Cut || b.Len() != most ||
		!bytes.HasSuffix(b.Bytes(), []byte("xc")) {
		t.Errorf("%d, %v, cut %v, %d kept", n, err, b.Cut, b.Len())
	}
}
