package cgroup

import (
	"errors"
	"testing"
)

func TestOwnGroup(t *testing.T) {
	for text, want := range map[string]string{
		"9:name=systemd:/\n8:pids:/a/b\n0::/c\n": "/sys/fs/cgroup/pids/a/b",
		"0::/system.slice/jaild.service\n":       "/sys/fs/cgroup/system.slice/jaild.service",
		"0::/c\n8:pids:/\n":                      "/sys/fs/cgroup/pids",
		"2:cpu:/\n":                              "",
		"0::/../../user.slice\n":                 "",
		"":                                       "",
	} {
		got, err := ownGroup(text)
		if got != want || (want == "") != errors.Is(err, errUnsupported) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}
