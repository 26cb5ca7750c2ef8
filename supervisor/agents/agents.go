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

// Bounds of what is awake.
const (
	// defaultAwake is how many agents are awake at one time.
	defaultAwake = 256
	// sleepTime is how long an agent has for its onSleep; then it is killed.
	sleepTime = 5 * time.Second
	// readyTime is how long a jail may take to start its agent. Its module is compiled first, which
	// takes minutes on a busy machine if it is as large as Python.
	readyTime = 10 * time.Minute
	// grace is how long after the deadline of an event, which the agent's jail enforces, an agent
	// that says nothing is killed.
	grace = 5 * time.Second
)

// ErrNoJail is wrapped by errors of a Jails that are no fault of the agent's: it can be run later.
var ErrNoJail = errors.New("no jail can be had")

// A Jails runs agents in jails.
type Jails interface {
	// Run starts an agent, carries its frames and returns when it has ended. When ctx is done it
	// ends the agent. The error wraps ErrNoJail if the agent has nothing to do with it.
	Run(ctx context.Context, l Launch, orders Orders) (End, error)
	// Usage returns what the runs use, by the names of the instances.
	Usage(ctx context.Context) (map[string]Usage, error)
	// Load runs a program once. The error wraps ErrNoJail if the program has nothing to do with it.
	Load(ctx context.Context, l Load) (Loaded, error)
	// Command runs a tool of an agent's. The error wraps ErrNoJail if it can be run later, or is of
	// the type problem.Error.
	Command(ctx context.Context, c Command) (toolsession.Output, error)
	// Propose proposes to commit what the tools of an agent changed, and Discard throws that away.
	// Their errors are as those of Command.
	Propose(ctx context.Context, c Changes) (Proposed, error)
	Discard(ctx context.Context, c Changes) error
	// EndTools ends what the tools of an instance have left, if there is something.
	EndTools(ctx context.Context, instance string) error
	// Limits returns what an agent may have under its policy and all that narrows it.
	Limits(ctx context.Context, l Launch) (Share, error)
}

// A Share is what jails may have together, of what is divided among an agent and its facets.
type Share struct {
	// Memory is in bytes.
	Memory int64
	PIDs   int64
}

// Usage is what an awake agent uses.
type Usage struct {
	// Memory is in bytes.
	Memory int64
	CPU    time.Duration
}

// A Launch is what a jail must know of an agent.
type Launch struct {
	Instance string
	AgentID  string
	Channel  string
	// Dir holds the agent's files, State its database.
	Dir, State string
	Manifest   manifest.Manifest
	// Class is which of the agents of its module a facet is.
	Class string
	// Narrow are the policies that the parents of a facet asked for, each the text of a file.
	Narrow []string
	// Share narrows the limits of an agent that has facets, or is one; nil does not.
	Share *Share
}

// An End says how an agent's run ended.
type End struct {
	ExitCode int
	// Why is a sentence about the cause, such as a limit, empty for an ordinary end.
	Why string
	// Said is the last that the agent wrote to its standard error.
	Said string
}

// Options are what an Agents needs.
type Options struct {
	Store  *store.Store
	Jails  Jails
	Models models.Asker
	// Queue is where what agents propose waits for a decision.
	Queue Queue
	// Gates has the gatekeepers; nil for none. RunOf returns the run of an instance that is awake.
	Gates *gatekeepers.Desk
	RunOf func(instance string) string
	// Record puts a step of an agent into the log of jail. It may block.
	Record func(audit.AgentStep)
	// Folder is where the agents of the user are, State where their databases are.
	Folder, State string
	// Host lets agents of the folder have the rights of their user: it is the host's own.
	Host bool
	Now  func() time.Time
	Log  *slog.Logger
	// Awake is how many agents are awake at one time; 0 is defaultAwake.
	Awake int
	// FirstPause is the pause after a failure, which doubles; 0 is a second.
	FirstPause time.Duration
}

// Agents are those of one user. Its methods may be called from several goroutines.
type Agents struct {
	// Store is the database; what is changed in it is to be changed by methods of Agents.
	Store  *store.Store
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	// pulse beats when something was published or committed.
	pulse  pulse
	alarms chan struct{}
	// proposals brings what agents propose into the queue.
	proposals *proposals
	turns     turns
	// problems are those of the folder.
	problems problems
	// placing is held while the places of a built-in agent are read and written.
	placing  sync.Mutex
	families families
	// work are the goroutines that Close waits for.
	work sync.WaitGroup
}

// New returns the Agents of a user, who begins to wake those for whom events wait.
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

// Retry delivers a dead letter again, under a new number.
func (a *Agents) Retry(i store.Instance, seq uint64) (uint64, error) {
	again, err := a.Store.Retry(i.ID, seq)
	if err == nil {
		a.wake(i.ID)
	}
	return again, err
}

// Usage returns what the awake instances use, by their names, as it is measured from
// outside.
func (a *Agents) Usage(ctx context.Context) map[string]Usage {
	used, err := a.o.Jails.Usage(ctx)
	if err != nil {
		a.o.Log.Warn("what agents use cannot be read", "error", err)
	}
	return used
}

// Close lets all agents sleep, kills those that do not in time, and returns when all have ended.
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

// Idle reports whether no agent is awake or about to be, no alarm is set, no agent waits for a
// decision, and no action of a gatekeeper waits.
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

// Send puts an event durably into the inbox of an instance, and wakes it.
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

// wake has the instances run that are not paused and have not failed, when there is something for
// them to do.
func (a *Agents) wake(ids ...int64) {
	for _, id := range ids {
		a.turns.want(id, 0)
	}
}

// begin is one turn of an instance: it runs until it sleeps. It returns when the instance wants
// another turn, a negative time for not at all.
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

// settle notes that an instance sleeps after a run without a failure.
func (a *Agents) settle(i store.Instance, r *run) error {
	a.record(i, audit.AgentStep{Step: audit.AgentSlept, Reason: r.reason})
	if !i.NotBefore.IsZero() && i.Settled == r.from.Settled {
		// It slept without an event: it did not fail, which is all that is known.
		if err := a.Store.SetFailures(i.ID, 0, time.Time{}, ""); err != nil {
			return err
		}
	}
	if i.State == store.Dormant || i.State == store.Terminated {
		return nil
	}
	return a.Store.SetState(i.ID, store.Dormant, "")
}

// record puts a step of an instance on record.
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

// StateOf returns the state of an instance: that of the database, or what it is while awake.
func (a *Agents) StateOf(i store.Instance) string {
	if state := a.turns.state(i.ID); state != "" {
		return state
	}
	return i.State
}

// Pause keeps an agent from being woken; what runs goes on to its end of the event, with the facets
// that the event calls. Resume ends that, and forgets failures.
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

// Resume lets an agent be woken again that was paused or has failed.
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

// revive lets an instance that has failed be woken again, with tries of its own.
func (a *Agents) revive(i store.Instance) error {
	if i.State != store.Failed {
		return nil
	}
	return errors.Join(a.Store.SetFailures(i.ID, 0, i.NotBefore, ""),
		a.Store.SetState(i.ID, store.Dormant, ""))
}

// eachOf calls f for each instance of an agent, all of them even if one fails.
func (a *Agents) eachOf(ctx context.Context, name string, f func(store.Instance) error) error {
	all, err := a.Of(ctx, name)
	for _, i := range all {
		err = errors.Join(err, f(i))
	}
	return err
}

// Of returns the instances of an agent, or store.ErrNotFound.
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
	// Only an agent that is there has instances that are.
	if _, err := a.Store.Agent(ctx, name); err != nil {
		if _, ok := builtin.Find(name); ok && errors.Is(err, store.ErrNotFound) {
			err = ErrAvailable
		}
		return nil, fmt.Errorf("agent %q: %w", name, err)
	}
	return all, nil
}

// alarmLook is how often alarms are compared with the clock: a clock that is set, or a host that was
// suspended, moves the time when an alarm is due without a timer of this process noticing.
const alarmLook = 5 * time.Second

// fireAlarms makes events of alarms that are due, until Close.
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

// nudge wakes the goroutine that waits on c, which has room for one element.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pulse wakes those who wait for something of an instance to change, or with Anyone of any.
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

// beat wakes those who wait for one of these to change.
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

// Quiet reports whether an event of an instance is committed, on the disk of the agent, and has no
// effects. Without it the event may be committed, too: the Store says so as soon as the effects are
// delivered. An event that is Quiet may be in the inbox for the moment that it takes to remove it.
func Quiet(a *Agents, of int64, seq uint64) bool { return a.turns.isQuiet(of, seq) }

// Changed returns a channel that is closed when an instance has published or committed something,
// with Anyone any instance.
func (a *Agents) Changed(of int64) <-chan struct{} { return a.pulse.wait(of) }
