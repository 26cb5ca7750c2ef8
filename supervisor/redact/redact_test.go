package redact

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy/secret"
)

// TestText: each form of a secret is replaced, and what is none stays. The parts of a secret are
// joined here, so that nobody takes this file for one.
func TestText(t *testing.T) {
	long := strings.Repeat("aB3", 20)
	upper := strings.Repeat("AB3", 10)
	key := func(kind string) string {
		return "-----BEGIN " + kind + "-----\nMIIE" + long + "\n" + long + "\n-----END " + kind + "-----"
	}
	for _, secret := range []string{"AKIA" + upper, "ASIA" + upper, "ghp_" + long, "gho_" + long,
		"ghu_" + long, "ghs_" + long, "ghr_" + long, "github_pat_" + "11_" + long, "glpat-" + long,
		"xoxb-12-" + long, "xoxp-" + long, "xoxa-" + long, "xapp-1-" + long, "AIza" + long,
		"sk_live_" + long, "sk-ant-" + long, "sk-proj-" + long, "npm_" + long, "pypi-AgE" + long,
		"AGE-SECRET-KEY-1" + upper, "eyJ" + long + "." + long + "." + long,
		key("PRIVATE KEY"), key("RSA PRIVATE KEY"), key("EC PRIVATE KEY"), key("OPENSSH PRIVATE KEY"),
		key("PGP PRIVATE KEY BLOCK"), key("ENCRYPTED PRIVATE KEY"),
		"Bearer " + long, "basic " + long + "==", "token " + long, "X-Worker-Secret: " + long} {
		for _, before := range []string{"", "it says ", "key=", `"`, "\n"} {
			text := Text(before + secret + " and more")
			if text != before+Redacted+" and more" {
				t.Errorf("%q is %q", before+secret, text)
			}
		}
	}
	for _, form := range secret.Forms {
		if got := Text("a " + form.Prefix + strings.Repeat("A", form.Part)); got != "a "+Redacted {
			t.Errorf("%s…: %q", form.Prefix, got)
		}
	}
	for text, want := range map[string]string{
		"clone https://me:" + long + "@forge.example.com/a: no": "clone https://" + Redacted +
			"@forge.example.com/a: no",
		// One that is cut.
		key("PRIVATE KEY")[:60]: Redacted,
		"a " + key("RSA PRIVATE KEY") + " b " + key("RSA PRIVATE KEY") + " c": "a " + Redacted + " b " +
			Redacted + " c",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q is %q", text, got)
		}
	}
	for _, harmless := range []string{"", "git push: the server refused it", "AKIA12",
		"-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----", "https://example.com/a@b",
		"task-123", "eyJ", "xAKIA" + upper, "commit " + strings.Repeat("0a", 20), "risk-assessment-of-it"} {
		if got := Text(harmless); got != harmless {
			t.Errorf("%q is %q", harmless, got)
		}
	}
}

// TestIsSecret: a secret in place of a name is known, and names of credentials are none.
func TestIsSecret(t *testing.T) {
	for word, want := range map[string]bool{"sk-ant-0123456789": true, "ghp_0123456789abcdef": true,
		"glpat-0123456789": true, "github_pat_0123456789": true, "": false, "forge": false,
		"sk-ant": false, "anthropic": false, "forge-sk-0123456789": false, "github.com": false} {
		if IsSecret(word) != want {
			t.Errorf("IsSecret(%q) = %v", word, !want)
		}
	}
}
