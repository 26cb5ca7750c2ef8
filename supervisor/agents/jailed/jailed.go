// Package jailed runs agents in jails, and asks models through jails: it is the client of jaild that
// jail-agentd is. Whatever it asks for is asked for as the user whose agents they are, and jaild
// decides on it.
package jailed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/fetchrun"
	"github.com/jail-sandbox/jail/supervisor/gatekeepers"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// maxSaid is how much of an agent's standard error is kept, its end.
const maxSaid = 2 << 10

// filesTarget is where the files of an agent that is a script are in its jail.
const filesTarget = runners.FilesTarget

// A Jaild runs agents with the help of jaild.
type Jaild struct {
	options client.Options
	// runs are the ids of the runs, by the names of their instances.
	runs sync.Map
}

// New returns a Jaild. It connects when it is asked for something.
func New(o client.Options) *Jaild {
	o.Lasting = true
	return &Jaild{options: o}
}

// client returns a client of a daemon that answers now. One that is gone is followed by the next,
// which is started where nobody else does that. The caller closes it.
func (j *Jaild) client(ctx context.Context) (*client.Client, error) {
	return client.Connect(ctx, j.options)
}

// ask calls f with a client. An error that can pass wraps agents.ErrNoJail.
func (j *Jaild) ask(ctx context.Context, f func(*client.Client) error) error {
	c, err := j.client(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", agents.ErrNoJail, err)
	}
	defer c.Close()
	err = f(c)
	if e, ok := errors.AsType[*problem.Error](err); err != nil && (!ok || passing(e.Code)) {
		err = fmt.Errorf("%w: %w", agents.ErrNoJail, err)
	}
	return err
}

// passing reports whether the same request can succeed later.
func passing(code string) bool {
	return code == problem.Failed || code == problem.Ending || code == problem.Busy
}

// Run starts an agent as a run of jaild's whose standard streams carry its frames.
func (j *Jaild) Run(ctx context.Context, l agents.Launch, o agents.Orders) (agents.End, error) {
	c, err := j.client(ctx)
	if err != nil {
		return agents.End{}, fmt.Errorf("%w: %w", agents.ErrNoJail, err)
	}
	defer c.Close()
	req, err := requestOf(l)
	if err != nil {
		return agents.End{}, err
	}
	j.runs.Store(l.Instance, req.ID)
	defer j.runs.Delete(l.Instance)
	said := &agents.Tail{Most: maxSaid}
	res, err := api.RunPassed(ctx, c.Client, req, o.In, o.Out, said)
	end := agents.End{ExitCode: res.ExitCode, Said: said.String()}
	switch {
	case ctx.Err() != nil:
		return end, context.Cause(ctx)
	case err != nil:
		return end, fmt.Errorf("%w: %w", agents.ErrNoJail, err)
	case res.Error != nil && (res.Error.Code == problem.Ending || res.Error.Code == problem.Busy):
		return end, fmt.Errorf("%w: %w", agents.ErrNoJail, res.Error)
	case res.Error != nil:
		return end, res.Error
	case res.Limit != nil:
		end.Why = fmt.Sprintf("it reached the limit %s (%d)", res.Limit.Name, res.Limit.Limit)
	case res.Trap != nil:
		end.Why = fmt.Sprintf("its module was ended: %s", res.Trap.Sentence)
	case res.Signal != nil:
		end.Why = "it was ended by " + *res.Signal
	}
	return end, nil
}

// Limits returns what the run of an agent may have, as the plan of it says.
func (j *Jaild) Limits(ctx context.Context, l agents.Launch) (agents.Share, error) {
	c, err := j.client(ctx)
	if err != nil {
		return agents.Share{}, fmt.Errorf("%w: %w", agents.ErrNoJail, err)
	}
	defer c.Close()
	req, err := requestOf(l)
	if err != nil {
		return agents.Share{}, err
	}
	plan, err := c.Plan(ctx, req)
	if e, ok := errors.AsType[*problem.Error](err); ok && e.Code != problem.Ending &&
		e.Code != problem.Busy {
		return agents.Share{}, e
	} else if err != nil {
		return agents.Share{}, fmt.Errorf("%w: %w", agents.ErrNoJail, err)
	}
	return agents.Share{Memory: plan.Cgroup.Memory, PIDs: plan.Cgroup.PIDs}, nil
}

// Usage returns what the agents that are awake use.
func (j *Jaild) Usage(ctx context.Context) (map[string]agents.Usage, error) {
	var runs []message.RunInfo
	if err := j.ask(ctx, func(c *client.Client) (err error) {
		runs, err = c.Runs(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	of := map[string]string{}
	for instance, id := range j.runs.Range {
		of[id.(string)] = instance.(string)
	}
	used := map[string]agents.Usage{}
	for _, r := range runs {
		if instance, ok := of[r.ID]; ok && r.Usage != nil {
			used[instance] = agents.Usage{Memory: r.Usage.MemoryPeak,
				CPU: time.Duration(r.Usage.CPUMS) * time.Millisecond}
		}
	}
	return used, nil
}

// requestOf is the run of an agent, for whose database it makes the directory.
func requestOf(l agents.Launch) (message.Request, error) {
	m := l.Manifest
	req, err := bare(l, l.Dir)
	if err == nil {
		err = os.MkdirAll(l.State, 0o700)
	}
	if err != nil {
		return req, err
	}
	req.Agent = &message.Agent{ID: l.AgentID, Instance: l.Instance, Bindings: m.Bindings(),
		Facet: strings.Contains(l.AgentID, "/"), Network: m.Capabilities.Network, State: l.State,
		Storage: m.Storage, DeadlineMS: m.Wake.Deadline.Milliseconds()}
	args := m.Args
	switch {
	case len(m.Native) > 0:
		req.Tool, args = m.Native[0], m.Native[1:]
		req.Agent.Native = true
	case !m.Script():
		req.Tool = filepath.Join(l.Dir, m.Module)
	default:
		req.Tool = m.Module
	}
	if m.Script() {
		if req.Files, err = filesOf(l.Dir); err != nil {
			return req, err
		}
		if req.Files == nil || len(m.Native) > 0 {
			req.Files = nil
			readFiles(&req, m.Name)
		}
		args = inJail(l.Dir, args)
	}
	req.Args = runners.Texts(args)
	return req, nil
}

// bare is a run in a directory under the policy of an agent and all that narrows it, which runs
// nothing.
func bare(l agents.Launch, dir string) (message.Request, error) {
	m := l.Manifest
	req := message.Request{ID: string(jail.NewID()), Dir: dir, NoWorkspace: true,
		Limits: m.Limits, Profile: m.Profile}
	if m.Policy != "" {
		text, err := os.ReadFile(filepath.Join(l.Dir, m.Policy))
		if err != nil {
			return req, err
		}
		req.Profile, req.Policy, req.PolicyName = "", string(text), m.Policy
	}
	if l.Share != nil {
		req.Limits = append(slices.Clone(req.Limits), "memory="+
			policy.Bytes.Format(l.Share.Memory), fmt.Sprintf("pids=%d", l.Share.PIDs))
	}
	for i, text := range l.Narrow {
		req.Narrow = append(req.Narrow, message.Narrow{Policy: text,
			Name: fmt.Sprintf("facet %d of %s", i+1, l.AgentID)})
	}
	return req, nil
}

// filesOf returns the files of an agent, nil if there are too many for a message or some are no files.
func filesOf(dir string) (map[string][]byte, error) {
	files, size := map[string][]byte{}, int64(0)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if size += info.Size(); !info.Mode().IsRegular() || size > runners.MaxFilesBytes ||
			len(files) == runners.MaxFiles {
			return errLarge
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			files[filepath.ToSlash(name)], err = os.ReadFile(path)
		}
		return err
	})
	if errors.Is(err, errLarge) || err == nil && runners.CheckFiles(files) != nil {
		return nil, nil
	}
	return files, err
}

// errLarge says that the files of an agent are mounted.
var errLarge = errors.New("too large for a message")

// readFiles lets a run read the files of its directory, under all of its policies.
func readFiles(req *message.Request, agent string) {
	if req.Policy == "" {
		req.PolicyName = "agent " + agent
	}
	req.Policy, req.Profile = withFiles(*req, req.Dir), ""
	for i := range req.Narrow {
		req.Narrow[i].Policy += filesMount(req.Dir)
	}
}

// withFiles is the policy of the request with the files of the agent to read.
func withFiles(req message.Request, dir string) string {
	text := req.Policy
	if text == "" {
		text = fmt.Sprintf("policy = 1\nname = %q\ninclude = [%q]\n", manifestPolicy, req.Profile)
	}
	return text + filesMount(dir)
}

// filesMount lets a policy read the files of an agent.
func filesMount(dir string) string {
	return fmt.Sprintf("\n[[mount]]\nsource = %q\ntarget = %q\naccess = \"read\"\n", dir,
		filesTarget)
}

// manifestPolicy is the name of the policies that this package writes.
const manifestPolicy = "agent-files"

// inJail returns the arguments of a script with the files of the agent as they are named in its
// jail.
func inJail(dir string, args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = arg
		if !filepath.IsLocal(arg) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, arg)); err == nil {
			out[i] = filesTarget + "/" + filepath.ToSlash(arg)
		}
	}
	return out
}

// Sender returns what sends HTTP requests by jails.
func (j *Jaild) Sender() fetchrun.Sender { return fetchrun.Sender{Client: j.client} }

// RunOf returns the id of the run of an instance that is awake, empty for none.
func (j *Jaild) RunOf(instance string) string {
	id, _ := j.runs.Load(instance)
	text, _ := id.(string)
	return text
}

// Actions returns jaild's approval queue, and what closes the connection to it.
func (j *Jaild) Actions(ctx context.Context) (gatekeepers.Queue, func(), error) {
	c, err := j.client(ctx)
	if err != nil {
		return nil, nil, err
	}
	return c.Approvals(), func() { c.Close() }, nil
}
