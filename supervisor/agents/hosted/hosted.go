package hosted

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/agents/builtin"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/calm"
)

// Argument is the argument with which the program of jail-agentd runs [Main], the process of an
// agent.
const Argument = "--agent-with-rights-of-its-user"

// maxSaid is how many bytes of the end of an agent's standard error are kept.
const maxSaid = 2 << 10

// Jails runs agents with the rights of their user itself, and all others by the embedded Jails.
type Jails struct {
	// Jailed runs the agents that are in jails.
	agents.Jails
	// Program is the path of the program of jail-agentd.
	Program string

	// groups are the process groups of awake agents, by instance.
	groups sync.Map
}

// Run runs an agent as a process of its user or, if its manifest does not say host, in a jail.
func (j *Jails) Run(ctx context.Context, l agents.Launch, o agents.Orders) (agents.End, error) {
	if !l.Manifest.OnHost() {
		return j.Jails.Run(ctx, l, o)
	}
	if _, ok := builtin.Find(l.Manifest.Name); !ok {
		// The files may have changed since they were registered.
		m, err := manifest.Load(l.Dir, manifest.Options{Host: os.Geteuid() == 0})
		if err != nil {
			return agents.End{}, err
		}
		if !m.OnHost() || m.Name != l.Manifest.Name {
			return agents.End{}, fmt.Errorf("%s has changed: it is no agent %s with runtime = \"host\" any "+
				"more, and is not started as one", m.Source, l.Manifest.Name)
		}
		l.Manifest = *m.Manifest
	}
	if err := os.MkdirAll(l.State, 0o700); err != nil {
		return agents.End{}, err
	}
	var first bytes.Buffer
	if err := agent.NewWriter(&first).Write(l); err != nil {
		return agents.End{}, err
	}
	said := &agents.Tail{Most: maxSaid}
	cmd := exec.Command(j.Program, Argument)
	cmd.Dir, cmd.Stderr = "/", said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A process that the agent leaves behind may keep standard error open.
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return agents.End{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return agents.End{}, err
	}
	if err := calm.Start(cmd); err != nil {
		return agents.End{}, fmt.Errorf("%w: %w", agents.ErrNoJail, err)
	}
	j.groups.Store(l.Instance, cmd.Process.Pid)
	defer j.groups.Delete(l.Instance)
	// Ignore the error if no process is left.
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	stop := context.AfterFunc(ctx, kill)
	go func() {
		// The copy ends with the process, whose end the reader of its output notices.
		_, _ = io.Copy(in, io.MultiReader(&first, o.In))
		in.Close()
	}()
	_, copied := io.Copy(o.Out, out)
	// Its output has ended, so the process has, too: kill the processes that it started. The group
	// id stays in use until Wait.
	ended := stop()
	kill()
	err = cmd.Wait()
	if !ended {
		return agents.End{}, context.Cause(ctx)
	}
	end := agents.End{ExitCode: cmd.ProcessState.ExitCode(), Said: said.String()}
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exited.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			end.Why = "it was ended by " + status.Signal().String()
		}
		err = nil
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return end, errors.Join(copied, err)
}

// Usage returns the resource usage of all awake agents, in jails and others, by instance.
func (j *Jails) Usage(ctx context.Context) (map[string]agents.Usage, error) {
	used, err := j.Jails.Usage(ctx)
	if used == nil {
		used = map[string]agents.Usage{}
	}
	of := map[int]string{}
	for instance, group := range j.groups.Range {
		of[group.(int)] = instance.(string)
	}
	if len(of) == 0 {
		return used, err
	}
	// The only possible error is a malformed pattern.
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		group, u, ok := usageIn(stat)
		if instance := of[group]; ok && instance != "" {
			sum := used[instance]
			used[instance] = agents.Usage{Memory: sum.Memory + u.Memory, CPU: sum.CPU + u.CPU}
		}
	}
	return used, err
}

// usageIn reads the process group and usage of a process from its stat file: proc_pid_stat(5). ok
// is false if the process has ended.
func usageIn(stat string) (group int, u agents.Usage, ok bool) {
	text, err := os.ReadFile(stat)
	if err != nil {
		return 0, u, false
	}
	// The name may have spaces. The fields after it start with the third.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 22 {
		return 0, u, false
	}
	number := func(field int) int64 {
		n, _ := strconv.ParseInt(fields[field-3], 10, 64)
		return n
	}
	// Times are in hundredths of a second, memory in pages.
	const hundredth = 10 * time.Millisecond
	return int(number(5)), agents.Usage{Memory: number(24) * int64(os.Getpagesize()),
		CPU: time.Duration(number(14)+number(15)) * hundredth}, true
}
