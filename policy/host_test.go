package policy_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/policytest"
)

// T-222, T-225: one final dot and case do not matter, labels do.
func TestHostMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern string
		yes, no []string
	}{
		{"Example.COM.", []string{"example.com", "EXAMPLE.com", "example.com."},
			[]string{"example.com..", ".example.com", "a.example.com", "example.co",
				"example.com.evil.test", "evil-example.com"}},
		{"*.example.com", []string{"a.example.com", "A.Example.Com."}, []string{"example.com",
			"b.a.example.com", ".example.com", "a.example.com..", "aexample.com", "*.example.com"}},
		{"**.example.com", []string{"a.example.com", "b.a.example.com"},
			[]string{"example.com", "evil-example.com", "a.example.com.evil.test"}},
		{"*", []string{"example.com", "localhost", "xn--bcher-kva.example"}, []string{"", "1.2.3.4",
			"::1", "[::1]", "0x7f.1", "127.1", "2130706433", "a_b.example", "a\x00.example.com",
			"bücher.example"}},
		{"localhost", []string{"localhost", "LOCALHOST."}, []string{"a.localhost"}},
	} {
		h := host(t, tt.pattern)
		for _, name := range tt.yes {
			if !h.Match(name) {
				t.Errorf("%s does not match %q", tt.pattern, name)
			}
		}
		for _, name := range tt.no {
			if h.Match(name) {
				t.Errorf("%s matches %q", tt.pattern, name)
			}
		}
	}
	if (policy.Host{}).Match("example.com") || (policy.Host{}).String() != "∅" {
		t.Error("the zero host matches something")
	}
}

// T-203, T-204, T-206, T-220 to T-225: what a policy may not name.
func TestHostErrors(t *testing.T) {
	for text, why := range map[string]string{
		"":                                       "empty",
		"*.":                                     "empty",
		"a.example.0":                            "is an address",
		"a.example.9x":                           "is an address",
		"a.0x1":                                  "is an address",
		"*.com":                                  "top-level domain",
		"**.com.":                                "top-level domain",
		"*.localhost":                            "top-level domain",
		"a.*.example.com":                        "only at the start",
		"*example.com":                           "only at the start",
		"example.*":                              "only at the start",
		"example.com..":                          "empty label",
		".example.com":                           "empty label",
		"a..example.com":                         "empty label",
		"https://example.com":                    "scheme",
		"example.com/x":                          "slash",
		"0.0.0.0/0":                              "slash",
		"::/0":                                   "slash",
		"user@example.com":                       "user part",
		"example.com:443":                        "colon",
		"::1":                                    "colon",
		"[::1]":                                  "colon",
		"fe80::1%eth0":                           "colon",
		"127.0.0.1":                              "address",
		"169.254.169.254":                        "address",
		"2130706433":                             "address",
		"0x7f.1":                                 "address",
		"0x7f000001":                             "address",
		"127.1":                                  "address",
		"bücher.example":                         "xn--",
		"ｅxample.com":                            "xn--",
		"127。0。0。1":                              "xn--",
		"exa mple.com":                           "no host name has",
		"a_b.example.com":                        "no host name has",
		"evil.test\x00.good.test":                "no host name has",
		"evil.test\n.good.test":                  "no host name has",
		"evil.test%00.good.test":                 "no host name has",
		"-a.example.com":                         "hyphen",
		"a-.example.com":                         "hyphen",
		"metadata.google.internal":               "metadata",
		"Metadata.Google.Internal.":              "metadata",
		strings.Repeat("a", 64) + ".example.com": "63 bytes",
		strings.Repeat("a.", 130) + "example":    "253 bytes",
	} {
		h, err := policy.ParseHost(text)
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("ParseHost(%.40q) = %v, %v, want an error with %q", text, h, err, why)
		}
	}
}

func TestHostMeetIsExact(t *testing.T) {
	names := []string{"example.com", "a.example.com", "b.a.example.com", "c.b.a.example.com",
		"evil-example.com", "example.com.evil.test", "evil.test", "a.evil.test"}
	rapid.Check(t, func(t *rapid.T) {
		a, b := policytest.Host().Draw(t, "a"), policytest.Host().Draw(t, "b")
		name := rapid.SampledFrom(names).Draw(t, "name")
		if got, want := a.Meet(b).Match(name), a.Match(name) && b.Match(name); got != want {
			t.Fatalf("%s: %s ∧ %s = %s says %v", name, a, b, a.Meet(b), got)
		}
	})
}

func TestPorts(t *testing.T) {
	for text, want := range map[string]string{"443": "[443]", "8000-8100": "[8000-8100]",
		"*": "[*]", "1-65535": "[*]"} {
		p, err := policy.ParsePorts(text)
		if err != nil || p.String() != want {
			t.Errorf("ParsePorts(%q) = %s, %v, want %s", text, p, err, want)
		}
	}
	for _, text := range []string{"", "0", "65536", "-1", "0443", "007", "https", "443-", "-443",
		"90-80", "1e3", "+80", " 80", "443,80"} {
		if p, err := policy.ParsePorts(text); err == nil {
			t.Errorf("ParsePorts(%q) = %s, want an error", text, p)
		}
	}
	p := policy.Ports{{Low: 443, High: 443}, {Low: 80, High: 80}, {Low: 81, High: 81},
		{Low: 9, High: 8}}
	if got := p.String(); got != "[80-81 443]" {
		t.Errorf("normal form is %s", got)
	}
	if !p.Has(81) || p.Has(82) || p.Has(0) || policy.AllPorts().Has(0) ||
		(policy.Ports{}).String() != "∅" {
		t.Error("Has or String is wrong")
	}
}

func FuzzHost(f *testing.F) {
	for _, s := range []string{"*.example.com", "*", "1.2.3.4", "xn--a.b", "a.b.", "[::1]",
		"**.a.b"} {
		f.Add(s, "a.example.com")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		h, err := policy.ParseHost(text)
		if err != nil {
			return
		}
		again, err := policy.ParseHost(h.String())
		if err != nil || again != h {
			t.Fatalf("%q is written as %q, which reads as %q, %v", text, h, again, err)
		}
		if h.Match(name) {
			clean, err := policy.ParseHostName(name)
			if err != nil || strings.ContainsAny(clean, "/:@%\x00 _") ||
				clean != strings.ToLower(clean) {
				t.Fatalf("%q matches %q", h, name)
			}
		}
	})
}
