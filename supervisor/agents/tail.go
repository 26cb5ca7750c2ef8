package agents

import (
	"bytes"
	"strings"
	"sync"
)

// A Tail keeps the last bytes that are written to it. Its methods may be called from several
// goroutines.
type Tail struct {
	// Most is how many bytes are kept.
	Most int

	mu   sync.Mutex
	kept []byte
}

// Write keeps the end of p.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.Most; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// String returns what is kept, as text.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(bytes.ToValidUTF8(t.kept, []byte("?"))))
}
