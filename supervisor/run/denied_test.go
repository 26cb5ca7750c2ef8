package run

import (
	"testing"

	"github.com/jail-sandbox/jail/jail"
)

// TestLandlockRule: a refused path is reported for the domain that refused it.
func TestLandlockRule(t *testing.T) {
	p := jail.Plan{Landlock: jail.Landlock{Rules: []jail.LandlockRule{{Path: "/w", Write: true}}}}
	for what, want := range map[string]string{
		"read_file /x":             "nothing is granted there",
		"execute,read_file /w/a b": "/w is granted for: read, write",
		"connect_tcp(80)":          "the plan's landlock domain",
		"signal(a /w)":             "the plan's landlock domain", "": "the plan's landlock domain",
	} {
		if got := landlockRule(p, what); got != want {
			t.Errorf("%q: %q, want %q", what, got, want)
		}
	}
	p.Ceiling = &jail.Ceiling{Landlock: jail.Landlock{Rules: []jail.LandlockRule{{Path: "/w"}}}}
	for what, want := range map[string]string{
		"write_file /w/a": "the host's ceiling: /w is granted for: read",
		"execute /w/a":    "/w is granted for: read, write",
		"read_file /x":    "nothing is granted there",
	} {
		if got := landlockRule(p, what); got != want {
			t.Errorf("under a ceiling, %q: %q, want %q", what, got, want)
		}
	}
}
