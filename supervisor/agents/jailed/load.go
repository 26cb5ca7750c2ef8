package jailed

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// narrowPolicy narrows the policy of an agent for its loaded programs and tools: no files except
// the workspace and a tmpfs at /tmp, no network, no programs of the host.
const narrowPolicy = `policy = 1
name = "narrow"
[workspace]
access = %s
[[mount]]
target = "/tmp"
access = "tmpfs"
[tools]
allow = %s
%s
[env]
set = { LANG = "C.UTF-8" }
allow = ["*"]
[syscalls]
groups = ["wasi"]
[limits]
cpus = 64
memory = "1TiB"
pids = 100000
`

// loadLimits are further limits of loaded programs. cpu_time does not depend on the event's
// deadline, so that all programs of an agent can use the same prewarmed jails; wall is the
// deadline.
const loadLimits = `wall = %q
cpu_time = %q
open_files = 256
output = %q
workspace = "1MiB"
workspace_files = 1
file_size = "64MiB"
`

// maxLoadTime bounds the run time of a loaded program.
const maxLoadTime = time.Minute

// For programs with bindings: loadFrames bounds their output and calls together, loadState is the
// minimum size of an agent's state directory, which they do not use.
const (
	loadFrames = "16MiB"
	loadState  = 1 << 20
)

// Load runs a program once, as a run of jaild, and returns its result.
func (j *Jaild) Load(ctx context.Context, l agents.Load) (agents.Loaded, error) {
	var done agents.Loaded
	c, err := j.client(ctx)
	if err != nil {
		return done, fmt.Errorf("%w: %w", agents.ErrNoJail, err)
	}
	defer c.Close()
	req, err := loadRequest(l)
	if err != nil {
		return done, err
	}
	stdout := stdio.Kept{Most: agents.MaxLoadOutput}
	stderr := stdio.Kept{Most: agents.MaxLoadOutput}
	var res message.Result
	if l.Orders != nil {
		// The frames contain the program's output. Other output is from jail-init.
		ended := make(chan struct{})
		stopped := killed(ctx, c, req.ID, l.Enough, ended)
		res, err = api.RunPassed(stopped, c.Client, req, l.Orders.In, l.Orders.Out, &stderr)
		close(ended)
	} else {
		res, err = c.Run(ctx, req, bytes.NewReader(nil), &stdout, &stderr)
	}
	switch {
	case err != nil:
		return done, fmt.Errorf("%w: %w", agents.ErrNoJail, err)
	case res.Error != nil && (res.Error.Code == problem.Ending || res.Error.Code == problem.Busy):
		return done, fmt.Errorf("%w: %w", agents.ErrNoJail, res.Error)
	case res.Error != nil:
		return done, res.Error
	}
	done.ExitCode, done.Stdout, done.Stderr = res.ExitCode, stdout.String(), stderr.String()
	if res.Limit != nil {
		done.Limit = res.Limit.Name
	}
	if res.Trap != nil {
		done.Trap = res.Trap.Sentence
	}
	done.Usage.WallMS, done.Usage.CPUMS = res.Usage.WallMS, res.Usage.CPUMS
	done.Usage.MemoryPeak = res.Usage.MemoryPeak
	return done, nil
}

// killed kills a run when enough is closed before ended. It returns a context that is cancelled if
// the daemon cannot be told.
func killed(ctx context.Context, c *client.Client, id string, enough, ended <-chan struct{}) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-enough:
			if err := c.Kill(ctx, id, int(syscall.SIGKILL)); err != nil {
				cancel(err)
			}
			<-ended
		case <-ended:
		}
		cancel(nil)
	}()
	return ctx
}

func loadRequest(l agents.Load) (message.Request, error) {
	of := l.Launch
	of.Share = &l.Share
	req, err := bare(of, l.Dir)
	if err != nil {
		return req, err
	}
	output, bindings := policy.Bytes.Format(agents.MaxLoadOutput), ""
	if l.Orders != nil {
		names := []string{agent.Host}
		granted := `"` + policy.BindingHost + `"`
		if l.Models {
			names, granted = append(names, agent.AI), granted+`, "`+policy.BindingAI+`"`
		}
		req.Agent = &message.Agent{ID: of.AgentID, Instance: of.Instance, Bindings: names, Once: true,
			State: l.State, Storage: loadState, DeadlineMS: maxLoadTime.Milliseconds()}
		// Calls and frames count as output, too. jail-agentd bounds the program's own output.
		output, bindings = loadFrames, "[agent]\nbindings = ["+granted+"]\n"
	}
	wall := min(max(l.Deadline.Truncate(time.Millisecond), time.Second), maxLoadTime).String()
	req.Env = l.Env
	req.Narrow = append(req.Narrow, message.Narrow{Name: "load of " + of.AgentID,
		Policy: fmt.Sprintf(narrowPolicy, `"none"`, `["python/*", "js/*"]`, `modules = ["**"]`) +
			fmt.Sprintf(loadLimits, wall, maxLoadTime, output) + bindings})
	switch path.Ext(l.Main) {
	case ".wasm":
		req.Tool = filepath.Join(l.Dir, filepath.FromSlash(l.Main))
		return req, nil
	case ".py":
		req.Tool = "python/python3"
	default:
		req.Tool = "js/qjs"
	}
	req.Args = runners.Texts{filesTarget + "/" + l.Main}
	if req.Files = l.Files; l.Files == nil {
		readFiles(&req, of.Manifest.Name)
	}
	return req, nil
}
