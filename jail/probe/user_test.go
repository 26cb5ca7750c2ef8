package probe

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
		{"/proc/sys/kernel/unprivileged_userns_clone", "0\n", syscall.EPERM,
			"kernel.unprivileged_userns_clone to 1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", syscall.EACCES,
			"/etc/apparmor.d/jaild"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0\n", syscall.EINVAL,
			"CONFIG_USER_NS"},
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
		untold  string
		says    string
	}{
		{cgroup.Hybrid, nil, "", "systemd.unified_cgroup_hierarchy=1"},
		{cgroup.V2, nil, "", "loginctl enable-linger"},
		{cgroup.V2, nil, "/run/user/7", "set XDG_RUNTIME_DIR=/run/user/7"},
		{cgroup.V2, []string{"memory", "pids"}, "", "systemctl edit user@.service"},
	} {
		if fix := delegationFix(c.layout, c.offered, c.untold); !strings.Contains(fix, c.says) {
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

// A manager whose address this process was not given is found where such managers are.
func TestUntoldManager(t *testing.T) {
	none, one := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(one, "systemd"), 0o700),
		os.WriteFile(filepath.Join(one, "systemd/private"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ told, dir, want string }{{"", none, ""}, {"", one, one},
		{none, one, one}, {one, one, ""}} {
		if got := untoldManager(c.told, c.dir); got != c.want {
			t.Errorf("told %q, and one may be in %s: %q, want %q", c.told, c.dir, got, c.want)
		}
	}
}
