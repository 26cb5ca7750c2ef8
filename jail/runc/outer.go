package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/outer"
)

// Gate waits until the parent has moved this process into the jail's cgroup and has written to the
// gate, and then executes the runtime of an outer layer. args are the arguments of outer.Gated
// after GateArg. The caller must have locked the main thread. Gate returns only on error.
func Gate(args []string) error {
	if len(args) < 3 {
		return errors.New("gate: no runtime is named")
	}
	fd, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("gate: descriptor %q is no number", args[0])
	}
	if fd >= 0 {
		gate := os.NewFile(uintptr(fd), "gate")
		if n, err := gate.Read(make([]byte, 1)); n != 1 {
			// The parent has ended.
			return errors.Join(errors.New("gate: it was never opened"), err)
		}
		if err := gate.Close(); err != nil {
			return err
		}
	}
	if args[1] == outer.UnifiedView {
		if err := sys.PrivateMounts(); err != nil {
			return err
		}
		if err := sys.MountGroups("/sys/fs/cgroup"); err != nil {
			return err
		}
	}
	if err := sys.NewSessionKeyring(); err != nil {
		return err
	}
	return sys.Exec(args[2], args[2:], os.Environ())
}

// An ociContainer is the holder of a jail that the runtime of an outer layer has started.
type ociContainer struct {
	path string
	// nil for bubblewrap, which keeps no state.
	adapter *outer.Adapter
	bundle  outer.Bundle
	// The process of jail-init, or the runtime if that runs as long as jail-init.
	process *os.Process
	// nil if the runtime makes the cgroup.
	group  cgroups.Manager
	limits *cgroups.Resources
	// Directories of the cgroup by controller.
	paths map[string]string
}

func (c *ociContainer) kill() error {
	err := c.process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (c *ociContainer) wait() (syscall.WaitStatus, error) { return statusOf(c.process.Wait()) }

func (c *ociContainer) groups() map[string]string { return c.paths }

// remove removes the runtime's state and the cgroup. All processes of the jail must have ended.
func (c *ociContainer) remove() error {
	var err error
	if c.adapter != nil {
		cmd := c.command(c.adapter.Delete(c.bundle))
		if err = cmd.Run(); err != nil {
			err = fmt.Errorf("%s: %w%s", strings.Join(cmd.Args, " "), err, c.explain())
		}
	}
	if c.group != nil {
		err = errors.Join(err, c.group.Destroy())
	}
	return errors.Join(err, os.RemoveAll(c.bundle.Dir))
}

// command returns the command that runs the runtime with these arguments, behind an open gate.
func (c *ociContainer) command(args []string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Env = outer.Gated(-1, c.adapter.Unified, c.path, args), []string{}
	return cmd
}

// explain returns ": " and the last error in the runtime's log, or "".
func (c *ociContainer) explain() string {
	if said := outer.Explain(c.bundle); said != "" {
		return ": " + said
	}
	return ""
}

// startOuter starts jail-init by the runtime of the plan's outer layer. It returns the holder and
// the host PID of its process.
func startOuter(ctx context.Context, o control.Order, root string, files Files,
	userns *os.File) (*ociContainer, int, error) {
	c := &ociContainer{path: o.Plan.Outer.Runtime.Path,
		bundle: outer.Bundle{Dir: filepath.Join(o.RunDir, "outer"), ID: string(o.Plan.ID),
			Files: 2 + len(files.Passed)}}
	place := outer.Place{Root: root, UserNS: fdPath(userns), Args: []string{guest.Self},
		Env: newEnv(o.Plan.ToolMemory())}
	if err := os.Mkdir(c.bundle.Dir, 0o700); err != nil {
		return nil, 0, err
	}
	if o.Plan.ByBubblewrap() {
		place.Env = append(place.Env, guest.ErrPassed)
	}
	begin := func() error { return c.bubblewrap(ctx, o, place, files, userns) }
	if !o.Plan.ByBubblewrap() {
		var err error
		if c.adapter, err = outer.For(o.Plan.Outer.Layer); err != nil {
			return nil, 0, err
		}
		if err := c.writeBundle(o, place); err != nil {
			return nil, 0, err
		}
		begin = func() error { return c.begin(ctx, o, files) }
	}
	if err := begin(); err != nil {
		endChildren()
		return nil, 0, errors.Join(fmt.Errorf("%w%s", err, c.explain()), c.remove())
	}
	return c, c.process.Pid, nil
}

func (c *ociContainer) writeBundle(o control.Order, place outer.Place) error {
	spec, err := c.adapter.Config(o.Plan, place)
	if err != nil {
		return err
	}
	return c.bundle.Write(spec)
}

// begin starts the runtime and returns when jail-init has been executed, or, if the runtime runs in
// the foreground, when the runtime is in the cgroup and has begun.
func (c *ociContainer) begin(ctx context.Context, o control.Order, files Files) error {
	// The children of a runtime that has ended become children of this process.
	if err := sys.AdoptOrphans(); err != nil {
		return err
	}
	if !c.adapter.MakesGroup {
		if err := c.makeGroup(o); err != nil {
			return err
		}
	}
	cmd := c.command(c.adapter.Create(c.bundle))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files.In, files.Out, files.Err
	cmd.ExtraFiles = append([]*os.File{files.Control, files.Listener}, files.Passed...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.startIn(cmd, o.Plan.Cgroup.OOMScore); err != nil {
		return err
	}
	if start := c.adapter.Start(c.bundle); start != nil {
		if err := interruptible(ctx, 0, cmd.Wait); err != nil {
			return fmt.Errorf("%s create: %w", o.Plan.Outer.Layer, err)
		}
		text, err := os.ReadFile(c.bundle.PIDFile())
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return fmt.Errorf("%s: pid file: %w", o.Plan.Outer.Layer, err)
		}
		if c.process, err = os.FindProcess(pid); err != nil {
			return err
		}
		if c.group == nil {
			if err := limitGroup(o.Plan); err != nil {
				return fmt.Errorf("control group: %w", err)
			}
		}
		if err := interruptible(ctx, 0, c.command(start).Run); err != nil {
			return fmt.Errorf("%s start: %w", o.Plan.Outer.Layer, err)
		}
	} else {
		c.process = cmd.Process
	}
	if c.group != nil {
		c.paths = c.group.GetPaths()
		return nil
	}
	var err error
	c.paths, err = groupsOf(c.process.Pid)
	return err
}

// makeGroup sets c.group and c.limits for the plan. startIn makes the cgroup.
func (c *ociContainer) makeGroup(o control.Order) (err error) {
	c.group, c.limits, err = groupOf(o.Plan)
	return err
}

// groupOf returns the manager of a plan's cgroup, and the limits to set in it.
func groupOf(p jail.Plan) (cgroups.Manager, *cgroups.Resources, error) {
	config, err := newCgroups(p)
	if err != nil {
		return nil, nil, err
	}
	group, err := manager.New(config)
	return group, config.Resources, err
}

// limitGroup sets the plan's limits and device rules in a cgroup that a runtime has made: runc
// would allow devices of its own list.
func limitGroup(p jail.Plan) error {
	group, limits, err := groupOf(p)
	if err != nil {
		return err
	}
	return group.Set(limits)
}

// startIn starts cmd, a result of command. If jail makes the cgroup, cmd waits at the gate until it
// has been moved into the cgroup and has score as its oom_score_adj.
func (c *ociContainer) startIn(cmd *exec.Cmd, score int) error {
	if c.group == nil {
		return cmd.Start()
	}
	gate, open, err := os.Pipe()
	if err != nil {
		return err
	}
	defer gate.Close()
	defer open.Close()
	fd := 3 + len(cmd.ExtraFiles)
	cmd.ExtraFiles = append(cmd.ExtraFiles, gate)
	cmd.Args[gateAt] = strconv.Itoa(fd)
	if err := cmd.Start(); err != nil {
		return err
	}
	err = c.group.Apply(cmd.Process.Pid)
	if err == nil {
		err = c.group.Set(c.limits)
	}
	if err == nil {
		err = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid),
			[]byte(strconv.Itoa(score)), 0)
	}
	if err == nil {
		_, err = open.Write([]byte{1})
	}
	if err != nil {
		// The gate closes, and the process ends by itself.
		open.Close()
		_ = cmd.Wait()
		return fmt.Errorf("control group: %w", err)
	}
	return nil
}

// gateAt is the index of the gate's descriptor in the arguments of outer.Gated.
const gateAt = 2

// groupsOf returns the directories of a process's cgroups: of v2, with the key "", or of cpuacct.
func groupsOf(pid int) (map[string]string, error) {
	paths, err := cgroups.ParseCgroupFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	for name, path := range paths {
		if cgroups.IsCgroup2UnifiedMode() {
			dirs[""] = filepath.Join("/sys/fs/cgroup", path)
		} else if name == "cpuacct" {
			dirs[name] = filepath.Join("/sys/fs/cgroup", name, path)
		}
	}
	return dirs, nil
}
