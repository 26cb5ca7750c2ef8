package run_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/cgroup"
)

// A rootlessUser is a user without rights, and what that user can have control groups from: one
// that was handed on, or a service manager.
type rootlessUser struct {
	bin, home string
	uid, gid  int
	// The group's name, or the manager's directory; "" without.
	group, runtime string
}

// newRootlessUser makes a home for stranger. Root drops its rights for it.
func newRootlessUser(t *testing.T) *rootlessUser {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user, and hand control groups on")
	}
	home, err := os.MkdirTemp("", "jail-rootless-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	u := &rootlessUser{bin: cmdtest.Must(cmdtest.Installed())(t), home: home, uid: cmdtest.Stranger, gid: cmdtest.Stranger}
	u.own(t, home)
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	return u
}

// own makes files the user's.
func (u *rootlessUser) own(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.Chown(path, u.uid, u.gid); err != nil {
			t.Fatal(err)
		}
	}
}

// delegate lets the user have control groups: with control groups v2 from the user's own service
// manager, as after a login, else by handing some on.
func (u *rootlessUser) delegate(t *testing.T) {
	t.Helper()
	if layout, err := cgroup.Detect(); err != nil {
		t.Fatal(err)
	} else if layout == cgroup.V2 {
		u.logIn(t)
		return
	}
	u.handOn(t)
}

// logIn becomes a user whose service manager always runs.
func (u *rootlessUser) logIn(t *testing.T) {
	t.Helper()
	// Without systemd there is none.
	lingering, _ := os.ReadDir("/var/lib/systemd/linger")
	for _, name := range lingering {
		found, err := user.Lookup(name.Name())
		if err != nil || found.Uid == "0" {
			continue
		}
		uid, err := strconv.Atoi(found.Uid)
		gid, gidErr := strconv.Atoi(found.Gid)
		if err = errors.Join(err, gidErr); err != nil {
			t.Fatal(err)
		}
		u.uid, u.gid, u.runtime = uid, gid, "/run/user/"+found.Uid
		u.own(t, u.home)
		cmdtest.Eventually(t, "the service manager of "+name.Name()+" runs", func() bool {
			_,
				err := os.Stat(u.runtime + "/systemd/private")
			return err == nil
		})
		return
	}
	t.Skip("no user of this machine has a service manager that always runs: loginctl enable-linger NAME")
}

// handOn makes a control group that is the user's, which whatever the user starts is put into. It
// goes with the test.
func (u *rootlessUser) handOn(t *testing.T) {
	t.Helper()
	u.group = fmt.Sprintf("jail-rootless-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	roots := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		roots = nil
		all, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
		if err != nil || len(all) == 0 {
			t.Fatalf("no control groups: %v", err)
		}
		for _, procs := range all {
			roots = append(roots, filepath.Dir(procs))
		}
	} else if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control",
		[]byte("+cpu +memory +pids"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.removeGroups(t, roots) })
	for _, root := range roots {
		dir := filepath.Join(root, u.group)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		// Which are empty in a new group of v1.
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			if text, err := os.ReadFile(filepath.Join(root, name)); err == nil {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		u.own(t, dir)
		for _, f := range files {
			u.own(t, filepath.Join(dir, f.Name()))
		}
	}
}

func (u *rootlessUser) removeGroups(t *testing.T, roots []string) {
	for _, root := range roots {
		var dirs []string
		_ = filepath.WalkDir(filepath.Join(root, u.group), func(path string, d os.DirEntry,
			err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			// The kernel has it for a moment longer than its last process.
			cmdtest.Eventually(t, "control group "+dir+" can be removed", func() bool {
				err := os.Remove(dir)
				if err != nil && !errors.Is(err, syscall.EBUSY) {
					t.Errorf("a control group is left: %v", err)
				}
				return !errors.Is(err, syscall.EBUSY)
			})
		}
	}
}

// command runs a program as the user, in the control group that was handed on to the user.
func (u *rootlessUser) command(dir string, args ...string) *exec.Cmd {
	script := `exec setpriv --reuid "${0%:*}" --regid "${0#*:}" --clear-groups -- "$@"`
	if u.group != "" {
		script = `for f in /sys/fs/cgroup/` + u.group + `/cgroup.procs /sys/fs/cgroup/systemd/` +
			u.group + `/cgroup.procs /sys/fs/cgroup/unified/` + u.group +
			`/cgroup.procs; do [ ! -e "$f" ] || echo $$ > "$f" || exit 99; done; ` + script
	}
	cmd := exec.Command("sh",
		append([]string{"-c", script, fmt.Sprintf("%d:%d", u.uid, u.gid)}, args...)...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + u.bin + ":/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + u.home}
	if u.runtime != "" {
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+u.runtime)
	}
	return cmd
}

func (u *rootlessUser) run(t *testing.T, dir string, args ...string) (int, string, string) {
	t.Helper()
	cmd := u.command(dir, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

// must exit with 0.
func (u *rootlessUser) ok(t *testing.T, dir string, args ...string) string {
	t.Helper()
	code, out, said := u.run(t, dir, args...)
	if code != 0 {
		t.Fatalf("%q: exit code %d, %s%s", args, code, out, said)
	}
	return out
}

func (u *rootlessUser) workspace(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(u.home, "w")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a": "one\n", "d/b": "two\n", ".env": "SECRET\n"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		u.own(t, filepath.Dir(path), path)
	}
	return dir
}

// kernelBefore reports whether this kernel is older than that version.
func kernelBefore(t *testing.T, major, minor int) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	var has, minorOf int
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%d.%d", &has, &minorOf)
	}
	if err != nil {
		t.Fatal(err)
	}
	return has < major || has == major && minorOf < minor
}
