// Package redact knows what secrets look like: tokens, keys, passwords in URLs and in headers. What a
// repository, a program or a forge says may hold some, and so may a setting whose author took a
// secret for the name of a credential.
package redact

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/jail-sandbox/jail/policy/secret"
)

// secrets are the forms that secrets have.
var secrets = sync.OnceValue(func() *regexp.Regexp {
	all := []string{
		// The user of a URL.
		`(://)[^/@\s"']+@`,
		// What follows the name of a scheme or a field in a header.
		`(?i:\b(bearer|basic|token|x-worker-secret:|x-api-key:)\s+)[A-Za-z0-9._~+/=-]{8,}`,
		// A private key, to its end or to that of the text.
		`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)` +
			`(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`,
		// A JSON web token.
		`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?`,
		// A key of one of the many hosts that begin theirs so.
		`\bsk-[A-Za-z0-9_-]{8,}`,
	}
	for _, f := range secret.Forms {
		if f.Part > 0 {
			all = append(all, fmt.Sprintf(`\b%s[A-Za-z0-9%s]{%d,}`, f.Prefix, f.More, f.Part))
		}
	}
	return regexp.MustCompile(strings.Join(all, "|"))
})

// Redacted stands where a secret was.
const Redacted = "[REDACTED]"

// Text returns a text in which Redacted stands for all that looks like a secret.
func Text(text string) string {
	return secrets().ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "://") {
			return "://" + Redacted + "@"
		}
		return Redacted
	})
}

// IsSecret reports whether a word begins as a secret does.
func IsSecret(word string) bool {
	at := secrets().FindStringIndex(word)
	return at != nil && at[0] == 0
}
