package fetch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestLearnFetch: of the network what was requested is granted, host, port, method and path, and of
// what was refused the policy tells a person. What is learnt is enough, and without its rule it is
// not.
func TestLearnFetch(t *testing.T) {
	cmdtest.Have(t, "/usr/bin/curl")
	if !onTestInternet(t, "8m") {
		return
	}
	h := newNativeWorld(t).h
	h.Files(map[string]string{
		"s.sh*": "#!/bin/sh\ncurl -sS https://up.example.com/granted/hello\ncurl -sS https://other.example.org/ >/dev/null 2>&1 || true\n"})
	file := filepath.Join(h.Root, "curl.toml")
	args := []string{"--", "/bin/sh", "./s.sh"}
	l := cmdtest.Learn(h, file, append([]string{"--fetch", "up.example.com"}, args...)...)
	// A tool whose requests have effects is not run again and again unless somebody says so.
	if l.Least || l.Trials > 1 {
		t.Errorf("%d trials", l.Trials)
	}
	if os.Getenv("JAIL_TEST_LONG") != "" {
		l = cmdtest.Learn(h, file,
			append([]string{"--force", "--fetch", "up.example.com", "--trials"}, args...)...)
	}
	for _, want := range []string{
		"host = \"up.example.com\"\nports = [443]\nmethods = [\"GET\"]\npaths = [\"/granted/hello\"]", "#   CONNECT other.example.org:443"} {
		if !strings.Contains(l.Policy, want) {
			t.Errorf("nothing of %q in\n%s", want, l.Policy)
		}
	}
	want := cmdtest.Doing(h, l, l.Policy, args)
	if !strings.Contains(want, "exit 0 ") || !strings.Contains(want, "hello from outside") {
		t.Fatalf("%s\n%s", want, l.Policy)
	}
	for what, policy := range cmdtest.WithoutEach(l.Policy) {
		if !strings.Contains(what, "host") && os.Getenv("JAIL_TEST_LONG") == "" {
			continue
		}
		if got := cmdtest.Doing(h, l, policy, args); got == want {
			t.Errorf("without %s the tool does the same", what)
		}
	}
	// Nothing is learnt of a host that nobody named.
	o := h.Jail(append([]string{"policy", "learn", "-o", filepath.Join(h.Root, "none.toml")}, "--",
		"/usr/bin/curl", "-sS", "https://up.example.com/granted/hello")...)
	if _, err := os.Stat(filepath.Join(h.Root, "none.toml")); o.Code != 6 && o.Code != 7 &&
		o.Code != 5 || err == nil {
		t.Errorf("exit code %d: %s", o.Code, o.Err)
	}
}
