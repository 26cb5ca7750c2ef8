package agents

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/supervisor/agents/store"
)

// An action that an agent proposes waits in the approval queue of jaild, where people decide on it
// as on any other action. The transaction that settles the event stores the proposal with a secret
// key. jail-agentd then puts it into the queue, once for its key. After the decision it claims an
// approved action, puts an approval event into the agent's inbox and reports the action as applied;
// the agent itself does the action. Each step can be repeated, so that a crash at any point loses
// no decision and tells none twice.

// A Queue is the approval queue. Its errors wrap ErrNoJail if a later try may succeed.
type Queue interface {
	// Propose puts an action into the queue, unless its key is there already, and returns its id.
	Propose(ctx context.Context, p Proposal) (action string, err error)
	// Decision waits at most wait for the decision on an action. Without one it returns the state
	// pending and no error. It claims an approved action that has a key.
	Decision(ctx context.Context, action, key string, wait time.Duration) (Decision, error)
	// Applied reports to the queue that the agent was told of a claimed approval.
	Applied(ctx context.Context, action, key string) error
	// Withdraw withdraws an action, which may be over already.
	Withdraw(ctx context.Context, action string) error
}

// A Proposal is what an agent proposes.
type Proposal struct {
	// Agent is the agent's id, Name its name in the manifest.
	Agent, Name string
	Key         string
	Data        json.RawMessage
}

// A Decision is the outcome of a proposed action.
type Decision struct {
	// State is pending, approved, rejected, expired, withdrawn or failed.
	State string
	// Why is the reason if the action ended without a decision.
	Why string
}

// Approved is the state of an approved action.
const Approved = "approved"

const pending, rejected = "pending", "rejected"

const (
	// attended is how many actions may wait for a Decision at a time, each for awaited. If there
	// are more, they take turns of crowdedAwait, so that no agent delays the others.
	attended     = 32
	awaited      = time.Minute
	crowdedAwait = time.Second
	// askPause is the pause after an error of the queue. It doubles up to askPauses.
	askPause  = 200 * time.Millisecond
	askPauses = 30 * time.Second
)

// proposals puts proposed actions into the approval queue, and tells agents the decisions.
type proposals struct {
	a *Agents
	// asked makes run look for new proposals.
	asked chan struct{}
	// places is a semaphore of attended elements for calls of the queue.
	places chan struct{}
	// known are the proposals that have a goroutine, for run only. count is their number.
	known map[string]bool
	count atomic.Int64
	over  chan string
}

func newProposals(a *Agents) *proposals {
	return &proposals{a: a, asked: make(chan struct{}, 1), places: make(chan struct{}, attended),
		known: map[string]bool{}, over: make(chan string)}
}

// run starts a goroutine for each stored proposal, until Close.
func (q *proposals) run() {
	a := q.a
	for {
		all, err := store.AsksOf(a.Store).All(a.ctx)
		again := make(<-chan time.Time)
		if err != nil && a.ctx.Err() == nil {
			a.o.Log.Error("what agents propose cannot be read", "error", err)
			again = time.After(time.Minute)
		}
		for _, p := range all {
			if q.known[p.ID] {
				continue
			}
			q.known[p.ID] = true
			q.count.Add(1)
			a.work.Go(func() {
				q.attend(p)
				select {
				case q.over <- p.ID:
				case <-a.ctx.Done():
				}
			})
		}
		select {
		case <-q.asked:
		case id := <-q.over:
			delete(q.known, id)
			q.count.Add(-1)
		case <-again:
		case <-a.ctx.Done():
			return
		}
	}
}

// attend repeats step until the proposal is finished or Agents is closed.
func (q *proposals) attend(p store.Proposal) {
	a, pause := q.a, askPause
	for a.ctx.Err() == nil {
		select {
		case q.places <- struct{}{}:
		case <-a.ctx.Done():
			return
		}
		done, err := q.step(&p)
		<-q.places
		switch {
		case err == nil && done:
			return
		case err == nil:
			pause = askPause
			continue
		case a.ctx.Err() == nil && pause == askPause:
			a.o.Log.Warn("a proposal of an agent waits", "proposal", p.ID, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-a.ctx.Done():
		}
		pause = min(2*pause, askPauses)
	}
}

// step does the next step of a proposal. It may be repeated after an error.
func (q *proposals) step(p *store.Proposal) (done bool, err error) {
	a, asks := q.a, store.AsksOf(q.a.Store)
	i, err := a.Store.Instance(a.ctx, p.Instance)
	switch {
	case errors.Is(err, store.ErrNotFound):
		if p.Action != "" && !p.Told {
			if err := q.said(*p, a.o.Queue.Withdraw(a.ctx, p.Action)); err != nil {
				return false, err
			}
		}
		return true, asks.Forget(p.ID)
	case err != nil:
		return false, err
	case p.Told:
		if p.Key != "" && p.Action != "" {
			if err := q.said(*p, a.o.Queue.Applied(a.ctx, p.Action, p.Key)); err != nil {
				return false, err
			}
		}
		return true, asks.Forget(p.ID)
	case p.Action == "":
		action, err := a.o.Queue.Propose(a.ctx, Proposal{Agent: a.Store.AgentID(store.PathOf(i)),
			Name: i.Agent, Key: p.Key, Data: p.Data})
		switch {
		case err == nil:
			p.Action = action
			return false, asks.Queued(p.ID, action)
		case errors.Is(err, ErrNoJail) || a.ctx.Err() != nil:
			return false, err
		}
		// The queue refused the action.
		d := Decision{rejected, err.Error()}
		err = q.tell(i, *p, d)
		p.Told = err == nil
		return false, err
	}
	wait := awaited
	if q.count.Load() > attended {
		wait = crowdedAwait
	}
	d, err := a.o.Queue.Decision(a.ctx, p.Action, p.Key, wait)
	if err != nil || d.State == pending {
		return false, err
	}
	if err := q.tell(i, *p, d); err != nil {
		return false, err
	}
	p.Told = true
	return false, nil
}

// said returns err if a later try may succeed. It logs any other error and returns nil, since the
// action is over.
func (q *proposals) said(p store.Proposal, err error) error {
	if err == nil || errors.Is(err, ErrNoJail) || q.a.ctx.Err() != nil {
		return err
	}
	q.a.o.Log.Info("the approval queue does not take the end of a proposal", "proposal", p.ID,
		"error", err)
	return nil
}

// tell puts the approval event with a decision into the inbox of an instance.
func (q *proposals) tell(i store.Instance, p store.Proposal, d Decision) error {
	said := map[string]string{"id": p.ID, "decision": d.State}
	if d.Why != "" {
		said["error"] = d.Why
	}
	if p.Action != "" {
		said["action"] = p.Action
	}
	text, err := json.Marshal(said)
	if err != nil {
		return err
	}
	if err := store.AsksOf(q.a.Store).Tell(p, text); err != nil {
		return err
	}
	q.a.wake(i.ID)
	return nil
}
