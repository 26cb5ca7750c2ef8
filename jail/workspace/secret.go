package workspace

import (
	"bytes"
	"strings"
)

// token is the form of a kind of credential: a unique prefix, then a minimal number of certain
// characters.
type token struct {
	what, prefix string
	least        int
	// more are the characters beside letters and digits.
	more string
}

var tokens = []token{
	{"a private key", "-----BEGIN RSA PRIVATE KEY-----", 0, ""},
	{"a private key", "-----BEGIN PRIVATE KEY-----", 0, ""},
	{"a private key", "-----BEGIN EC PRIVATE KEY-----", 0, ""},
	{"a private key", "-----BEGIN OPENSSH PRIVATE KEY-----", 0, ""},
	{"a private key", "-----BEGIN PGP PRIVATE KEY BLOCK-----", 0, ""},
	{"a private key", "AGE-SECRET-KEY-1", 50, ""},
	{"an access key of AWS", "AKIA", 16, ""},
	{"an access key of AWS", "ASIA", 16, ""},
	{"a token of GitHub", "ghp_", 36, ""},
	{"a token of GitHub", "gho_", 36, ""},
	{"a token of GitHub", "ghs_", 36, ""},
	{"a token of GitHub", "github_pat_", 50, "_"},
	{"a token of GitLab", "glpat-", 20, "_-"},
	{"a token of Slack", "xoxb-", 20, "-"},
	{"a token of Slack", "xoxp-", 20, "-"},
	{"a key of Google", "AIza", 35, "_-"},
	{"a key of Stripe", "sk_live_", 20, ""},
	{"a key of Anthropic", "sk-ant-", 30, "_-"},
	{"a key of OpenAI", "sk-proj-", 30, "_-"},
	{"a token of npm", "npm_", 36, ""},
	{"a token of PyPI", "pypi-AgEIcHlwaS5vcmc", 20, "_-"},
}

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
	for _, t := range tokens {
		for rest := b; len(s.found) < maxTokens; {
			i := bytes.Index(rest, []byte(t.prefix))
			if i < 0 {
				break
			}
			rest = rest[i:]
			n := t.length(rest)
			if n > 0 && (i == 0 || !alnum(b[len(b)-len(rest)-1])) {
				text := string(rest[:min(n, longestToken)])
				if !s.found[text] {
					s.found[text] = true

				}
			}
			rest = rest[len(t.prefix):]
		}
	}
}

// length returns the length of the token at the beginning of b, or 0.
func (t token) length(b []byte) int {
	n := len(t.prefix)
	for n < len(b) && n < longestToken && (alnum(b[n]) || bytes.IndexByte([]byte(t.more),
		b[n]) >= 0) {
		n++
	}
	if n-len(t.prefix) < t.least {
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
		for _, t := range tokens {
			if bytes.HasPrefix([]byte(text), []byte(t.prefix)) {
				seen[t.what] = true
			}
		}
	}
	// In a fixed order.
	for _, t := range tokens {
		if seen[t.what] {
			out = append(out, t.what)
			seen[t.what] = false
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
