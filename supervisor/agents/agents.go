package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/builtin"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/gatekeepers"
	"github.com/jail-sandbox/jail/supervisor/models"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// Limits of awake agents.
const (
	// defaultAwake is the default of Options.Awake.
	defaultAwake = 256
	// sleepTime is how long an agent may take to end after a Sleep order before it is killed.
	sleepTime = 5 * time.Second
	// readyTime is how long the start of an agent may take. It includes compiling the module, which
	// takes minutes on a busy machine for a module as large as Python.
	readyTime = 10 * time.Minute
	// grace is how long after the deadline of an event a silent agent is killed. The agent's jail
	// enforces the deadline itself.
	grace = 5 * time.Second
)

// ErrNoJail is wrapped by errors of Jails that the agent did not cause. A later try may succeed.
var ErrNoJail = errors.New("no jail can be had")

// Jails runs agents, their tools and the programs that they load, in jails.
type Jails interface {
	// Run starts an agent, passes its frames through orders and returns when it has ended. It ends
	// the agent when ctx is done. The error wraps ErrNoJail if the agent did not cause it.
	Run(ctx context.Context, l Launch, orders Orders) (End, error)
	// Usage returns the resource usage of awake agents, by instance name.
	Usage(ctx context.Context) (map[string]Usage, error)
	// Load runs a program once. The error wraps ErrNoJail if the program did not cause it.
	Load(ctx context.Context, l Load) (Loaded, error)
	// Command runs a tool of an agent. The error wraps ErrNoJail if a later try may succeed, or is
	// a problem.Error.
	Command(ctx context.Context, c Command) (toolsession.Output, error)
	// Propose asks for approval to commit the files that an agent's tools changed. Discard drops
	// these changes. Both return errors as Command does.
	Propose(ctx context.Context, c Changes) (Proposed, error)
	Discard(ctx context.Context, c Changes) error
	// EndTools ends the tool session of an instance, if there is one.
	EndTools(ctx context.Context, instance string) error
	// Limits returns the limits of an agent under its policy and all that narrows it.
	Limits(ctx context.Context, l Launch) (Share, error)
}

// A Share is an amount of the resources that are divided among an agent and its facets.
type Share struct {
	// Memory is in bytes.
	Memory int64
	PIDs   int64
}

// Usage is the resource usage of an awake agent.
type Usage struct {
	// Memory is in bytes.
	Memory int64
	CPU    time.Duration
}

// A Launch tells Jails how to run an agent.
type Launch struct {
	Instance string
	AgentID  string
	Channel  string
	// Dir is the directory of the agent's files, State of its database.
	Dir, State string
	Manifest   manifest.Manifest
	// Class tells a facet which of its module's agents it is.
	Class string
	// Narrow are the policies that the parents of a facet asked for, as texts of policy files.
	Narrow []string
	// Share narrows the limits of an agent that has facets or is one. It is nil for other agents.
	Share *Share
}

// An End says how an agent's run ended.
type End struct {
	ExitCode int
	// Why is a sentence about the cause, such as a limit. It is empty after a normal end.
	Why string
	// Said is the end of the agent's standard error.
	Said string
}

// Options configure an Agents.
type Options struct {
	Store  *store.Store
	Jails  Jails
	Models models.Asker
	// Queue is the approval queue for actions that agents propose.
	Queue Queue
	// Gates are the owner's gatekeepers, or nil. RunOf returns the id of an awake instance's run.
	Gates *gatekeepers.Desk
	RunOf func(instance string) string
	// Record writes a step of an agent to the audit log. It may block.
	Record func(audit.AgentStep)
	// Folder is the directory of the user's agents, State the directory of their databases.
	Folder, State string
	// Host allows agents of the folder to run on the host with the rights of their user.
	Host bool
	Now  func() time.Time
	Log  *slog.Logger
	// Awake is how many agents may be awake at a time; 0 means defaultAwake.
	Awake int
	// FirstPause is the pause after the first failure, doubled after each further one. 0 means 1 s.
	FirstPause time.Duration
}

// Agents manages the agents of one user. Its methods may be called from several goroutines.
type Agents struct {
	// Store is the database. Callers change it only by methods of Agents.
	Store  *store.Store
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	// pulse wakes waiters when an instance has published or committed something.
	pulse  pulse
	alarms chan struct{}
	// proposals puts proposed actions into the approval queue.
	proposals *proposals
	turns     turns
	// problems are the agents of the folder that cannot be registered.
	problems problems
	// placing guards the files with the places of built-in agents.
	placing  sync.Mutex
	families families
	// work counts the goroutines that Close waits for.
	work sync.WaitGroup
}

// New returns the Agents of a user. It starts to wake the agents that have events waiting.
func New(o Options) (*Agents, error) {
	if o.Awake == 0 {
		o.Awake = defaultAwake
	}
	if o.FirstPause == 0 {
		o.FirstPause = time.Second
	}
	a := &Agents{Store: o.Store, o: o, alarms: make(chan struct{}, 1)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.proposals = newProposals(a)
	if err := errors.Join((facets{a}).finishDeletions(), clearLoads(o.State)); err != nil {
		a.cancel()
		return nil, err
	}
	a.turns = turns{all: map[int64]*turn{}, most: o.Awake, begin: a.begin}
	a.work.Go(a.fireAlarms)
	a.work.Go(a.proposals.run)
	if o.Gates != nil {
		a.work.Go(func() { o.Gates.Run(a.ctx, gates{a}.tell) })
	}
	err := o.Store.Ready(a.ctx, func(i store.Instance) error {
		if i.State != store.Failed {
			a.turns.want(i.ID, i.NotBefore.Sub(o.Now()))
		}
		return nil
	})
	if err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Retry moves a dead letter back to the inbox of the instance and returns its new event number.
func (a *Agents) Retry(i store.Instance, seq uint64) (uint64, error) {
	again, err := a.Store.Retry(i.ID, seq)
	if err == nil {
		a.wake(i.ID)
	}
	return again, err
}

// Usage returns the resource usage of awake instances, by name. On an error it logs a warning.
func (a *Agents) Usage(ctx context.Context) map[string]Usage {
	used, err := a.o.Jails.Usage(ctx)
	if err != nil {
		a.o.Log.Warn("what agents use cannot be read", "error", err)
	}
	return used
}

// Close asks all agents to sleep, kills those that do not in time, and waits until all have ended.
func (a *Agents) Close() {
	a.turns.close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.turns.work.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(sleepTime + time.Second):
	}
	a.cancel()
	<-ended
	a.work.Wait()
}

// Idle reports whether no agent is awake or about to be woken, no alarm is set, and no action of an
// agent or a gatekeeper waits for a decision.
func (a *Agents) Idle(ctx context.Context) (bool, error) {
	if a.turns.count() > 0 || a.o.Gates != nil && a.o.Gates.Waiting() > 0 {
		return false, nil
	}
	set, err := a.Store.HasAlarms(ctx)
	if err != nil || set {
		return false, err
	}
	asked, err := store.AsksOf(a.Store).Any(ctx)
	return !asked, err
}

// Send puts an event durably into the inbox of an instance, wakes it and returns the event number.
func (a *Agents) Send(to int64, e agent.Event) (uint64, error) {
	h := a.turns.hand(to)
	claimed := h.claim()
	seq, given, err := a.Store.Append(to, e, claimed)
	taken := claimed && h.give(given)
	if err == nil && !taken {
		a.wake(to)
	}
	return seq, err
}

// wake asks for a turn of each instance. A paused, failed or idle one does not run.
func (a *Agents) wake(ids ...int64) {
	for _, id := range ids {
		a.turns.want(id, 0)
	}
}

// begin does one turn of an instance: it runs until it sleeps. It returns the time until the next
// turn, never if there is none.
func (a *Agents) begin(t *turn) time.Duration {
	i, err := a.Store.Instance(a.ctx, t.id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return never
	case err != nil:
		a.o.Log.Error("an agent is not woken", "error", err)
		return time.Minute
	}
	asked := a.turns.asked(t)
	if !asked && ((facets{a}).rests(i) || i.State == store.Failed || i.State == store.Terminated ||
		i.Waiting == 0) {
		return never
	}
	if wait := i.NotBefore.Sub(a.o.Now()); wait > 0 && !asked {
		return wait
	}
	line, err := facets{a}.line(a.ctx, i)
	if err != nil {
		return a.failed(i, manifest.Manifest{}, cause{why: err.Error(),
			elsewhere: errors.Is(err, ErrNoJail)})
	}
	l := line[len(line)-1].launch
	m := l.Manifest
	if l.Share, err = a.families.enter(a.ctx, line, a.o.Jails.Limits); err != nil {
		if errors.Is(err, errCrowded) {
			facets{a}.makeRoom(line)
			if a.turns.setCrowded(t, true) {
				if err := a.Note(i, "warn", "waiting for its turn: "+err.Error()); err != nil {
					a.o.Log.Error("a line of an agent is not noted", "error", err)
				}
			}
			return crowdedPause
		}
		return a.failed(i, m, cause{why: err.Error(), elsewhere: errors.Is(err, ErrNoJail)})
	}
	a.turns.setCrowded(t, false)
	r := newRun(a, t, i, l)
	why := r.whole()
	a.families.leave(line)
	// The row may have changed while it ran.
	if i, err = a.Store.Instance(a.ctx, t.id); err != nil {
		return never
	}
	rests := facets{a}.rests(i)
	if rests {
		facets{a}.sleep(i)
	}
	if why != nil {
		return a.failed(i, m, *why)
	}
	if err := a.settle(i, r); err != nil {
		a.o.Log.Error("the state of an agent is not noted", "instance", i.Name, "error", err)
	}
	if i.Waiting > 0 && !rests {
		return 0
	}
	return never
}

// settle records that an instance sleeps after a run without a failure.
func (a *Agents) settle(i store.Instance, r *run) error {
	a.record(i, audit.AgentStep{Step: audit.AgentSlept, Reason: r.reason})
	if !i.NotBefore.IsZero() && i.Settled == r.from.Settled {
		// It handled no event, but did not fail either.
		if err := a.Store.SetFailures(i.ID, 0, time.Time{}, ""); err != nil {
			return err
		}
	}
	if i.State == store.Dormant || i.State == store.Terminated {
		return nil
	}
	return a.Store.SetState(i.ID, store.Dormant, "")
}

// record writes a step of an instance to the audit log.
func (a *Agents) record(i store.Instance, step audit.AgentStep) {
	if a.o.Record == nil {
		return
	}
	if known, err := a.Store.Agent(a.ctx, i.Agent); err == nil {
		step.Digest = known.Digest
	}
	step.ID, step.Instance = a.Store.AgentID(store.PathOf(i)), i.Name
	a.o.Record(step)
}

// StateOf returns the state of an instance: of its run while it is awake, else of the database.
func (a *Agents) StateOf(i store.Instance) string {
	if state := a.turns.state(i.ID); state != "" {
		return state
	}
	return i.State
}

// Pause stops an agent from being woken, until Resume. A running instance first ends its event, and
// the facets that the event calls run on.
func (a *Agents) Pause(ctx context.Context, name string) error {
	return a.eachOf(ctx, name, func(i store.Instance) error {
		var err error
		if i.Parent == 0 {
			err = a.Store.SetPaused(i.ID, true)
		}
		a.record(i, audit.AgentStep{Step: audit.AgentPaused})
		a.turns.tell(i.ID, signal{sleep: "paused"})
		return err
	})
}

// Resume allows an agent that was paused or has failed to be woken again, and resets its failures.
func (a *Agents) Resume(ctx context.Context, name string) error {
	return a.eachOf(ctx, name, func(i store.Instance) error {
		a.record(i, audit.AgentStep{Step: audit.AgentResumed})
		err := errors.Join(a.Store.SetPaused(i.ID, false),
			a.Store.SetFailures(i.ID, 0, time.Time{}, ""))
		if i.State == store.Failed {
			err = errors.Join(err, a.Store.SetState(i.ID, store.Dormant, ""))
		}
		a.wake(i.ID)
		return err
	})
}

// revive makes a Failed instance dormant and resets its failures.
func (a *Agents) revive(i store.Instance) error {
	if i.State != store.Failed {
		return nil
	}
	return errors.Join(a.Store.SetFailures(i.ID, 0, i.NotBefore, ""),
		a.Store.SetState(i.ID, store.Dormant, ""))
}

// eachOf calls f for each instance of an agent, even after an error, and joins the errors.
func (a *Agents) eachOf(ctx context.Context, name string, f func(store.Instance) error) error {
	all, err := a.Of(ctx, name)
	for _, i := range all {
		err = errors.Join(err, f(i))
	}
	return err
}

// Of returns the instances of an agent. The error wraps store.ErrNotFound or ErrAvailable.
func (a *Agents) Of(ctx context.Context, name string) (all []store.Instance, err error) {
	alive := false
	err = a.Store.Instances(ctx, name, func(i store.Instance) error {
		all = append(all, i)
		alive = alive || i.State != store.Terminated
		return nil
	})
	if err != nil || alive {
		return all, err
	}
	// Only terminated instances or none: check that the agent exists.
	if _, err := a.Store.Agent(ctx, name); err != nil {
		if _, ok := builtin.Find(name); ok && errors.Is(err, store.ErrNotFound) {
			err = ErrAvailable
		}
		return nil, fmt.Errorf("agent %q: %w", name, err)
	}
	return all, nil
}

// alarmLook is how often alarms are compared with the clock. Timers of this process do not notice
// when the clock is set or the host was suspended.
const alarmLook = 5 * time.Second

// fireAlarms fires due alarms and wakes their instances, until Close.
func (a *Agents) fireAlarms() {
	for {
		woken, next, err := a.Store.Fire()
		if err != nil {
			a.o.Log.Error("alarms cannot be read", "error", err)
			next = a.o.Now().Add(alarmLook)
		}
		a.wake(woken...)
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(min(max(next.Sub(a.o.Now()), 0), alarmLook))
		}
		select {
		case <-timer:
		case <-a.alarms:
		case <-a.ctx.Done():
			return
		}
	}
}

// nudge wakes the goroutine that waits on c, a channel with a buffer of one. It does not block.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pulse wakes goroutines that wait for a change of an instance, or of any instance with Anyone.
type pulse struct {
	mu   sync.Mutex
	next map[int64]chan struct{}
}

// Anyone stands for all instances.
const Anyone = 0

// wait returns a channel that is closed at the next beat.
func (p *pulse) wait(of int64) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = map[int64]chan struct{}{}
	}
	c := p.next[of]
	if c == nil {
		c = make(chan struct{})
		p.next[of] = c
	}
	return c
}

// beat wakes the goroutines that wait for one of these ids.
func (p *pulse) beat(of ...int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range of {
		if c := p.next[id]; c != nil {
			close(c)
			delete(p.next, id)
		}
	}
}

// Quiet reports whether an event of an instance was lately committed in the agent's database and
// has no effects. It may be true just before the event leaves the inbox. If it is false, the Store
// says whether the event is committed.
func Quiet(a *Agents, of int64, seq uint64) bool { return a.turns.isQuiet(of, seq) }

// Changed returns a channel that is closed when an instance, or any with Anyone, publishes or
// commits something.
func (a *Agents) Changed(of int64) <-chan struct{} { return a.pulse.wait(of) }
