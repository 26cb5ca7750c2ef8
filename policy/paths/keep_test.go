package paths

import (
	"slices"
	"testing"
)

func TestOfSystem(t *testing.T) {
	for path, want := range map[string]string{"/etc": "/etc", "/etc/ssl/bin": "/etc",
		"/etcetera": "", "/proc/self/cwd": "/proc", "/usr/bin": "", "/": "", "/root/.x": "/root"} {
		if got := OfSystem(path); got != want {
			t.Errorf("OfSystem(%q) = %q, want %q", path, got, want)
		}
	}
	if MayHoldHome("/etc") || !MayHoldHome("/root") {
		t.Error("/etc holds no homes, /root is one")
	}
	if all := Secrets("/h"); !slices.Contains(all, "/h/.ssh") {
		t.Errorf("%q has no /h/.ssh", all)
	}
}
