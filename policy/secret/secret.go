// Package secret lists the forms of tokens and keys. Reviews of changes and the redaction of
// messages search for them.
package secret

// A Form is the form of one kind of secret: a rare prefix, and the characters after it.
type Form struct {
	// What is the name of the kind, as in "a token of GitHub".
	What, Prefix string
	// Whole is the least number of characters after the prefix of a whole secret. Part is the
	// number from which a word that may have been cut is suspicious. A form with Part alone is only
	// redacted, since a review searches whole files for each form.
	Whole, Part int
	// More are the characters that may follow besides letters and digits.
	More string
}

// privateKey is the kind of private keys, whose prefix is a line.
const privateKey = "a private key"

// Forms are the known kinds.
var Forms = []Form{
	{privateKey, "-----BEGIN RSA PRIVATE KEY-----", 0, 0, ""},
	{privateKey, "-----BEGIN PRIVATE KEY-----", 0, 0, ""},
	{privateKey, "-----BEGIN EC PRIVATE KEY-----", 0, 0, ""},
	{privateKey, "-----BEGIN OPENSSH PRIVATE KEY-----", 0, 0, ""},
	{privateKey, "-----BEGIN PGP PRIVATE KEY BLOCK-----", 0, 0, ""},
	{privateKey, "AGE-SECRET-KEY-1", 50, 20, ""},
	{"an access key of AWS", "AKIA", 16, 16, ""},
	{"an access key of AWS", "ASIA", 16, 16, ""},
	{"a token of GitHub", "ghp_", 36, 8, "_"},
	{"a token of GitHub", "gho_", 36, 8, "_"},
	{"a token of GitHub", "ghu_", 0, 8, "_"},
	{"a token of GitHub", "ghs_", 36, 8, "_"},
	{"a token of GitHub", "ghr_", 0, 8, "_"},
	{"a token of GitHub", "github_pat_", 50, 8, "_"},
	{"a token of GitLab", "glpat-", 20, 8, "_-"},
	{"a token of Slack", "xoxa-", 0, 8, "-"},
	{"a token of Slack", "xoxb-", 20, 8, "-"},
	{"a token of Slack", "xoxc-", 0, 8, "-"},
	{"a token of Slack", "xoxd-", 0, 8, "-"},
	{"a token of Slack", "xoxe-", 0, 8, "-"},
	{"a token of Slack", "xoxp-", 20, 8, "-"},
	{"a token of Slack", "xoxr-", 0, 8, "-"},
	{"a token of Slack", "xoxs-", 0, 8, "-"},
	{"a token of Slack", "xapp-", 0, 8, "-"},
	{"a key of Google", "AIza", 35, 30, "_-"},
	{"a key of Stripe", "sk_live_", 20, 8, ""},
	{"a key of Stripe", "rk_live_", 0, 8, ""},
	{"a key of Stripe", "sk_test_", 0, 8, ""},
	{"a key of Stripe", "rk_test_", 0, 8, ""},
	{"a key of Anthropic", "sk-ant-", 30, 8, "_-"},
	{"a key of OpenAI", "sk-proj-", 30, 8, "_-"},
	{"a token of npm", "npm_", 36, 20, ""},
	{"a token of PyPI", "pypi-AgE", 32, 20, "_-"},
}
