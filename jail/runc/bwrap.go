package runc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/outer"
	"github.com/jail-sandbox/jail/jail/seccomp/libseccomp"
)

// bubblewrap has bubblewrap start jail-init, and returns when the jail is made and its first process
// is a child of this one. What bubblewrap says of a failure goes to the log: its own standard error
// is that of the first process, which puts the tool's in its place (guest.ErrPassed).
func (c *ociContainer) bubblewrap(ctx context.Context, o control.Order, place outer.Place,
	files Files, userns *os.File) error {
	if err := sys.AdoptOrphans(); err != nil {
		return err
	}
	if err := c.makeGroup(o); err != nil {
		return err
	}
	log, err := os.OpenFile(c.bundle.LogFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	program, err := libseccomp.CompileOutside(o.Plan.OuterFilter)
	if err != nil {
		return err
	}
	filter, err := sys.MemFile("filter", program)
	if err != nil {
		return err
	}
	defer filter.Close()
	// bubblewrap reads from where it stands.
	if _, err := filter.Seek(0, io.SeekStart); err != nil {
		return err
	}
	info, infoEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer info.Close()
	defer infoEnd.Close()
	readyEnd, ready, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	defer readyEnd.Close()
	// Nothing is waited for, and that it was read is seen.
	if _, err := ready.Write([]byte{1}); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = []string{}, files.In, files.Out, log
	cmd.ExtraFiles = []*os.File{files.Control, files.Listener, files.Err, userns, filter, infoEnd,
		readyEnd}
	// Bubblewrap hands on what is open.
	const first = control.InitPassed + 1
	args, err := outer.Bwrap(o.Plan, place, outer.BwrapFiles{UserNS: first, Filter: first + 1,
		Info: first + 2, Ready: first + 3})
	if err != nil {
		return err
	}
	cmd.Args = outer.Gated(-1, false, c.path, args)
	who, err := bwrapUser(o.Plan.IDs)
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: who}
	if err := c.startIn(cmd, o.Plan.Cgroup.OOMScore); err != nil {
		return err
	}
	if err := errors.Join(infoEnd.Close(), readyEnd.Close()); err != nil {
		return err
	}
	var pid int
	err = interruptible(ctx, 0, func() (err error) {
		if pid, err = childOf(info); err != nil {
			return errors.Join(err, cmd.Wait())
		}
		if c.process, err = os.FindProcess(pid); err != nil {
			return err
		}
		// bubblewrap closes its end when it has let the first process go on, and the first process when
		// it is in the jail's own root.
		return sys.AwaitNoReader(ready)
	})
	if err != nil {
		return fmt.Errorf("bwrap: %w", err)
	}
	// It would wait for the first process only, which is a child of this process without it.
	if err := cmd.Process.Kill(); err != nil {
		return fmt.Errorf("bwrap: %w", err)
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState.Exited() {
		// It had ended before, as the first process has.
		return fmt.Errorf("bwrap: %w", err)
	}
	c.paths = c.group.GetPaths()
	return mountProcIn(pid, o.Plan)
}

// childOf reads what bubblewrap says of the first process.
func childOf(info io.Reader) (int, error) {
	var said struct {
		PID int `json:"child-pid"`
	}
	if err := json.NewDecoder(info).Decode(&said); err != nil || said.PID <= 0 {
		return 0, errors.Join(errors.New("it named no first process"), err)
	}
	return said.PID, nil
}

// bwrapUser is who executes bubblewrap, which takes the ids of the plan inside the jail's user
// namespace, unless it finds that it has them already: it compares the numbers of the host with those
// of the jail. The host's root may enter the namespace and keeps its rights there when it takes
// another user's id than 0. Its owner may enter it too, without any right on the host, and keeps them
// when it takes the id 0.
func bwrapUser(ids jail.IDs) (*syscall.Credential, error) {
	who := &syscall.Credential{Gid: ids.HostGroup()}
	if ids.UID == 0 {
		who.Uid = ids.Owner
	}
	if who.Uid == ids.UID || who.Gid == ids.GID {
		return nil, fmt.Errorf("bwrap: user %d and group %d of the jail are the same numbers on the host",
			ids.UID, ids.GID)
	}
	return who, nil
}

// mountProcIn mounts a proc in a jail, of its own process namespace.
func mountProcIn(pid int, p jail.Plan) error {
	i := slices.IndexFunc(p.Mounts, func(m jail.Mount) bool { return m.Kind == jail.MountProc })
	if i < 0 {
		return nil
	}
	options := []string{"source=proc", "hidepid=4"}
	// Else showMachine narrows it when the files of the machine are on it.
	if !p.MachineInProc() {
		options = append(options, "subset=pid")
	}
	tree, err := sys.ProcOf(pid, options...)
	if err != nil {
		return err
	}
	defer tree.Close()
	return sys.AttachIn(tree, pid, p.Mounts[i].Target)
}
