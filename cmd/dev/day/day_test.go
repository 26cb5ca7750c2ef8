package main

import (
	"strings"
	"testing"
)

// TestDays: the days in the tree can be read, and are as long as the document says.
func TestDays(t *testing.T) {
	all, err := readDays("", 0)
	if err != nil || len(all) != 4 {
		t.Fatalf("%d days, %v", len(all), err)
	}
	calls, classes := 0, map[string]bool{}
	for _, d := range all {
		calls += len(d.calls)
		running := map[string]bool{}
		for n, c := range d.calls {
			classes[c.class] = true
			if c.background != "" {
				running[c.background] = true
			}
			if c.stop != "" && !running[c.stop] {
				t.Errorf("%s: call %d ends %s, which does not run", d.name, n+1, c.stop)
			}
			if c.together && n == 0 {
				t.Errorf("%s: the first call has none before it", d.name)
			}
		}
		if d.prepare == "" || !strings.Contains(d.prepare, " ") {
			t.Errorf("%s: nothing makes the repository", d.name)
		}
	}
	if calls < 200 {
		t.Errorf("%d calls", calls)
	}
	for _, want := range []string{"read", "search", "edit", "git", "build", "test", "install",
		"server"} {
		if !classes[want] {
			t.Errorf("no call is of the class %s", want)
		}
	}
	for line := range known {
		found := false
		for _, d := range all {
			for _, c := range d.calls {
				found = found || c.line == line
			}
		}
		if !found {
			t.Errorf("no day has the call %q", line)
		}
	}
	if len(known) > 5 {
		t.Errorf("%d differences are documented", len(known))
	}
}

// TestDiffer: a difference names the lines, and times are none.
func TestDiffer(t *testing.T) {
	if d := differ("x", "ok 1.5s\n", "ok 2.25s\n"); d != nil {
		t.Errorf("%q", d)
	}
	if d := differ("x", "a\nb\n", "a\nc\n"); len(d) != 1 || d[0] != `x: "-b | +c"` {
		t.Errorf("%q", d)
	}
	if d := differ("x", "a\nb\n", "b\na\n"); len(d) != 1 ||
		!strings.Contains(d[0], "order") {
		t.Errorf("%q", d)
	}
}
