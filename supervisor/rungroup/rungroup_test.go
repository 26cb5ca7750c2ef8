package rungroup

import "testing"

// What a dead daemon's directory says must never make a later one kill anything but that run.
func TestOnlyARunsOwnControlGroupIsCleared(t *testing.T) {
	for said, want := range map[string]string{
		"/jail/one.7":    "/jail/one.7",
		"":               "",
		"/":              "",
		"/jail":          "",
		"/jail/":         "",
		"/jail/one":      "",
		"/jail/two.7":    "",
		"/other/one.7":   "",
		"one.7":          "",
		"/jail/../one.7": "",
		"/jail/one./..":  "",
		"/jail/x/one.7":  "",
	} {
		if got := OfDead("/jail", said, "one", ""); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

func TestSessionGroups(t *testing.T) {
	if g := Session("/jail/s1.7"); g != "/jail/s1.7.session" || !isSession("/jail", g, "s1") ||
		isSession("/jail", g, "s2") || isSession("/jail", g, "") {
		t.Errorf("%q", g)
	}
	for _, dir := range []string{"/jail", "/", "/jail/s1.7", "/other/s1.7.session",
		"/jail/x/s1.7.session", "/jail/../s1.7.session"} {
		if isSession("/jail", dir, "s1") {
			t.Errorf("%s is taken for the group of a session", dir)
		}
	}
	if g := Fetch("/jail/s1.7.session/e1.7"); g != "/jail/e1.7.fetch" {
		t.Errorf("a proxy in %s would live of the tools' memory", g)
	}
	for path, want := range map[string]string{"/jail/e1.3": "/jail/e1.3",
		"/jail/s1.3.session/e1.3": "/jail/s1.3.session/e1.3", "/jail/s2.3.session/e1.3": "",
		"/jail/s1.3.session/e2.3": "", "/e1.3": "", "": ""} {
		if got := OfDead("/jail", path, "e1", "s1"); got != want {
			t.Errorf("the leaf at %q is %q", path, got)
		}
	}
}
