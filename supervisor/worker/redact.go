package worker

import (
	"regexp"
	"strings"
)

// secrets are the forms that secrets have. The worker itself has none; what a repository, a program or
// a forge says may hold some.
var secrets = regexp.MustCompile(strings.Join([]string{
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

const redacted = "[REDACTED]"

// redact replaces what looks like a secret.
func redact(text string) string {
	return secrets.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "://") {
			return "://" + redacted + "@"
		}
		return redacted
	})
}
