package gatekeepers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Queue is jaild's approval queue. *api.Approvals implements it.
type Queue interface {
	Propose(context.Context, api.ProposeRequest) (approvals.Action, error)
	Get(ctx context.Context, id string) (approvals.Action, error)
	List(ctx context.Context, all bool) ([]approvals.Action, error)
	Changed(ctx context.Context, seen string, atMost time.Duration) ([]approvals.Action, error)
	Carry(ctx context.Context, id, key string,
		do func(approvals.Action) (string, error)) (approvals.Action, error)
	Report(context.Context, string, approvals.ReportRequest) (approvals.Action, error)
}

// An Entry is the durable record of one proposed action.
type Entry struct {
	// Ref identifies the proposal. An event that is delivered again proposes with the same Ref, so
	// that no second action is made.
	Ref string
	// Instance is the number of the agent's instance that has proposed the action, 0 for a person.
	Instance int64
	// Request is the proposal. It has the key by which the action is claimed.
	Request api.ProposeRequest
	// Action is the id of the action, empty until jaild has answered.
	Action string
	// Told is the last state of the action that the proposer was told, empty if none.
	Told approvals.State
	// Over is true when the state of the action cannot change any more.
	Over  bool
	Began time.Time
}

// Entries stores entries durably, as JSON keyed by Ref.
type Entries interface {
	// Put adds an entry, or replaces the one with the same Ref.
	Put(ref string, began time.Time, over bool, entry []byte) error
	// Remove removes an entry.
	Remove(ref string) error
	// Forget removes entries that are over: those begun before the time, and all but the last most.
	Forget(before time.Time, most int) error
	// Find returns the entry with a Ref, nil if there is none.
	Find(ctx context.Context, ref string) ([]byte, error)
	// Open returns the entries that are not over, All returns all, both the eldest first.
	Open(context.Context) ([][]byte, error)
	All(context.Context) ([][]byte, error)
}

func (d *Desk) put(e Entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return d.o.Entries.Put(e.Ref, e.Began, e.Over, text)
}

// entry returns the entry with a Ref, false if there is none.
func (d *Desk) entry(ctx context.Context, ref string) (e Entry, ok bool, err error) {
	text, err := d.o.Entries.Find(ctx, ref)
	if err != nil || text == nil {
		return e, false, err
	}
	return e, true, json.Unmarshal(text, &e)
}

// entries decodes the entries that list returns.
func entries(ctx context.Context, list func(context.Context) ([][]byte, error)) ([]Entry, error) {
	texts, err := list(ctx)
	all := make([]Entry, len(texts))
	for i, text := range texts {
		err = errors.Join(err, json.Unmarshal(text, &all[i]))
	}
	return all, err
}

// Settings are the settings of a gatekeeper in gatekeepers.toml.
type Settings = manifest.Gatekeeper

// A Kept is a gatekeeper with its settings in gatekeepers.toml.
type Kept struct {
	Settings
	Gatekeeper
}

// Load returns the gatekeepers in the file gatekeepers.toml at path. Gatekeepers of HTTP APIs send
// requests with s; ask calls gatekeepers that are agents.
func Load(path string, s Sender, ask Asker) ([]Kept, error) {
	said, err := manifest.LoadGatekeepers(path)
	var all []Kept
	for _, g := range said {
		k := Kept{Settings: g}
		switch g.Kind {
		case manifest.KindSQLite:
			k.Gatekeeper = &sqliteFile{g}
		case manifest.KindAgent:
			k.Gatekeeper = &byAgent{Agent: g.Agent, Ask: ask}
		default:
			k.Gatekeeper = &httpAPI{g, s}
		}
		all = append(all, k)
	}
	return all, err
}

// Options are the dependencies of a Desk.
type Options struct {
	// Kept returns the gatekeepers in the current gatekeepers.toml.
	Kept func() ([]Kept, error)
	// Queue connects to jaild's approval queue. The returned function closes the connection.
	Queue   func(context.Context) (Queue, func(), error)
	Entries Entries
	Now     func() time.Time
	Log     *slog.Logger
}

// A Desk proposes and carries out the actions of the gatekeepers of one user.
type Desk struct {
	o Options
	// news wakes Run, to look at the actions now.
	news chan struct{}
	// tell reports the state of an action to the agent instance that proposed it.
	tell func(Entry, approvals.Action) error

	// begun holds the Refs for which Propose is running. Run leaves their entries alone.
	begun sync.Map
	// entries counts the entries that are not over. waiting counts those without an applied action,
	// which keep the process alive.
	entries, waiting atomic.Int64
}

// Bounds of a desk.
const (
	// keepEntries is how long an entry is kept once it is over, for events that are delivered
	// again. maxOver bounds the number of such entries.
	keepEntries = 30 * 24 * time.Hour
	maxOver     = 2000
	// pause is the delay before a retry after an error. waits bounds one request to jaild that
	// waits for a change.
	pause = time.Second
	waits = time.Minute
	// lookForgotten is how often the desk checks whether jaild has removed applied actions.
	lookForgotten = 5 * time.Minute
	// maxCarry bounds the time in which one action is applied or reverted.
	maxCarry = 5 * time.Minute
)

// New returns a Desk. It carries out no action before Run is called.
func New(o Options) *Desk { return &Desk{o: o, news: make(chan struct{}, 1)} }

// A Caller is the user of a gatekeeper: an agent, or the owner if all fields are empty.
type Caller struct {
	// Agent is the name of the agent. ID is the id of the agent or of its facet, as
	// agent:USER:NAME.
	Agent, ID string
	// Instance is the number of the agent's instance.
	Instance int64
	// Run is the id of the agent's run. Its policy decides which actions need an approval.
	Run string
	// Allowed are the names of the gatekeepers in the agent's manifest.
	Allowed []string
}

// mayUse reports whether a caller may use a gatekeeper. An agent needs both: its manifest asks for
// the gatekeeper, and gatekeepers.toml names the agent.
func (c Caller) mayUse(k Kept) bool {
	return c.Agent == "" || slices.Contains(c.Allowed, k.Name) && slices.Contains(k.Agents, c.Agent)
}

// all returns the gatekeepers that the caller may use.
func (d *Desk) all(c Caller) ([]Kept, error) {
	all, err := d.o.Kept()
	if err != nil && c.Agent != "" {
		// The error quotes the owner's file.
		return nil, agent.Errorf(agent.ErrFailed, "gatekeepers.toml is wrong: its owner sees by "+
			"jail gate list what is")
	}
	return slices.DeleteFunc(slices.Clone(all), func(k Kept) bool { return !c.mayUse(k) }), err
}

// find returns the gatekeeper with a name, or an error if the caller may not use it.
func (d *Desk) find(c Caller, name string) (Kept, error) {
	all, err := d.all(c)
	if err != nil {
		return Kept{}, err
	}
	var names []string
	for _, k := range all {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	there := cmp.Or(strings.Join(names, ", "), "none")
	if c.Agent == "" {
		return Kept{}, problem.New(problem.NotFound, "no gatekeeper %.60q: there are %s", name, there).
			WithHint("jail gate list has the gatekeepers")
	}
	return Kept{}, notFound("no gatekeeper %.60q: there are %s; an agent has those that "+
		"capabilities.gatekeepers of its manifest and agents of gatekeepers.toml name", name, there)
}

// Describe describes the gatekeeper with this name, or all that the caller may use if it is empty.
func (d *Desk) Describe(ctx context.Context, c Caller, name string) ([]agentapi.Gatekeeper, error) {
	all, err := d.all(c)
	if name != "" {
		var k Kept
		k, err = d.find(c, name)
		all = []Kept{k}
	}
	if err != nil {
		return nil, err
	}
	out := []agentapi.Gatekeeper{}
	for _, k := range all {
		of, err := k.Describe(ctx)
		if err != nil {
			of.Problem = err.Error()
		}
		of.Name = k.Name
		if k.About != "" {
			of.About = k.About
		}
		if c.Agent != "" {
			// Agents do not see the path or the URL.
			of.Resource = k.Name
		}
		out = append(out, of)
	}
	return out, nil
}

// Read calls a read method of a gatekeeper, if the caller may use it.
func (d *Desk) Read(ctx context.Context, c Caller, name, method string,
	args json.RawMessage) (any, error) {
	k, err := d.find(c, name)
	if err != nil {
		return nil, err
	}
	return k.Read(ctx, method, args)
}

// A Proposal is an action that a caller proposes.
type Proposal struct {
	Gatekeeper string
	Action     string
	Args       json.RawMessage
	// Words are the proposer's own description of the action.
	Words string
	// Ref is the Ref of the Entry.
	Ref string
}

// Propose puts an action on the queue. It is idempotent: the same proposal with the same Ref
// returns the first action.
func (d *Desk) Propose(ctx context.Context, c Caller, p Proposal) (agentapi.GateProposed, error) {
	var none agentapi.GateProposed
	k, err := d.find(c, p.Gatekeeper)
	if err != nil {
		return none, err
	}
	if _, busy := d.begun.LoadOrStore(p.Ref, true); busy {
		return none, agent.Errorf(agent.ErrBusy, "the same action of the same event is being "+
			"proposed")
	}
	defer d.begun.Delete(p.Ref)
	q, done, err := d.o.Queue(ctx)
	if err != nil {
		return none, err
	}
	defer done()
	e, ok, err := d.entry(ctx, p.Ref)
	if err == nil && ok && e.Action == "" {
		// The answer of jaild was lost. A new proposal would have another key, which cannot claim
		// the action.
		e, err = d.adopt(ctx, q, e)
	}
	if err != nil {
		return none, err
	}
	if e.Action != "" {
		return d.again(ctx, q, e, p)
	}
	change, err := k.Propose(ctx, p.Action, p.Args)
	if err != nil {
		return none, err
	}
	text, err := change.text()
	if err != nil {
		return none, err
	}
	e = Entry{Ref: p.Ref, Instance: c.Instance, Began: d.o.Now(),
		Request: api.ProposeRequest{Type: policy.ActionGate, Run: c.Run, Agent: c.ID, Words: p.Words,
			Key: api.NewKey(), Ask: !k.ByPolicy, External: approvals.External{Gate: &approvals.Gate{
				Gatekeeper: k.Name, Action: change.Action, Resource: change.Resource, Args: text,
				Reversible: change.Reversible}}}}
	if err := d.put(e); err != nil {
		return none, err
	}
	d.began()
	// If the answer is lost, Run checks whether jaild has the action.
	defer d.Look()
	a, err := q.Propose(ctx, e.Request)
	if refused, ok := errors.AsType[*problem.Error](err); ok {
		// jaild does not have the action, and the same event may propose it again.
		return none, errors.Join(agent.Errorf(agent.ErrFailed, "%s", refused.Message),
			d.o.Entries.Remove(e.Ref))
	}
	if err != nil {
		return none, err
	}
	e.Action = a.ID
	return proposed(a, change), d.put(e)
}

// proposed returns the result of a proposal.
func proposed(a approvals.Action, c Change) agentapi.GateProposed {
	return agentapi.GateProposed{ID: a.ID, State: string(a.State), Reversible: a.Reversible, Before: c.Before,
		After: c.After}
}

// again returns the action of a proposal whose Ref is known. Another action is an error.
func (d *Desk) again(ctx context.Context, q Queue, e Entry, p Proposal) (agentapi.GateProposed, error) {
	g := e.Request.Gate
	c, err := changeOf(g.Action, g.Resource, g.Args)
	if err != nil {
		return agentapi.GateProposed{}, err
	}
	if g.Gatekeeper != p.Gatekeeper || g.Action != p.Action || !same(c.Args, p.Args) {
		return agentapi.GateProposed{}, bad("the same event has proposed another action before: an event " +
			"that comes again has to do the same")
	}
	a, err := q.Get(ctx, e.Action)
	return proposed(a, c), err
}

// began increments the counts of entries.
func (d *Desk) began() {
	d.entries.Add(1)
	d.waiting.Add(1)
}

// Waiting returns the number of actions that wait for a decision or are being carried out.
func (d *Desk) Waiting() int { return int(d.waiting.Load()) }

// Look wakes Run, to look at the actions now. It does not block.
func (d *Desk) Look() {
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// Run applies approved actions and reverts actions on request, until ctx is done. It calls tell to
// report the state of an action to the instance that proposed it.
func (d *Desk) Run(ctx context.Context, tell func(Entry, approvals.Action) error) {
	d.tell = tell
	d.began()
	var polls sync.WaitGroup
	defer polls.Wait()
	forgotten := time.NewTicker(lookForgotten)
	defer forgotten.Stop()
	warned, all := "", true
	for {
		seen, err := d.each(ctx, all)
		if err != nil && ctx.Err() == nil && err.Error() != warned {
			d.o.Log.Warn("the actions of gatekeepers wait", "error", err)
			warned = err.Error()
		}
		ctx, stop := context.WithCancel(ctx)
		changed := make(chan struct{})
		switch {
		case err != nil:
			polls.Go(func() { tick.Wait(ctx.Done(), pause); close(changed) })
		case d.entries.Load() > 0:
			polls.Go(func() { d.await(ctx, seen); close(changed) })
		}
		select {
		case <-d.news:
			all = false
		case <-changed:
			all = false
		case <-forgotten.C:
			all = true
		case <-ctx.Done():
			stop()
			return
		}
		stop()
	}
}

// await returns when approvals.Mark of the queue differs from seen, jaild cannot be reached, or ctx
// is done.
func (d *Desk) await(ctx context.Context, seen string) {
	for ctx.Err() == nil {
		q, done, err := d.o.Queue(ctx)
		if err == nil {
			var all []approvals.Action
			all, err = q.Changed(ctx, seen, waits)
			done()
			if err == nil && approvals.Mark(all) != seen {
				return
			}
		}
		// A daemon that shuts down answers at once.
		tick.Wait(ctx.Done(), pause)
		if err != nil {
			return
		}
	}
}

// each calls one for the entries that are not over and may have changed, and returns approvals.Mark
// of the queue. If all is true, it also checks whether jaild has removed applied actions.
func (d *Desk) each(ctx context.Context, all bool) (seen string, err error) {
	open, err := entries(ctx, d.o.Entries.Open)
	if err != nil {
		return "", err
	}
	var q Queue
	states := map[string]approvals.State{}
	if len(open) > 0 {
		var done func()
		if q, done, err = d.o.Queue(ctx); err != nil {
			return "", err
		}
		defer done()
		listed, err := q.List(ctx, false)
		if err != nil {
			return "", err
		}
		for _, a := range listed {
			states[a.ID] = a.State
		}
		seen = approvals.Mark(listed)
	}
	var errs []error
	var left, waiting int64
	over := false
	for _, e := range open {
		if e.mayHaveChanged(states, all) {
			if e, err = d.one(ctx, q, e); err != nil {
				errs = append(errs, fmt.Errorf("action %s: %w", e.Action, err))
			}
		}
		if e.Over {
			over = true
			continue
		}
		left++
		if e.Told != approvals.Applied {
			waiting++
		}
	}
	if over {
		errs = append(errs, d.o.Entries.Forget(d.o.Now().Add(-keepEntries), maxOver))
	}
	d.entries.Store(left)
	d.waiting.Store(waiting)
	return seen, errors.Join(errs...)
}

// mayHaveChanged reports whether jaild has to be asked for the action of an entry. states are the
// states of all actions that are not over. If all is true, applied actions are included.
func (e Entry) mayHaveChanged(states map[string]approvals.State, all bool) bool {
	state, listed := states[e.Action]
	switch {
	case e.Action == "":
		return true
	case listed:
		return state != approvals.Pending
	}
	return e.Told != approvals.Applied || all
}

// one applies, reverts or settles the action of an entry if it can do so now, and reports a final
// state to the proposer. It returns the updated entry.
func (d *Desk) one(ctx context.Context, q Queue, e Entry) (Entry, error) {
	if e.Action == "" {
		if _, begun := d.begun.Load(e.Ref); begun {
			return e, nil
		}
		// The process or the connection ended before jaild answered with the id.
		var err error
		if e, err = d.adopt(ctx, q, e); err != nil || e.Over {
			return e, err
		}
	}
	a, err := q.Get(ctx, e.Action)
	if found, ok := errors.AsType[*problem.Error](err); ok && found.Code == problem.NotFound {
		// jaild has removed the action.
		e.Over = true
		return e, d.put(e)
	}
	if err != nil {
		return e, err
	}
	key := e.Request.Key
	switch {
	case a.State == approvals.Approved, a.State == approvals.Reverting && a.Claim == nil:
		ctx, cancel := context.WithTimeout(ctx, maxCarry)
		defer cancel()
		// The returned action holds the error of a gatekeeper.
		carried, err := q.Carry(ctx, a.ID, key, func(a approvals.Action) (string, error) {
			return d.carry(ctx, a)
		})
		if carried.ID == "" {
			return e, err
		}
		a = carried
	case a.State == approvals.Applying, a.State == approvals.Reverting:
		// This process carries out one action at a time, so another one claimed this action and
		// ended.
		if a, err = d.settle(ctx, q, a, key); err != nil {
			return e, err
		}
	}
	return d.told(ctx, e, a)
}

// adopt finds the action of a proposal whose answer from jaild was lost, and stores its id in the
// entry. If jaild has no such action, adopt removes the entry and marks the returned one as over.
func (d *Desk) adopt(ctx context.Context, q Queue, e Entry) (Entry, error) {
	if now, ok, err := d.entry(ctx, e.Ref); err != nil || !ok || now.Action != "" {
		e.Action, e.Over = now.Action, !ok
		return e, err
	}
	entries, err := entries(ctx, d.o.Entries.All)
	if err != nil {
		return e, err
	}
	taken := map[string]bool{}
	for _, other := range entries {
		taken[other.Action] = true
	}
	all, err := q.List(ctx, true)
	if err != nil {
		return e, err
	}
	for _, listed := range all {
		if taken[listed.ID] || listed.Type != policy.ActionGate || listed.Agent != e.Request.Agent ||
			listed.Run != e.Request.Run || listed.Gate == nil {
			continue
		}
		a, err := q.Get(ctx, listed.ID)
		if err != nil {
			return e, err
		}
		if a.Gate != nil && *a.Gate == *e.Request.Gate {
			e.Action = a.ID
			return e, d.put(e)
		}
	}
	// jaild never had the action. The event that is delivered again proposes it.
	e.Over = true
	return e, d.o.Entries.Remove(e.Ref)
}

// carry applies an action, or reverts it if its state is Reverting. It returns the outcome.
func (d *Desk) carry(ctx context.Context, a approvals.Action) (string, error) {
	k, c, err := d.of(a)
	if err != nil {
		return "", err
	}
	var outcome string
	if a.State == approvals.Reverting {
		err = k.Revert(ctx, a.ID, a.Outcome, c)
	} else {
		outcome, err = k.Apply(ctx, a.ID, c)
	}
	return outcome, err
}

// of returns the gatekeeper of an action, and its Change.
func (d *Desk) of(a approvals.Action) (Kept, Change, error) {
	if a.Gate == nil {
		return Kept{}, Change{}, fmt.Errorf("action %s is of no gatekeeper", a.ID)
	}
	k, err := d.find(Caller{}, a.Gate.Gatekeeper)
	if err != nil {
		return k, Change{}, err
	}
	c, err := changeOf(a.Gate.Action, a.Gate.Resource, a.Gate.Args)
	return k, c, err
}

// settle reports to jaild how an action ended whose process was killed. If the gatekeeper cannot
// tell, the action is returned unchanged, and a person has to settle it.
func (d *Desk) settle(ctx context.Context, q Queue, a approvals.Action,
	key string) (approvals.Action, error) {
	k, c, err := d.of(a)
	if err != nil {
		return a, err
	}
	reverting := a.State == approvals.Reverting
	s, known, err := k.Settle(ctx, a.ID, c, reverting)
	if err != nil || !known {
		return a, err
	}
	r := approvals.ReportRequest{Key: key, State: approvals.Failed,
		Error: "jail-agentd ended before it was done, and nothing was changed"}
	switch {
	case s.Done && reverting:
		r.State, r.Error = approvals.Reverted, ""
	case s.Done:
		r.State, r.Outcome, r.Error = approvals.Applied, s.Outcome, ""
	}
	return q.Report(ctx, a.ID, r)
}

// told reports a final state of an action to its proposer, once, and stores that in the entry.
func (d *Desk) told(ctx context.Context, e Entry, a approvals.Action) (Entry, error) {
	if !a.State.Over() || a.State == e.Told {
		return e, nil
	}
	d.rejected(ctx, a)
	if e.Instance != 0 {
		if err := d.tell(e, a); err != nil {
			return e, err
		}
	}
	e.Told = a.State
	// An applied action can be reverted as long as jaild has it.
	e.Over = a.State != approvals.Applied || !a.Reversible
	return e, d.put(e)
}

// rejected calls the method Reject of the gatekeeper, if there is one, for an action that was
// rejected, withdrawn or has expired. It only logs an error.
func (d *Desk) rejected(ctx context.Context, a approvals.Action) {
	switch a.State {
	case approvals.Rejected, approvals.Expired, approvals.Withdrawn:
	default:
		return
	}
	k, c, err := d.of(a)
	if err != nil {
		return
	}
	if r, ok := k.Gatekeeper.(interface {
		Reject(context.Context, string, Change) error
	}); ok {
		if err := r.Reject(ctx, a.ID, c); err != nil && ctx.Err() == nil {
			d.o.Log.Warn("a gatekeeper does not take a rejection", "gatekeeper", k.Name, "action", a.ID,
				"error", err)
		}
	}
}
