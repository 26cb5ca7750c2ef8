// Package redact removes secrets from texts: tokens, keys, and passwords in URLs and headers. The
// output of a repository, program or forge may hold secrets, and so may a setting whose author
// mistook a secret for a credential's name.
package redact

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/jail-sandbox/jail/policy/secret"
)

// secrets matches the known formats of secrets.
var secrets = sync.OnceValue(func() *regexp.Regexp {
	all := []string{
		// The user and password of a URL.
		`(://)[^/@\s"']+@`,
		// The value after the name of a scheme or header field.
		`(?i:\b(bearer|basic|token|x-worker-secret:|x-api-key:)\s+)[A-Za-z0-9._~+/=-]{8,}`,
		// A private key, up to its end or the end of the text.
		`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)` +
			`(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`,
		// A JSON web token.
		`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?`,
		// An API key with the prefix that many services use.
		`\bsk-[A-Za-z0-9_-]{8,}`,
	}
	for _, f := range secret.Forms {
		if f.Part > 0 {
			all = append(all, fmt.Sprintf(`\b%s[A-Za-z0-9%s]{%d,}`, f.Prefix, f.More, f.Part))
		}
	}
	return regexp.MustCompile(strings.Join(all, "|"))
})

// Redacted replaces a secret.
const Redacted = "[REDACTED]"

// Text returns text with Redacted in place of everything that looks like a secret.
func Text(text string) string {
	return secrets().ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "://") {
			return "://" + Redacted + "@"
		}
		return Redacted
	})
}

// IsSecret reports whether word starts with something that looks like a secret.
func IsSecret(word string) bool {
	at := secrets().FindStringIndex(word)
	return at != nil && at[0] == 0
}
