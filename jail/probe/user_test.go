package probe

import (
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/jail/cgroup"
)

// Whatever keeps a user from making user namespaces is named, with what to do about it.
func TestUserNamespaceFix(t *testing.T) {
	for _, c := range []struct {
		path, text string
		err        error
		says       string
	}{
		{"/proc/sys/user/max_user_namespaces", "0\n", syscall.ENOSPC, "user.max_user_namespaces"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0\n", syscall.EPERM, "kernel.unprivileged_userns_clone to 1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", syscall.EACCES, "/etc/apparmor.d/jaild"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0\n", syscall.EINVAL, "CONFIG_USER_NS"},
		{"", "", syscall.EPERM, "container's filter"},
	} {
		read := func(path string) ([]byte, error) {
			if path == c.path {
				return []byte(c.text), nil
			}
			return nil, fs.ErrNotExist
		}
		if fix := userNamespaceFix(c.err, read); !strings.Contains(fix, c.says) {
			t.Errorf("%s %q: %s", c.path, c.text, fix)
		}
	}
}

// A user without a delegation is told how to get one.
func TestDelegationFix(t *testing.T) {
	for _, c := range []struct {
		layout  cgroup.Layout
		offered []string
		says    string
	}{
		{cgroup.Hybrid, nil, "systemd.unified_cgroup_hierarchy=1"},
		{cgroup.V2, nil, "loginctl enable-linger"},
		{cgroup.V2, []string{"memory", "pids"}, "systemctl edit user@.service"},
	} {
		if fix := delegationFix(c.layout, c.offered); !strings.Contains(fix, c.says) {
			t.Errorf("%s %v: %s", c.layout, c.offered, fix)
		}
	}
	if got := without([]string{"pids", "io"}); !slices.Equal(got, []string{"cpu", "memory"}) {
		t.Errorf("missing: %v", got)
	}
	if got := without([]string{"cpu", "memory", "pids"}); got != nil {
		t.Errorf("missing: %v", got)
	}
}
