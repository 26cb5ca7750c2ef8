package supervisor

import "testing"

// What a dead daemon's directory says must never make a later one kill anything but that run.
func TestOnlyARunsOwnControlGroupIsCleared(t *testing.T) {
	s := &Supervisor{config: Config{Slice: "/jail"}}
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
		if got := s.leafOf(runState{ID: "one", Cgroup: said}); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}
