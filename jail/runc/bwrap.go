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

// bubblewrap starts jail-init by bubblewrap, and returns when the jail is made and its first
// process is a child of this process. Standard error is a log, so that bubblewrap's errors go
// there; jail-init replaces it by the tool's (guest.ErrPassed).
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
	// bubblewrap reads from the current offset.
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
	// bubblewrap can read at once. When all readers have closed the pipe, the jail is made.
	if _, err := ready.Write([]byte{1}); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = []string{}, files.In, files.Out, log
	cmd.ExtraFiles = []*os.File{files.Control, files.Listener, files.Err, userns, filter, infoEnd,
		readyEnd}
	// bubblewrap passes all open descriptors on, so its own are behind those of jail-init.
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
		// bubblewrap closes its end after it has released the first process, and the first process
		// closes its end in the jail's own root.
		return sys.AwaitNoReader(ready)
	})
	if err != nil {
		return fmt.Errorf("bwrap: %w", err)
	}
	// bubblewrap only waits for the first process. Without bubblewrap that becomes a child of this
	// process.
	if err := cmd.Process.Kill(); err != nil {
		return fmt.Errorf("bwrap: %w", err)
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState.Exited() {
		// It ended by itself because the first process has ended.
		return fmt.Errorf("bwrap: %w", err)
	}
	c.paths = c.group.GetPaths()
	return mountProcIn(pid, o.Plan)
}

// childOf reads the host PID of the first process from bubblewrap's --info-fd.
func childOf(info io.Reader) (int, error) {
	var said struct {
		PID int `json:"child-pid"`
	}
	if err := json.NewDecoder(info).Decode(&said); err != nil || said.PID <= 0 {
		return 0, errors.Join(errors.New("it named no first process"), err)
	}
	return said.PID, nil
}

// bwrapUser returns the host's user and group that execute bubblewrap. bubblewrap changes to the
// plan's ids in the jail's user namespace unless its own ids have the same numbers, so these must
// differ. Host root may enter the namespace and keeps its capabilities there on a change to a uid
// other than 0; for uid 0 the namespace's owner is used, which may enter it too and has no rights
// on the host.
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

// mountProcIn mounts a proc of the jail's own PID namespace in the jail with first process pid, if
// the plan has a proc.
func mountProcIn(pid int, p jail.Plan) error {
	i := slices.IndexFunc(p.Mounts, func(m jail.Mount) bool { return m.Kind == jail.MountProc })
	if i < 0 {
		return nil
	}
	options := []string{"source=proc", "hidepid=4"}
	// Otherwise showMachine narrows it after it has mounted the files of the machine.
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
