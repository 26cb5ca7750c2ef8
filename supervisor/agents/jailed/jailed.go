// Package jailed is jail-agentd's client of jaild: it runs agents in jails and sends requests to
// models through jails. It has the rights of the agents' user, and jaild decides on its requests.
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

// maxSaid is how many bytes of the end of an agent's standard error are kept.
const maxSaid = 2 << 10

// filesTarget is the directory of a script agent's files in its jail.
const filesTarget = runners.FilesTarget

// A Jaild runs agents through jaild. It implements agents.Jails.
type Jaild struct {
	options client.Options
	// runs are the run ids of awake agents, by instance name.
	runs sync.Map
}

// New returns a Jaild. It connects to jaild only when needed.
func New(o client.Options) *Jaild {
	o.Lasting = true
	return &Jaild{options: o}
}

// client connects to jaild, and starts it if it is not running and no service manager starts it.
// The caller closes the client.
func (j *Jaild) client(ctx context.Context) (*client.Client, error) {
	return client.Connect(ctx, j.options)
}

// ask calls f with a client. The error wraps agents.ErrNoJail if a later try may succeed.
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

// passing reports whether a request with this error code may succeed later.
func passing(code string) bool {
	return code == problem.Failed || code == problem.Ending || code == problem.Busy
}

// Run runs an agent as a run of jaild, whose standard streams carry the frames, until its end.
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

// Limits returns the limits of an agent's run, as jaild plans it.
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

// Usage returns the resource usage of awake agents, by instance name.
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

// requestOf returns the request for an agent's run, and creates the directory of its database.
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

// bare returns a request in dir, without a command, under the agent's narrowed policy.
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

// filesOf returns the contents of an agent's files by path. It returns nil if they are too large
// for a message or not all are regular files.
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

// errLarge: the files of an agent are too large for a message and have to be mounted.
var errLarge = errors.New("too large for a message")

// readFiles adds a read-only mount of the request's directory to all its policies.
func readFiles(req *message.Request, agent string) {
	if req.Policy == "" {
		req.PolicyName = "agent " + agent
	}
	req.Policy, req.Profile = withFiles(*req, req.Dir), ""
	for i := range req.Narrow {
		req.Narrow[i].Policy += filesMount(req.Dir)
	}
}

// withFiles returns the policy text of the request with a read-only mount of dir.
func withFiles(req message.Request, dir string) string {
	text := req.Policy
	if text == "" {
		text = fmt.Sprintf("policy = 1\nname = %q\ninclude = [%q]\n", manifestPolicy, req.Profile)
	}
	return text + filesMount(dir)
}

// filesMount returns the policy text for a read-only mount of an agent's files.
func filesMount(dir string) string {
	return fmt.Sprintf("\n[[mount]]\nsource = %q\ntarget = %q\naccess = \"read\"\n", dir,
		filesTarget)
}

// manifestPolicy is the name of policies that this package generates.
const manifestPolicy = "agent-files"

// inJail returns args with each path of an existing file in dir replaced by its path in the jail.
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

// Sender returns a sender of HTTP requests through jails.
func (j *Jaild) Sender() fetchrun.Sender { return fetchrun.Sender{Client: j.client} }

// RunOf returns the run id of an instance, empty if it is not awake.
func (j *Jaild) RunOf(instance string) string {
	id, _ := j.runs.Load(instance)
	text, _ := id.(string)
	return text
}

// Actions returns jaild's approval queue and a function that closes the connection.
func (j *Jaild) Actions(ctx context.Context) (gatekeepers.Queue, func(), error) {
	c, err := j.client(ctx)
	if err != nil {
		return nil, nil, err
	}
	return c.Approvals(), func() { c.Close() }, nil
}
