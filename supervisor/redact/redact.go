// Package redact knows what secrets look like: tokens, keys, passwords in URLs and in headers. What a
// repository, a program or a forge says may hold some, and so may a setting whose author took a
// secret for the name of a credential.
package redact

import (
	"regexp"
	"strings"
	"sync"
)

// secrets are the forms that secrets have.
var secrets = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(strings.Join([]string{
		// The user of a URL.
		`(://)[^/@\s"']+@`,
		// What follows the name of a scheme or a field in a header.
		`(?i:\b(bearer|basic|token|x-worker-secret:|x-api-key:)\s+)[A-Za-z0-9._~+/=-]{8,}`,
		// A private key, to its end or to that of the text.
		`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)` +
			`(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`,
		`\bAGE-SECRET-KEY-1[A-Z0-9]{20,}`,
		// A JSON web token.
		`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?`,
		// AWS, GitHub, GitLab, Slack, Google, Stripe, Anthropic and OpenAI, npm, PyPI.
		`\b(?:AKIA|ASIA)[A-Z0-9]{16,}`,
		`\b(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{8,}`,
		`\bglpat-[A-Za-z0-9_-]{8,}`,
		`\b(?:xox[a-z]|xapp)-[A-Za-z0-9-]{8,}`,
		`\bAIza[A-Za-z0-9_-]{30,}`,
		`\b[sr]k_(?:live|test)_[A-Za-z0-9]{8,}`,
		`\bsk-[A-Za-z0-9_-]{8,}`,
		`\bnpm_[A-Za-z0-9]{20,}`,
		`\bpypi-[A-Za-z0-9_-]{20,}`,
	}, "|"))
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
