package workspace

import (
	"bytes"
	"strings"

	"github.com/jail-sandbox/jail/policy/secret"
)

// longestToken bounds the bytes that a match needs.
const longestToken = 160

// scanner finds tokens in content that comes in pieces.
type scanner struct {
	tail []byte
	// found tokens, by prefix and rest.
	found map[string]bool
}

func newScanner() *scanner { return &scanner{found: map[string]bool{}} }

// maxTokens bounds the remembered tokens of one file.
const maxTokens = 100

// Write never fails.
func (s *scanner) Write(p []byte) (int, error) {
	window := p
	if len(s.tail) > 0 {
		window = append(s.tail, p[:min(len(p), longestToken)]...)
		s.scan(window)
		window = p
	}
	s.scan(window)
	s.tail = append([]byte(nil), p[max(0, len(p)-longestToken):]...)
	return len(p), nil
}

func (s *scanner) scan(b []byte) {
	for _, t := range secret.Forms {
		if t.Whole == 0 && t.Part > 0 {
			continue
		}
		for rest := b; len(s.found) < maxTokens; {
			i := bytes.Index(rest, []byte(t.Prefix))
			if i < 0 {
				break
			}
			rest = rest[i:]
			n := tokenLength(t, rest)
			if n > 0 && (i == 0 || !alnum(b[len(b)-len(rest)-1])) {
				s.found[string(rest[:min(n, longestToken)])] = true
			}
			rest = rest[len(t.Prefix):]
		}
	}
}

// tokenLength returns the length of the whole secret at the beginning of b, or 0.
func tokenLength(t secret.Form, b []byte) int {
	n := len(t.Prefix)
	for n < len(b) && n < longestToken && (alnum(b[n]) || strings.IndexByte(t.More, b[n]) >= 0) {
		n++
	}
	if n-len(t.Prefix) < t.Whole {
		return 0
	}
	return n
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// fresh returns the kinds of tokens in s that old does not have.
func (s *scanner) fresh(old *scanner) []string {
	var out []string
	seen := map[string]bool{}
	for text := range s.found {
		if old.has(text) {
			continue
		}
		for _, t := range secret.Forms {
			if bytes.HasPrefix([]byte(text), []byte(t.Prefix)) {
				seen[t.What] = true
			}
		}
	}
	// In a fixed order.
	for _, t := range secret.Forms {
		if seen[t.What] {
			out = append(out, t.What)
			seen[t.What] = false
		}
	}
	return out
}

// has reports whether s has the token, which may have been cut off between pieces.
func (s *scanner) has(text string) bool {
	if s == nil {
		return false
	}
	for known := range s.found {
		if strings.HasPrefix(known, text) || strings.HasPrefix(text, known) {
			return true
		}
	}
	return false
}
