package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// fullTime is how long the effects of an event wait while the inbox of a receiver is full.
const (
	fullTime = 30 * time.Second
	fullTry  = 100 * time.Millisecond
)

// fairTime is how long an agent may run while others wait for their turn.
const fairTime = 10 * time.Second

// Orders are the standard input and output for an agent's jail. Each is for one goroutine. In
// returns an error when the run has ended.
type Orders struct {
	In  io.Reader
	Out io.Writer
}

// A run is one awake instance, from the start to the end of its jail. Except for calls, only one
// goroutine uses it.
type run struct {
	a    *Agents
	turn *turn
	from store.Instance
	m    manifest.Manifest
	l    Launch
	// orders are sent by another goroutine, so that a slow agent cannot block this one.
	orders  chan agent.Order
	reports chan agent.Report
	kill    context.CancelCauseFunc
	calls   *calls
	window  window
	// reason is why it is to sleep, else empty. asked: the Sleep order was sent.
	reason string
	asked  bool
}

// A window holds the events that were delivered in this run and are not committed.
type window struct {
	// sent is the number of the last delivered event. more: the inbox may have further ones.
	sent uint64
	more bool
	// hand takes an event directly from a sender.
	hand *hand
	// open are the numbers of the delivered events that are not committed.
	open []uint64
	// single: after a failure, deliver one event at a time, to know which one fails.
	single bool
	// watchdog kills the run if the agent reports nothing for too long.
	watchdog *time.Timer
	// admins are the owner's operations that were sent, by id; operations is the last id.
	admins     map[uint64]*operation
	operations uint64
}

// A cause is why a run failed.
type cause struct {
	why string
	// blame: it happened while the agent worked on its first event.
	blame bool
	// code is the error code of a Failed report, else empty.
	code string
	// elsewhere: the agent did not cause the failure.
	elsewhere bool
}

// errAsked is the cause that ends a run without a failure.
var errAsked = errors.New("it was asked to end")

func newRun(a *Agents, t *turn, i store.Instance, l Launch) *run {
	return &run{a: a, turn: t, from: i, m: l.Manifest, l: l,
		orders: make(chan agent.Order, 2*manifest.MaxBatch), reports: make(chan agent.Report, 64),
		window: window{single: !i.NotBefore.IsZero(), hand: newHand(),
			admins: map[uint64]*operation{}}}
}

// whole starts the agent, serves it until it has ended, and returns why it failed, or nil.
func (r *run) whole() *cause {
	ctx, kill := context.WithCancelCause(r.a.ctx)
	defer kill(errAsked)
	r.kill = kill
	r.a.turns.change(func() {
		r.turn.kill, r.turn.hand, r.turn.state = kill, r.window.hand, store.Initializing
	})
	defer r.a.turns.change(func() { r.turn.kill = nil })
	defer r.window.hand.close()
	r.calls = newCalls(ctx, r)
	defer r.calls.work.Wait()
	ended := make(chan error, 1)
	var end End
	r.window.watchdog = time.AfterFunc(readyTime, func() {
		kill(fmt.Errorf("it was not ready after %v", readyTime))
	})
	go func() {
		var err error
		out := r.receive(ctx)
		end, err = r.a.o.Jails.Run(ctx, r.l, Orders{newOrders(ctx, r.orders), out})
		out.Close()
		ended <- err
	}()
	failure := r.serve(ctx)
	if failure != nil {
		kill(errors.New(failure.why))
	}
	// Kill an agent that does not end after its last report.
	last := time.AfterFunc(sleepTime, func() { kill(errAsked) })
	err := <-ended
	last.Stop()
	r.window.watchdog.Stop()
	// Read the cause before kill below: it may be the watchdog's.
	why := context.Cause(ctx)
	kill(errAsked)
	for _, o := range r.window.admins {
		o.fail(errors.New("the agent ended meanwhile"))
	}
	return r.verdict(failure, why, end, err)
}

// verdict returns why the run failed, or nil if it did not.
func (r *run) verdict(failure *cause, killed error, end End, err error) *cause {
	busy := len(r.window.open) > 0
	switch {
	case errors.Is(killed, errTaken) || r.a.ctx.Err() != nil:
		return nil
	case failure != nil && failure.code != "":
		return failure
	case errors.Is(err, ErrNoJail):
		return &cause{why: err.Error(), elsewhere: true}
	case killed != nil && !errors.Is(killed, errAsked) && failure == nil && r.reason == "":
		return &cause{why: killed.Error(), blame: busy}
	case killed != nil && !errors.Is(killed, errAsked) && failure == nil:
		// The agent was about to sleep, so this is no failure.
		r.reason = "killed: " + killed.Error()
		return nil
	case err != nil && failure == nil && r.reason != "":
		return nil
	case err != nil:
		return &cause{why: err.Error(), blame: busy}
	case failure != nil:
		why := failure.why
		if end.Why != "" {
			why = end.Why
		} else if end.Said != "" {
			why += ": " + end.Said
		}
		return &cause{why: why, blame: failure.blame || busy}
	}
	return nil
}

func (r *run) order(ctx context.Context, o agent.Order) {
	select {
	case r.orders <- o:
	case <-ctx.Done():
	}
}

// serve exchanges orders and reports with the agent. It returns nil if the agent slept as asked.
func (r *run) serve(ctx context.Context) *cause {
	if failure := r.begin(ctx); failure != nil {
		return failure
	}
	begun := time.Now()
	idle := time.NewTimer(r.m.Wake.Idle)
	defer idle.Stop()
	for {
		if failure := r.fill(ctx); failure != nil {
			return failure
		}
		r.settleDown(ctx)
		r.window.hand.offer(r.isHungry())
		if r.busy() {
			idle.Reset(r.m.Wake.Idle)
		}
		if (!r.busy() || time.Since(begun) > fairTime) && r.a.turns.crowded() {
			r.sleep(ctx, "others wait for their turn")
		}
		select {
		case report, ok := <-r.reports:
			if !ok {
				return r.gone(ctx)
			}
			if slept, failure := r.report(ctx, report); slept || failure != nil {
				return failure
			}
		case s := <-r.turn.signals:
			r.window.more = true
			if s.sleep != "" {
				r.sleep(ctx, s.sleep)
			}
		case <-r.window.hand.ready:
		case <-idle.C:
			r.sleep(ctx, "idle")
		}
	}
}

func (r *run) busy() bool { return len(r.window.open) > 0 || len(r.window.admins) > 0 }

// gone returns the cause for an agent that ended without being asked or during an event, else nil.
func (r *run) gone(ctx context.Context) *cause {
	if r.reason != "" && len(r.window.open) == 0 {
		return nil
	}
	why := "it ended by itself"
	if err := context.Cause(ctx); err != nil {
		why = err.Error()
	}
	return &cause{why: why, blame: len(r.window.open) > 0}
}

// begin waits for Ready and then settles events that the agent's database has committed, but that
// are still in the inbox. Then it sends the Wake order and the first events.
func (r *run) begin(ctx context.Context) *cause {
	ready, failure := r.ready(ctx)
	if failure != nil {
		return failure
	}
	if ready.Error != "" {
		return &cause{why: ready.Error}
	}
	if ready.Committed < r.from.Settled {
		r.a.o.Log.Warn("an agent has an older database than it had", "instance", r.from.Name,
			"committed", ready.Committed, "settled", r.from.Settled)
	}
	if ready.Committed > r.from.Settled {
		if _, failure := r.commit(ctx, ready.Committed, ready.Left, store.Want{}); failure != nil {
			return failure
		}
	}
	r.window.sent = max(ready.Committed, r.from.Settled)
	if r.window.sent > 0 {
		r.order(ctx, agent.Order{Settled: r.window.sent})
	}
	if r.window.single {
		if failure := r.exhausted(); failure != nil {
			return failure
		}
	}
	r.window.more = true
	events, failure := r.next()
	if failure != nil {
		return failure
	}
	reason := agent.TypeManual
	if len(events) > 0 {
		reason = events[0].Type
	}
	r.order(ctx, agent.Order{Wake: &agent.Wake{Reason: reason,
		AgentID: r.l.AgentID, Channel: r.from.Channel, Handle: r.from.Handle, Class: r.l.Class,
		Config: r.m.Config}})
	r.a.turns.change(func() { r.turn.state = store.Active })
	r.watch(0, "")
	r.deliver(ctx, events)
	// Record only now, while the agent works.
	r.a.record(r.from, audit.AgentStep{Step: audit.AgentWoken, Reason: reason,
		Runtime: runtimeOf(r.m)})
	return nil
}

// ready reads the first reports of the agent's jail and returns them as one Ready.
func (r *run) ready(ctx context.Context) (all agent.Ready, _ *cause) {
	for more := true; more; {
		select {
		case report, ok := <-r.reports:
			if !ok {
				return all, r.gone(ctx)
			}
			if report.Ready == nil {
				return all, nonsense("it does not begin with Ready")
			}
			all.Committed, all.Error = report.Ready.Committed, report.Ready.Error
			all.Left = append(all.Left, report.Ready.Left...)
			more = report.Ready.More && all.Error == ""
		case <-ctx.Done():
			return all, r.gone(ctx)
		}
	}
	return all, nil
}

// watch kills the run after d with the reason why, unless it is called again before. 0 means never.
func (r *run) watch(d time.Duration, why string) {
	r.window.watchdog.Stop()
	if d > 0 {
		r.window.watchdog = time.AfterFunc(d, func() { r.kill(errors.New(why)) })
	}
}

func (r *run) watchEvent() {
	if len(r.window.open) == 0 {
		r.watch(0, "")
		return
	}
	r.watch(r.m.Wake.Deadline+grace, fmt.Sprintf(
		"it did not end event %d, whose deadline is %v", r.window.open[0], r.m.Wake.Deadline))
}

// fill sends the owner's operations, and events as long as the batch is not full.
func (r *run) fill(ctx context.Context) *cause {
	// An agent that was asked to sleep may end before it answers. Leave operations to the next run.
	if !r.asked {
		for _, o := range r.a.turns.take(r.turn.id) {
			r.operate(ctx, o)
		}
	}
	given, coming := r.window.hand.take()
	r.deliver(ctx, given)
	if coming {
		return nil
	}
	events, failure := r.next()
	if failure == nil {
		r.deliver(ctx, events)
	}
	return failure
}

// isHungry reports whether the run could deliver an arriving event at once.
func (r *run) isHungry() bool {
	return len(r.window.open) == 0 && !r.window.more && !r.window.single && r.mayHave()
}

// mayHave reports whether the run may get more events.
func (r *run) mayHave() bool {
	return r.reason == "" && !r.from.Paused && r.from.State != store.Failed
}

// room returns how many events to read from the inbox. It is 0 if there are none, or if the batch
// has space for less than half of its size.
func (r *run) room() int {
	most := r.m.Wake.Batch
	if r.window.single {
		most = 1
	}
	if n := most - len(r.window.open); r.window.more && r.mayHave() && n >= (most+1)/2 {
		return n
	}
	return 0
}

// next reads the next events from the inbox, as many as room allows.
func (r *run) next() ([]agent.Event, *cause) {
	room := r.room()
	if room == 0 {
		return nil, nil
	}
	events, more, err := r.a.Store.Next(r.from.ID, r.window.sent, room)
	if err != nil {
		return nil, &cause{why: err.Error()}
	}
	r.window.more = more
	return events, nil
}

func (r *run) deliver(ctx context.Context, events []agent.Event) {
	if len(events) == 0 {
		return
	}
	first := len(r.window.open) == 0
	for i := range events {
		r.window.sent = events[i].Seq
		r.window.open = append(r.window.open, events[i].Seq)
		r.order(ctx, agent.Order{Event: &events[i]})
	}
	if first {
		r.watchEvent()
	}
}

// sleep asks the agent to sleep as soon as it has committed the delivered events.
func (r *run) sleep(ctx context.Context, why string) {
	if r.reason != "" {
		return
	}
	r.reason = why
	r.settleDown(ctx)
}

func (r *run) settleDown(ctx context.Context) {
	if r.reason != "" && !r.asked && !r.busy() && !r.window.hand.isBusy() {
		r.asked = true
		r.order(ctx, agent.Order{Sleep: true})
		r.watch(sleepTime, "it did not sleep")
	}
}

// report handles a report, and further Done reports that are already there. slept says that this
// was the agent's last report.
func (r *run) report(ctx context.Context, report agent.Report) (slept bool, failure *cause) {
	for next := &report; next != nil && failure == nil && !slept; {
		report, next = *next, nil
		switch {
		case report.Done != nil:
			next, failure = r.done(ctx, *report.Done)
		case report.Failed != nil:
			failure = &cause{why: fmt.Sprintf("event %d: %s", report.Failed.Seq,
				clipped(report.Failed.Message)), code: report.Failed.Code, blame: true}
			if len(r.window.open) == 0 || report.Failed.Seq != r.window.open[0] {
				failure = nonsense("it reports that event %d failed, which is not its turn",
					report.Failed.Seq)
			}
		case report.Call != nil:
			failure = r.calls.take(*report.Call)
		case report.Log != nil:
			r.calls.log(*report.Log)
		case report.Admin != nil:
			failure = r.operated(*report.Admin)
		case report.Slept:
			if len(r.window.open) > 0 {
				failure = r.gone(ctx)
				break
			}
			if r.reason == "" {
				r.reason = "it ended by itself"
			}
			slept = true
		default:
			failure = nonsense("it reports nothing")
		}
	}
	if failure == nil && !slept {
		r.settleDown(ctx)
	}
	return slept, failure
}

// permitted returns the effects without messages and settings of a facet that lacks the binding
// PUBSUB. Results of calls stay. The facet's jail has refused the others already, but its reports
// are not trusted.
func (r *run) permitted(all []agent.Effects) []agent.Effects {
	if !r.m.Mute {
		return all
	}
	out := make([]agent.Effects, len(all))
	for i, e := range all {
		out[i] = agent.Effects{Seq: e.Seq, Effects: slices.DeleteFunc(slices.Clone(e.Effects),
			func(f agent.Effect) bool {
				speaks := f.Op == agent.OpUpdate || f.Op == agent.OpComplete ||
					f.Op == agent.OpSettings || f.Op == agent.OpSend && f.Type != agent.TypeResult
				if speaks {
					r.calls.log(agent.Log{Level: "warn", Message: "refused: " + f.Op +
						" without the binding " + agent.PubSub})
				}
				return speaks
			})}
	}
	return out
}

func nonsense(format string, args ...any) *cause {
	return &cause{why: "its jail breaks the protocol: " + fmt.Sprintf(format, args...)}
}

// clipped shortens a text from an agent for messages and records.
func clipped(text string) string { return runners.Cut(text, 500) }

// done settles a committed event, and further ones whose reports are already there. It returns the
// first other report that it read, or nil.
func (r *run) done(ctx context.Context, first agent.Effects) (next *agent.Report, _ *cause) {
	all := []agent.Effects{first}
	for more := true; more && len(all) < r.m.Wake.Batch; {
		select {
		case report, ok := <-r.reports:
			if more = ok && report.Done != nil; more {
				all = append(all, *report.Done)
			} else if ok {
				next = &report
			}
		default:
			more = false
		}
	}
	open := r.window.open
	for _, e := range all {
		if len(open) == 0 || e.Seq != open[0] {
			return nil, nonsense("it reports event %d as committed, which is not its turn", e.Seq)
		}
		open = open[1:]
	}
	r.window.open, r.window.single = open, false
	for _, e := range all {
		if len(e.Effects) == 0 {
			r.a.turns.setQuiet(r.turn, e.Seq)
		}
	}
	if r.isHungry() {
		// An event that is sent meanwhile can be delivered with its own transaction: the store does
		// so only after this commit, and only if no other event waits.
		r.window.hand.offer(true)
	}
	// Wake waiters for a quiet event before it leaves the inbox.
	r.a.pulse.beat(r.from.ID)
	events, failure := r.commit(ctx, all[len(all)-1].Seq, all,
		store.Want{After: r.window.sent, Limit: r.room()})
	if failure != nil {
		return nil, failure
	}
	r.order(ctx, agent.Order{Settled: all[len(all)-1].Seq})
	r.watchEvent()
	r.deliver(ctx, events)
	return next, nil
}

// commit settles events up to seq and returns the events that want asks for. While the inbox of a
// receiver is full, it waits, which slows down a fast sender. After fullTime the messages become
// dead letters, since two full agents could wait for each other.
func (r *run) commit(ctx context.Context, seq uint64, effects []agent.Effects,
	want store.Want) ([]agent.Event, *cause) {
	effects = r.permitted(effects)
	begun := time.Now()
	for {
		done, err := r.a.Store.Ack(r.from.ID, seq, effects, time.Since(begun) > fullTime, want)
		switch {
		case errors.Is(err, store.ErrFull):
			r.watch(fullTime+grace, "the inbox of a receiver was full for too long")
			select {
			case <-time.After(fullTry):
				continue
			case <-ctx.Done():
				return nil, r.gone(ctx)
			}
		case errors.Is(err, store.ErrUnknown):
			return nil, nonsense("%v", err)
		case err != nil:
			return nil, &cause{why: err.Error()}
		}
		if want.Limit > 0 {
			r.window.more = done.More
		}
		r.settled(done)
		return done.Events, nil
	}
}

// settled wakes receivers and waiters after a commit, and logs refused and lost effects.
func (r *run) settled(done store.Settlement) {
	r.a.wake(done.Woken...)
	if done.Alarms {
		nudge(r.a.alarms)
	}
	if done.Proposed {
		nudge(r.a.proposals.asked)
	}
	for _, why := range done.Refused {
		r.calls.log(agent.Log{Level: "warn", Message: "refused: " + why})
	}
	for _, which := range done.Spilled {
		r.a.record(r.from, audit.AgentStep{Step: audit.AgentDeadLetter,
			Error: which + ": the inbox was full"})
	}
	r.a.pulse.beat(r.from.ID, Anyone)
}
