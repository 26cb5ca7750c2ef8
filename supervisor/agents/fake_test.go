package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/models"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// fakeJails runs agents that are functions of the test, with what a jail's host process does: an
// event is one transaction, of which nothing is left if the agent ends before its commit.
type fakeJails struct {
	mu    sync.Mutex
	disks map[string]*disk
	guest map[string]guest
	// die is asked at each point at which a host could be killed.
	die func(instance, point string) bool
	// ran counts starts.
	ran map[string]int
	// classes are the guests of facets, by their classes; launches are the last ones of instances.
	classes  map[string]guest
	launches map[string]Launch
	// load runs programs.
	load func(context.Context, Load) (Loaded, error)
	// command runs tools; ended are the instances whose tools were ended.
	command func(context.Context, Command) (toolsession.Output, error)
	ended   []string
	// changes are those that were proposed or discarded.
	changes []Changes
	// limits are those of policies, by the ids of agents.
	limits map[string]Share
	// missing is the error of those that jaild does not find.
	missing error
}

// A guest works on one event.
type guest func(g *work) error

// A disk is what of an instance survives its end.
type disk struct {
	committed uint64
	count     int
	left      []agent.Effects
	seen      []string
}

// work is one event in the hands of a guest.
type work struct {
	agent.Event
	ctx     context.Context
	effects []agent.Effect
	count   int
	host    *fakeHost
	memory  map[string]int
}

func (w *work) send(to string, data any) {
	w.effect(agent.Effect{Op: agent.OpSend, To: to, Data: mustJSON(data)})
}

func (w *work) effect(f agent.Effect) {
	f.N = len(w.effects) + 1
	w.effects = append(w.effects, f)
}

func (w *work) call(binding, method string, params any) (agent.Reply, []byte) {
	return w.host.call(agent.Call{Binding: binding, Method: method, Params: mustJSON(params),
		Key: fmt.Sprintf("%s/%d/%d", w.host.l.AgentID, w.Seq, 1000+len(w.effects))})
}

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

var errKilled = errors.New("killed by the test")

func (f *fakeJails) dies(instance, point string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.die != nil && f.die(instance, point)
}

func (f *fakeJails) Limits(_ context.Context, l Launch) (Share, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s, ok := f.limits[l.AgentID]; ok {
		return s, nil
	}
	if f.missing != nil {
		return Share{}, f.missing
	}
	return Share{Memory: 128 << 20, PIDs: 64}, nil
}

func (f *fakeJails) Load(ctx context.Context, l Load) (Loaded, error) {
	f.mu.Lock()
	load := f.load
	f.mu.Unlock()
	return load(ctx, l)
}

func (f *fakeJails) Command(ctx context.Context, c Command) (toolsession.Output, error) {
	f.mu.Lock()
	command := f.command
	f.mu.Unlock()
	return command(ctx, c)
}

func (f *fakeJails) Propose(_ context.Context, c Changes) (Proposed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes = append(f.changes, c)
	return Proposed{ID: "commit", State: pending, Added: 1}, nil
}

func (f *fakeJails) Discard(_ context.Context, c Changes) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes = append(f.changes, c)
	return nil
}

func (f *fakeJails) EndTools(_ context.Context, instance string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, instance)
	return nil
}

func (f *fakeJails) Usage(context.Context) (map[string]Usage, error) { return nil, nil }

type fakeHost struct {
	f       *fakeJails
	l       Launch
	out     *agent.Writer
	mu      sync.Mutex
	calls   uint64
	replies map[uint64]chan agent.Reply
}

func (h *fakeHost) call(c agent.Call) (last agent.Reply, text []byte) {
	h.mu.Lock()
	h.calls++
	c.ID = h.calls
	replies := make(chan agent.Reply, 64)
	h.replies[c.ID] = replies
	h.mu.Unlock()
	if err := h.out.Write(agent.Report{Call: &c}); err != nil {
		return agent.Reply{Error: &agent.Error{Code: agent.ErrFailed, Message: err.Error()}}, nil
	}
	for last = range replies {
		text = append(text, last.Chunk...)
		if !last.More {
			break
		}
	}
	return last, text
}

func (f *fakeJails) Run(ctx context.Context, l Launch, o Orders) (End, error) {
	f.mu.Lock()
	d := f.disks[l.Instance]
	if d == nil {
		d = &disk{}
		f.disks[l.Instance] = d
	}
	f.ran[l.Instance]++
	f.launches[l.Instance] = l
	f.mu.Unlock()
	h := &fakeHost{f: f, l: l, out: agent.NewWriter(o.Out),
		replies: map[uint64]chan agent.Reply{}}
	orders := make(chan agent.Order, 4*manifest.MaxBatch)
	go func() {
		defer close(orders)
		in := agent.NewReader(o.In)
		for {
			var order agent.Order
			if err := in.Read(&order); err != nil {
				return
			}
			if order.Reply != nil {
				h.mu.Lock()
				h.replies[order.Reply.ID] <- *order.Reply
				h.mu.Unlock()
				continue
			}
			orders <- order
		}
	}()
	if f.dies(l.Instance, "start") {
		return End{}, errKilled
	}
	f.mu.Lock()
	ready := agent.Ready{Committed: d.committed}
	left := slices.Clone(d.left)
	f.mu.Unlock()
	for _, e := range left {
		part := agent.Ready{Committed: ready.Committed, Left: []agent.Effects{e}, More: true}
		if err := h.out.Write(agent.Report{Ready: &part}); err != nil {
			return End{}, nil
		}
	}
	if err := h.out.Write(agent.Report{Ready: &ready}); err != nil {
		return End{}, nil
	}
	run := func(w *work) error {
		f.mu.Lock()
		now := f.guest[l.Instance]
		if now == nil {
			now = f.classes[l.Class]
		}
		f.mu.Unlock()
		return now(w)
	}
	memory := map[string]int{}
	for {
		select {
		case order, ok := <-orders:
			if !ok {
				return End{}, nil
			}
			switch end, err := h.order(ctx, order, run, memory, d); {
			case err != nil:
				return End{}, err
			case end:
				return End{}, nil
			}
		case <-ctx.Done():
			return End{}, ctx.Err()
		}
	}
}

func (h *fakeHost) order(ctx context.Context, o agent.Order, run guest, memory map[string]int,
	d *disk) (end bool, err error) {
	switch {
	case o.Settled > 0:
		h.f.mu.Lock()
		d.left = slices.DeleteFunc(d.left, func(e agent.Effects) bool { return e.Seq <= o.Settled })
		h.f.mu.Unlock()
	case o.Sleep:
		if h.f.dies(h.l.Instance, "sleep") {
			<-ctx.Done()
			return true, nil
		}
		return true, h.out.Write(agent.Report{Slept: true})
	case o.Admin != nil:
		text := mustJSON(map[string]int{"count": d.count})
		return false, h.out.Write(agent.Report{Admin: &agent.AdminResult{ID: o.Admin.ID,
			Data: text}})
	case o.Event != nil:
		return h.event(ctx, *o.Event, run, memory, d)
	}
	return false, nil
}

func (h *fakeHost) event(ctx context.Context, e agent.Event, run guest, memory map[string]int,
	d *disk) (end bool, err error) {
	w := &work{Event: e, ctx: ctx, host: h, count: d.count, memory: memory}
	if err := run(w); err != nil {
		if errors.Is(err, errKilled) || ctx.Err() != nil {
			return false, err
		}
		return true, h.out.Write(agent.Report{Failed: &agent.Failed{Seq: e.Seq,
			Code: agent.ErrFailed, Message: err.Error()}})
	}
	if h.f.dies(h.l.Instance, "before commit") {
		return false, errKilled
	}
	done := agent.Effects{Seq: e.Seq, Effects: w.effects}
	h.f.mu.Lock()
	d.committed, d.count = e.Seq, w.count
	d.seen = append(d.seen, e.ID)
	d.left = append(d.left, done)
	h.f.mu.Unlock()
	if h.f.dies(h.l.Instance, "after commit") {
		return false, errKilled
	}
	if err := h.out.Write(agent.Report{Done: &done}); err != nil {
		return true, nil
	}
	if h.f.dies(h.l.Instance, "after done") {
		return false, errKilled
	}
	return false, nil
}

// A world is a place with agents, whose agentd can be ended and started again.
type world struct {
	t     *testing.T
	dir   string
	jails *fakeJails
	now   func() time.Time
	*Agents
	records func(audit.AgentStep)
	models  models.Asker
	awake   int
	queue   *fakeQueue
}

// A fakeQueue is the approval queue, which survives jail-agentd.
type fakeQueue struct {
	mu sync.Mutex
	// all are the actions, by their ids; key is that of their proposer.
	all map[string]*fakeAction
	// lost is an error of each answer that is lost after the queue has done what it was asked.
	lost error
}

type fakeAction struct {
	Proposal
	state, claimed, reported string
	changed                  chan struct{}
}

// change changes the action with an id, and returns the error of an answer that is lost.
func (f *fakeQueue) change(id string, by func(*fakeAction)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.all[id]
	if x == nil {
		x = &fakeAction{state: pending, changed: make(chan struct{})}
		f.all[id] = x
	}
	by(x)
	close(x.changed)
	x.changed = make(chan struct{})
	err := f.lost
	f.lost = nil
	return err
}

func (f *fakeQueue) Propose(_ context.Context, p Proposal) (string, error) {
	if string(p.Data) == `"no"` {
		return "", errors.New("the ceiling forbids that")
	}
	return "action " + p.Key, f.change("action "+p.Key, func(x *fakeAction) { x.Proposal = p })
}

func (f *fakeQueue) Decision(ctx context.Context, id, key string, wait time.Duration) (Decision,
	error) {
	f.mu.Lock()
	x, lost := f.all[id], f.lost
	f.lost = nil
	if x == nil {
		f.mu.Unlock()
		return Decision{State: "expired", Why: "there is no such action"}, nil
	}
	if x.state == Approved && key == x.Key {
		x.claimed = key
	}
	state, changed := x.state, x.changed
	f.mu.Unlock()
	if state == pending && lost == nil {
		select {
		case <-changed:
		case <-time.After(wait):
		case <-ctx.Done():
			lost = ctx.Err()
		}
	}
	return Decision{State: state}, lost
}

func (f *fakeQueue) Applied(_ context.Context, id, key string) error {
	return f.change(id, func(x *fakeAction) { x.reported = key })
}

func (f *fakeQueue) Withdraw(_ context.Context, id string) error {
	return f.change(id, func(x *fakeAction) { x.state = "withdrawn" })
}

// decide is what a person does with all actions that wait.
func (f *fakeQueue) decide(state string) (ids []string) {
	f.mu.Lock()
	for id, x := range f.all {
		if x.state == pending {
			ids = append(ids, id)
		}
	}
	f.mu.Unlock()
	for _, id := range ids {
		_ = f.change(id, func(x *fakeAction) { x.state = state })
	}
	return ids
}

// get returns the action with an id.
func (f *fakeQueue) get(id string) fakeAction {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.all[id]; x != nil {
		return *x
	}
	return fakeAction{}
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), now: time.Now, jails: &fakeJails{disks: map[string]*disk{},
		guest: map[string]guest{}, ran: map[string]int{}, classes: map[string]guest{},
		launches: map[string]Launch{}, limits: map[string]Share{}},
		queue: &fakeQueue{all: map[string]*fakeAction{}}}
	return w
}

func (w *world) start() *world {
	w.t.Helper()
	s, err := store.Open(filepath.Join(w.dir, "agentd.db"), "ann", func() time.Time {
		return w.now()
	})
	if err != nil {
		w.t.Fatal(err)
	}
	a, err := New(Options{Store: s, Jails: w.jails, Models: w.models, Queue: w.queue, Record: w.records,
		Folder: filepath.Join(w.dir, "agents"), State: filepath.Join(w.dir, "state"),
		Now: func() time.Time { return w.now() }, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		FirstPause: 2 * time.Millisecond, Awake: w.awake})
	if err != nil {
		w.t.Fatal(err)
	}
	w.Agents = a
	w.t.Cleanup(w.stop)
	return w
}

func (w *world) stop() {
	w.Agents.Close()
	if err := w.Agents.Store.Close(); err != nil {
		w.t.Error(err)
	}
}

// crash ends agentd without letting anything end properly.
func (w *world) crash() {
	w.Agents.cancel()
	w.stop()
}

// install writes an agent and registers it, and returns its first instance.
func (w *world) install(name, more string, run guest) store.Instance {
	w.t.Helper()
	dir := filepath.Join(w.dir, "agents", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	text := fmt.Sprintf("agent = 1\ntype = \"agent\"\nname = %q\nmodule = \"python/python3\"\n"+
		"args = [\"main.py\"]\n%s", name, more)
	for file, text := range map[string]string{"agent.toml": text, "main.py": "print(1)\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := w.register(w.t.Context(), name); err != nil {
		w.t.Fatal(err)
	}
	all := w.instances(name)
	w.jails.mu.Lock()
	defer w.jails.mu.Unlock()
	for _, i := range all {
		w.jails.guest[i.Name] = run
	}
	return all[0]
}

func (w *world) instances(name string) []store.Instance {
	w.t.Helper()
	all, err := w.Of(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

func (w *world) instance(name string) store.Instance { return w.instances(name)[0] }

func (w *world) say(i store.Instance, data any) uint64 {
	w.t.Helper()
	seq, err := w.Send(i.ID, agent.Event{Source: "user", Channel: i.Channel,
		Type: agent.TypeMessage, Data: mustJSON(data)})
	if err != nil {
		w.t.Fatal(err)
	}
	return seq
}

// still lets no instance run from here on.
func (w *world) still() {
	w.turns.mu.Lock()
	defer w.turns.mu.Unlock()
	w.turns.most = 0
}

// hanging is how long anything may take before it counts as hanging.
const hanging = 5 * time.Minute

// until waits for a condition.
func (w *world) until(what string, done func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(hanging)
	for !done() {
		if time.Now().After(deadline) {
			w.t.Fatalf("after %v still not: %s", hanging, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (w *world) empty(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.until("the inbox of "+name+" is empty", func() bool {
			return w.instance(name).Waiting == 0
		})
	}
}

func (w *world) disk(i store.Instance) disk {
	w.jails.mu.Lock()
	defer w.jails.mu.Unlock()
	if d := w.jails.disks[i.Name]; d != nil {
		copied := *d
		copied.seen = slices.Clone(d.seen)
		return copied
	}
	return disk{}
}
