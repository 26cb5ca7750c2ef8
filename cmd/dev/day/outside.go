package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// An outside runs commands without a jail, as the owner of the workspace, in a mount namespace in
// which a copy lies where the workspace is, and /tmp and HOME are empty: paths in outputs are the
// same as in the session.
type outside struct {
	start chan func()
	env   []string
}

// home is HOME of the profile build.
const home = "/home/tool"

func newOutside(copyDir, at string, env []string) (*outside, error) {
	o := &outside{start: make(chan func()), env: env}
	ready := make(chan error)
	go func() {
		// Children of this thread inherit its mount namespace. The thread ends with the goroutine.
		runtime.LockOSThread()
		ready <- enter(copyDir, at)
		for f := range o.start {
			f()
		}
	}()
	return o, <-ready
}

func enter(copyDir, at string) error {
	if err := syscall.Unshare(syscall.CLONE_FS | syscall.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount(copyDir, at, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", copyDir, err)
	}
	if err := nameUser("/tmp"); err != nil {
		return fmt.Errorf("make the user: %w", err)
	}
	for _, dir := range []string{"/tmp", "/home"} {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=1777"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	return errors.Join(os.Mkdir(home, 0o755), os.Chown(home, user, user))
}

// nameUser gives the user a name, as in a jail, by a layer over /etc. A file that is mounted over
// /etc/passwd would be gone as soon as somebody installs a package on the host. The layer is made in
// a tmpfs at scratch, which it alone keeps.
func nameUser(scratch string) error {
	if err := syscall.Mount("tmpfs", scratch, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	upper, work := filepath.Join(scratch, "upper"), filepath.Join(scratch, "work")
	return errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755),
		os.WriteFile(filepath.Join(upper, "passwd"), fmt.Appendf(nil,
			"root:x:0:0::/root:/bin/sh\ntool:x:%d:%d::%s:/bin/sh\n", user, user, home), 0o644),
		os.WriteFile(filepath.Join(upper, "group"), fmt.Appendf(nil, "root:x:0:\ntool:x:%d:\n",
			user), 0o644),
		syscall.Mount("overlay", "/etc", "overlay", 0, "lowerdir=/etc,upperdir="+upper+",workdir="+
			work),
		syscall.Unmount(scratch, syscall.MNT_DETACH))
}

// command prepares a shell line in dir.
func (o *outside) command(ctx context.Context, dir, line string, out, errOut io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(o.env, "PWD="+dir), out, errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true,
		Credential: &syscall.Credential{Uid: user, Gid: user}}
	return cmd
}

// run starts a command in the mount namespace and waits for its end.
func (o *outside) run(cmd *exec.Cmd) (code int, err error) {
	started := make(chan error)
	o.start <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return 0, err
	}
	return exitOf(cmd, cmd.Wait())
}

// exitOf returns the exit code as a shell has it.
func exitOf(cmd *exec.Cmd, err error) (int, error) {
	if cmd.ProcessState == nil {
		return 0, err
	}
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		return 128 + int(s.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// copyTree copies a directory as it is, in place of what is there.
func copyTree(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	var errOut bytes.Buffer
	cmd := exec.Command("cp", "-a", from, to)
	cmd.Stderr = &errOut
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cp %s: %w: %s", filepath.Base(from), err, errOut.String())
	}
	return nil
}
