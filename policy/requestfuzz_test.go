package policy_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

// FuzzRequest: whatever the flags of a run say, it is read or refused in one sentence, and never
// grants more than there was.
func FuzzRequest(f *testing.F) {
	for _, s := range [][3]string{
		{"memory=64MiB", "A=b", "example.com"}, {"fetch.requests=3", "=", "*.example.com"},
		{"wall=-1", "LD_PRELOAD=x", "[::1]"},
		{"memory", "A\x00=b", "a/b"}, {"memory=1e99", "A=b\nc", "169.254.169.254"},
		{"cpus=0.5", "ÄÖ=1", "."}, {"fetch.=1", "A==", "*"},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, limit, env, host string) {
		r := policy.NewRequest()
		for what, err := range map[string]error{"limit": r.Limit(limit), "env": r.Env(env),
			"fetch": r.Fetch(host)} {
			if err != nil && (err.Error() == "" || strings.ContainsAny(err.Error(), "\n\x00\x1b")) {
				t.Errorf("%s: not one clean line: %q", what, err)
			}
		}
		p := r.Policy()
		if !p.LessEq(policy.Top()) {
			t.Errorf("limit %q and host %q ask for more than there is: %s", limit, host, p)
		}
		if again := p.Meet(policy.Top()); !again.LessEq(p) || !p.LessEq(again) {
			t.Errorf("limit %q and host %q: %s is not its own meet with everything, %s", limit,
				host, p, again)
		}
		for name, value := range r.Given() {
			if strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) || name == "" {
				t.Errorf("variable %q is %q", name, value)
			}
		}
	})
}
