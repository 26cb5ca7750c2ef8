package prepare

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Bounds of an agent's storage, in bytes, and of its deadline.
const (
	minStorage  = 1 << 20
	maxStorage  = 1 << 30
	maxDeadline = 24 * time.Hour
)

// An Agent is the agent of a job.
type Agent struct {
	message.Agent
	// Granted are the bindings that the request asks for and the policy grants, in the order of
	// agent.Bindings.
	Granted []string
	dir     database
}

// A database is the directory of an agent's database, and its tree as launch.Clone returns it.
type database struct {
	state jail.State
	tree  *os.File
}

// Dir returns the directory of the database, as launch.Clone returns it, or nil.
func (a *Agent) Dir() *os.File {
	if a == nil {
		return nil
	}
	return a.dir.tree
}

// bindings maps the names of bindings to their names in policies.
var bindings = map[string]string{agent.PubSub: policy.BindingPubSub,
	agent.Storage: policy.BindingStorage, agent.AI: policy.BindingAI,
	agent.Host: policy.BindingHost}

var instanceName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^agent-[A-Za-z0-9][A-Za-z0-9._-]{0,254}$`)
})

// asAgent checks the agent of the request and opens its state. It returns nil if the job is no
// agent.
func (j *Job) asAgent() (*Agent, error) {
	a := j.Req.Agent
	if a == nil {
		return nil, nil
	}
	for _, check := range []func(message.Agent) error{j.checkKind, j.checkID, checkBounds} {
		if err := check(*a); err != nil {
			return nil, err
		}
	}
	out := &Agent{Agent: *a}
	granted := j.Policy.Policy().Agent
	for _, b := range agent.Bindings {
		if slices.Contains(a.Bindings, b) && granted.Has(bindings[b]) {
			out.Granted = append(out.Granted, b)
		}
	}
	if !slices.Contains(out.Granted, agent.Host) {
		return nil, problem.New(problem.Refused, "agent %s is not allowed: the policy does not grant "+
			"the binding %s, or the request does not ask for %s", a.ID, policy.BindingHost, agent.Host).
			WithDenied("policy", "agent "+a.ID, "agent.bindings = "+granted.String()).
			WithHint("run it with --profile agent, or with a policy whose [agent] bindings grant it")
	}
	return out, j.openState(out)
}

// checkKind refuses requests that no agent can run as: in a session, a script, with a terminal or
// workspace.
func (j *Job) checkKind(message.Agent) error {
	what := ""
	switch {
	case j.In != nil || j.Holds.For > 0:
		what = "in a session"
	case j.Req.Script != nil:
		what = "as a script"
	case j.Req.Terminal != nil:
		what = "with a terminal"
	case !j.Req.NoWorkspace && j.Policy.Policy().Workspace.Access != policy.WorkspaceNone:
		what = "with a workspace"
	default:
		return nil
	}
	return problem.New(problem.Usage, "an agent does not run %s", what)
}

// checkID refuses an agent whose id belongs to another user.
func (j *Job) checkID(a message.Agent) error {
	if !instanceName().MatchString(a.Instance) {
		return problem.New(problem.Usage, "agent instance %q: want agent-NAME-CHANNEL", a.Instance)
	}
	if !j.Caller.OwnsAgent(a.ID) {
		return problem.New(problem.Refused, "agent id %q is not one of yours: want agent:USER:NAME, "+
			"where NAME has lower-case letters, digits and hyphens", a.ID).
			WithHint("USER is who runs the agent")
	}
	return nil
}

func checkBounds(a message.Agent) error {
	for _, b := range a.Bindings {
		if _, ok := bindings[b]; !ok {
			return problem.New(problem.Usage, "binding %q: there are %s", b,
				strings.Join(agent.Bindings, ", "))
		}
	}
	most := int64(maxDeadline / time.Millisecond)
	switch {
	case a.Storage < minStorage || a.Storage > maxStorage:
		return problem.New(problem.Usage, "storage of the agent: want %s to %s",
			policy.Bytes.Format(minStorage), policy.Bytes.Format(maxStorage))
	case a.DeadlineMS < 1 || a.DeadlineMS > most:
		return problem.New(problem.Usage, "deadline_ms of the agent: want 1 to %d", most)
	case !filepath.IsAbs(a.State) || filepath.Clean(a.State) != a.State:
		return problem.New(problem.Usage, "state %q of the agent is not a clean absolute path",
			a.State)
	}
	return nil
}

// openState opens the directory of the database with the caller's rights. A directory that holds
// anything else is refused: an attacker in the process that hosts the agent can write there.
func (j *Job) openState(a *Agent) error {
	f, err := j.Caller.OpenDir(a.State)
	switch {
	case problem.Short(err) != nil:
		return err
	case err != nil:
		return problem.New(problem.NotFound, "state of the agent: %s",
			problem.Describe(err)).
			WithHint("make the directory; it is opened with your own rights")
	}
	defer f.Close()
	var names []string
	if err := j.Caller.Do(func() (err error) {
		names, err = f.Readdirnames(math.MaxUint8)
		return err
	}); err != nil && len(names) == 0 && !errors.Is(err, io.EOF) {
		return problem.New(problem.Failed, "state of the agent: %w", err)
	}
	for _, name := range names {
		if !slices.Contains(stateFiles, name) {
			return problem.New(problem.Refused,
				"state %s of the agent holds %q, which is no part of its database", a.State, name).
				WithHint("an agent has a directory of its own")
		}
	}
	source, err := sourceOf(f, j.Caller)
	if err == nil {
		a.dir.state = jail.State{Source: *source, Size: a.Storage}
		a.dir.tree, err = launch.Clone(f)
	}
	if err != nil {
		return problem.New(problem.Failed, "state of the agent: %w", err)
	}
	return nil
}

// stateFiles are the only files that the directory of a database may hold.
var stateFiles = []string{"state.db", "state.db-wal", "state.db-shm", "state.db-journal"}

// agentState returns the agent's state for the plan, or nil.
func (j *Job) agentState() *jail.State {
	if j.Host.Agent == nil {
		return nil
	}
	return &j.Host.Agent.dir.state
}

// agentOrder returns the agent's part of the order, or nil.
func (j *Job) agentOrder() *runners.Agent {
	a := j.Host.Agent
	if a == nil {
		return nil
	}
	o := &runners.Agent{ID: a.ID, Bindings: a.Granted, Dir: jail.AgentDir, Size: a.Storage,
		DeadlineNanos: a.DeadlineMS * int64(time.Millisecond), Once: a.Once, Imports: a.imports()}
	if j.Tool.Native != "" {
		l := j.Plan.GuestLandlock()
		o.Landlock = &l
		o.Listen = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), jail.AgentPort)
	}
	return o
}

// imports returns the bindings that the module may import: the granted ones; all for a facet, which
// runs the module of its agent; and only the models for a program that runs once.
func (a *Agent) imports() []string {
	switch {
	case a.Once:
		return slices.DeleteFunc(slices.Clone(a.Granted),
			func(b string) bool { return b != agent.AI })
	case a.Facet:
		return agent.Bindings
	}
	return a.Granted
}

// mayBind refuses a module that imports a binding which the run does not have. a is nil if the run
// is no agent.
func (t *Tool) mayBind(a *Agent) error {
	for _, name := range t.Imports {
		module, _, _ := strings.Cut(name, ".")
		binding := wasi.BindingOf(module)
		if binding == "" || a != nil && slices.Contains(a.imports(), binding) {
			continue
		}
		t.module.Close()
		t.module = nil
		rule := fmt.Sprintf("the binding %s is not granted", binding)
		hint := "name " + binding + " in the capabilities of the manifest, and run it under a policy " +
			"whose [agent] bindings grant " + bindings[binding]
		if a == nil {
			rule = "only agents have bindings"
			hint = "jail agent add installs an agent"
		}
		return problem.New(problem.Refused, "tool %s imports %s, and %s", t.Name, module, rule).
			WithDenied("wasi", "import "+module, rule).
			WithHint(hint)
	}
	return nil
}
