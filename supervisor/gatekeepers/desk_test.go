package gatekeepers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// errCut is what the process of a desk sees that is killed.
var errCut = errors.New("killed by the test")

// A world is a queue and a table of entries, which outlive the desks that use them.
type world struct {
	actions []*approvals.Action
	keys    map[string]string
	entries []Entry
	told    []string
	// cut kills the desk at the nth step of those that follow; steps counts them.
	cut, steps int
	// gets and lists count the actions that were asked for, and the lists of them.
	gets, lists int
	// Who waits for a change says so on idle, and waits for changed.
	idle, changed chan struct{}
}

// step is a point at which a desk may be killed.
func (w *world) step() error {
	if w.steps++; w.steps == w.cut {
		return errCut
	}
	if w.cut > 0 && w.steps > w.cut {
		// It is dead.
		return errCut
	}
	return nil
}

func (w *world) Find(_ context.Context, ref string) ([]byte, error) {
	for _, e := range w.entries {
		if e.Ref == ref {
			return raws(e), nil
		}
	}
	return nil, nil
}

func (w *world) Put(ref string, _ time.Time, over bool, entry []byte) error {
	var e Entry
	if err := json.Unmarshal(entry, &e); err != nil || e.Ref != ref || e.Over != over {
		return errors.Join(err, errors.New("an entry of another name"))
	}
	if err := w.step(); err != nil {
		return err
	}
	i := slices.IndexFunc(w.entries, func(o Entry) bool { return o.Ref == e.Ref })
	if i < 0 {
		w.entries = append(w.entries, e)
	} else {
		w.entries[i] = e
	}
	return w.step()
}

func (w *world) Remove(ref string) error {
	w.entries = slices.DeleteFunc(w.entries, func(e Entry) bool { return e.Ref == ref })
	return nil
}

func (w *world) Forget(time.Time, int) error { return nil }

func (w *world) All(context.Context) (all [][]byte, err error) {
	for _, e := range w.entries {
		all = append(all, raws(e))
	}
	return all, nil
}

func (w *world) Open(context.Context) (all [][]byte, err error) {
	for _, e := range w.entries {
		if !e.Over {
			all = append(all, raws(e))
		}
	}
	return all, nil
}

func (w *world) find(id string) *approvals.Action {
	for _, a := range w.actions {
		if a.ID == id {
			return a
		}
	}
	return nil
}

func (w *world) Propose(_ context.Context, r api.ProposeRequest) (approvals.Action, error) {
	if err := w.step(); err != nil {
		return approvals.Action{}, err
	}
	if r.Words == "never" {
		return approvals.Action{}, problem.New(problem.Refused, "the policy lets nobody approve it")
	}
	a := &approvals.Action{ID: fmt.Sprintf("a%d", len(w.actions)), Type: r.Type, Run: r.Run,
		Agent: r.Agent, External: r.External, State: approvals.Pending, Reversible: r.Gate.Reversible}
	w.actions = append(w.actions, a)
	w.keys[a.ID] = r.Key
	return *a, w.step()
}

func (w *world) Get(_ context.Context, id string) (approvals.Action, error) {
	w.gets++
	if a := w.find(id); a != nil {
		return *a, nil
	}
	return approvals.Action{}, problem.New(problem.NotFound, "no action")
}

func (w *world) List(_ context.Context, over bool) (all []approvals.Action, err error) {
	w.lists++
	for _, a := range w.actions {
		if over || !a.State.Over() {
			all = append(all, *a)
		}
	}
	return all, nil
}

func (w *world) Changed(ctx context.Context, _ string, _ time.Duration) ([]approvals.Action, error) {
	select {
	case w.idle <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-w.changed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return w.List(ctx, false)
}

// Carry claims, does and reports, as api.Carry does, and may be killed between any two of them.
func (w *world) Carry(_ context.Context, id, key string,
	do func(approvals.Action) (string, error)) (approvals.Action, error) {
	a := w.find(id)
	if err := w.step(); err != nil {
		return approvals.Action{}, err
	}
	if a.Claim != nil || w.keys[id] != key {
		return approvals.Action{}, problem.New(problem.Conflict, "it is claimed")
	}
	a.Claim = &approvals.Claim{}
	if a.State == approvals.Approved {
		a.State = approvals.Applying
	}
	if err := w.step(); err != nil {
		return approvals.Action{}, err
	}
	outcome, failed := do(*a)
	if err := w.step(); err != nil {
		return approvals.Action{}, err
	}
	r := approvals.ReportRequest{Key: key, State: approvals.Applied, Outcome: outcome}
	if a.State == approvals.Reverting {
		r.State = approvals.Reverted
	}
	if failed != nil {
		r.State, r.Error = approvals.Failed, failed.Error()
	}
	if errors.Is(failed, api.ErrChanged) && a.State == approvals.Applying {
		r.State = approvals.Stale
	}
	return w.report(id, r)
}

func (w *world) report(id string, r approvals.ReportRequest) (approvals.Action, error) {
	a := w.find(id)
	if w.keys[id] != r.Key || a.Claim == nil {
		return *a, problem.New(problem.Refused, "the key is not that of the action")
	}
	if a.State == approvals.Reverting && r.State == approvals.Failed {
		r.State = approvals.Applied
	}
	if a.State == approvals.Applying {
		a.Outcome = r.Outcome
	}
	a.State, a.Error = r.State, r.Error
	return *a, w.step()
}

func (w *world) Report(_ context.Context, id string,
	r approvals.ReportRequest) (approvals.Action, error) {
	if err := w.step(); err != nil {
		return approvals.Action{}, err
	}
	return w.report(id, r)
}

// desk is the desk of a process that has just begun.
func (w *world) desk(f *sqliteFile) *Desk {
	d := New(Options{Entries: w, Now: time.Now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Kept: func() ([]Kept, error) {
			return []Kept{{Settings{Name: "crm", Agents: []string{"triage"}}, f}}, nil
		},
		Queue: func(context.Context) (Queue, func(), error) { return w, func() {}, nil }})
	d.tell = func(e Entry, a approvals.Action) error {
		if err := w.step(); err != nil {
			return err
		}
		if last := len(w.told) - 1; last < 0 || w.told[last] != string(a.State) {
			// An inbox takes an event once.
			w.told = append(w.told, string(a.State))
		}
		return w.step()
	}
	return d
}

var triage = Caller{Agent: "triage", ID: "agent:ann:triage", Instance: 7, Run: "r",
	Allowed: []string{"crm"}}

func ofTriage(ref string) Proposal {
	return Proposal{Gatekeeper: "crm", Action: "update", Ref: ref,
		Args: raws(object{"table": "customers", "key": object{"id": 1}, "set": object{"city": "Zug"}})}
}

// TestKilledDesk kills a desk at each of its steps, from the proposal to the action's reversal. The
// next one goes on: there is one action, the row is the old one or the new one, what is carried out is
// so once, and the agent hears of the end.
func TestKilledDesk(t *testing.T) {
	ctx := t.Context()
	f := customers(t, t.TempDir(), "MEMORY")
	before := rowOf(t, f, 1)
	ends := map[string]int{}
	for cut := 1; ; cut++ {
		w := &world{keys: map[string]string{}, cut: cut}
		d := w.desk(f)
		// dead starts another process if this one was killed.
		dead := func() {
			if w.steps >= w.cut {
				w.cut = 0
				d = w.desk(f)
			}
		}
		// An event is delivered again until it is committed.
		for n := 0; ; n++ {
			_, err := d.Propose(ctx, triage, ofTriage("7 agent:ann:triage/1/1"))
			dead()
			if err == nil || n > 2 {
				break
			}
		}
		if len(w.actions) != 1 {
			t.Fatalf("step %d: %d actions", cut, len(w.actions))
		}
		a := w.actions[0]
		look := func() {
			// A killed one leaves the rest to the next.
			_, _ = d.each(ctx, true)
			dead()
			if _, err := d.each(ctx, true); err != nil {
				t.Fatalf("step %d: %v", cut, err)
			}
		}
		a.State = approvals.Approved
		look()
		if applied := a.State == approvals.Applied; rowOf(t, f, 1) == before == applied {
			t.Fatalf("step %d: it is %s, and the row is %s", cut, a.State, rowOf(t, f, 1))
		}
		if a.State == approvals.Applied {
			a.State, a.Claim = approvals.Reverting, nil
			look()
			if a.State == approvals.Applied {
				// It was killed before it was undone, and stands. Somebody asks again.
				a.State, a.Claim = approvals.Reverting, nil
				look()
			}
		}
		if rowOf(t, f, 1) != before || !a.State.Over() || d.entries.Load() > 0 {
			t.Fatalf("step %d: at last it is %s, the row is %s, %d are open", cut, a.State, rowOf(t, f, 1),
				d.entries.Load())
		}
		if len(w.told) == 0 || w.told[len(w.told)-1] != string(a.State) {
			t.Fatalf("step %d: it is %s, and the agent was told %q", cut, a.State, w.told)
		}
		ends[string(a.State)]++
		if w.cut > w.steps {
			break
		}
		// The notes are by the ids of actions, which begin anew.
		f = customers(t, t.TempDir(), "MEMORY")
	}
	t.Logf("how it ended: %v", ends)
	if ends["reverted"] < 10 || ends["failed"] == 0 {
		t.Errorf("the desk was not killed everywhere: %v", ends)
	}
}

func TestDesk(t *testing.T) {
	ctx := t.Context()
	f := customers(t, t.TempDir(), "MEMORY")
	w := &world{keys: map[string]string{}}
	d := w.desk(f)
	first, err := d.Propose(ctx, triage, ofTriage("1"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.Propose(ctx, triage, ofTriage("1"))
	if err != nil || again.ID != first.ID || len(w.actions) != 1 {
		t.Errorf("the same proposal again: %+v, %v", again, err)
	}
	other := ofTriage("1")
	other.Args = raws(object{"table": "customers", "key": object{"id": 2}, "set": object{"city": "Zug"}})
	if _, err := d.Propose(ctx, triage, other); err == nil {
		t.Error("another action with the name of the first")
	}
	if !w.entries[0].Request.Ask {
		t.Error("the policy could approve it at once")
	}
	g := w.actions[0].Gate
	if g.Gatekeeper != "crm" || !strings.HasSuffix(g.Resource, `/crm.db#customers{"id":1}`) ||
		!strings.Contains(g.Args, `"before":{`) || !strings.Contains(g.Args, `"after":{`) {
		t.Errorf("people see %+v", g)
	}
	w.actions[0].State = approvals.Rejected
	if _, err := d.each(ctx, true); err != nil || !slices.Equal(w.told, []string{"rejected"}) ||
		d.Waiting() > 0 {
		t.Errorf("rejected: told %q, %d wait, %v", w.told, d.Waiting(), err)
	}
	refused := ofTriage("2")
	refused.Words = "never"
	if _, err := d.Propose(ctx, triage, refused); err == nil {
		t.Error("the policy forbids it")
	}
	if text, _ := w.Find(ctx, "2"); text != nil {
		t.Error("what was refused is kept")
	}
	hidden := ofTriage("3")
	hidden.Args = raws(object{"table": "customers", "key": object{"id": 1},
		"set": object{"city": "a\u202eb\u0007"}})
	if _, err := d.Propose(ctx, triage, hidden); err != nil ||
		strings.ContainsAny(w.actions[1].Gate.Args, "\u202e\u0007") ||
		!json.Valid([]byte(w.actions[1].Gate.Args)) {
		t.Errorf("characters that nobody sees: %v, %q", err, w.actions[len(w.actions)-1].Gate.Args)
	}
	large := ofTriage("4")
	large.Args = raws(object{"table": "customers", "key": object{"id": 1},
		"set": object{"city": strings.Repeat("x", maxArgs)}})
	if _, err := d.Propose(ctx, triage, large); err == nil {
		t.Error("an action that is too large for people")
	}
}

// A desk with many actions asks only for those of which the list says that somebody has decided.
func TestManyActions(t *testing.T) {
	f := customers(t, t.TempDir(), "MEMORY")
	w := &world{keys: map[string]string{}}
	d := w.desk(f)
	const many = 12
	for n := range many {
		if _, err := d.Propose(t.Context(), triage, ofTriage(fmt.Sprint(n))); err != nil {
			t.Fatal(err)
		}
	}
	look := func(forgotten bool, gets, waiting, entries int) {
		t.Helper()
		w.gets = 0
		if _, err := d.each(t.Context(), forgotten); err != nil || w.gets != gets ||
			d.Waiting() != waiting || int(d.entries.Load()) != entries {
			t.Errorf("%v, %d gets, %d of %d wait", err, w.gets, d.Waiting(), d.entries.Load())
		}
	}
	a := w.actions[0]
	look(false, 0, many, many)
	a.State = approvals.Approved
	w.actions[1].State = approvals.Rejected
	look(false, 2, many-2, many-1)
	if got := rowOf(t, f, 1); a.State != approvals.Applied || !strings.Contains(got, "Zug") {
		t.Errorf("it is %s, and the row is %s", a.State, got)
	}
	look(false, 0, many-2, many-1)
	a.State, a.Claim = approvals.Reverting, nil
	look(false, 1, many-2, many-2)
	if got := rowOf(t, f, 1); a.State != approvals.Reverted || !strings.Contains(got, "Bern") {
		t.Errorf("it is %s, and the row is %s", a.State, got)
	}
	// One that jaild has forgotten.
	w.actions[2].State = approvals.Approved
	look(false, 1, many-3, many-2)
	w.actions[2].ID = "gone"
	look(false, 0, many-3, many-2)
	look(true, 1, many-3, many-3)
}

// A desk that runs asks nothing until the queue says that something has changed, and then acts at
// once.
func TestDeskWaitsForChanges(t *testing.T) {
	f := customers(t, t.TempDir(), "MEMORY")
	w := &world{keys: map[string]string{}, idle: make(chan struct{}), changed: make(chan struct{})}
	d := w.desk(f)
	if _, err := d.Propose(t.Context(), triage, ofTriage("1")); err != nil {
		t.Fatal(err)
	}
	<-d.news
	ctx, stop := context.WithCancel(t.Context())
	told, ended := make(chan approvals.State), make(chan struct{})
	go func() {
		defer close(ended)
		d.Run(ctx, func(_ Entry, a approvals.Action) error {
			told <- a.State
			return nil
		})
	}()
	for _, step := range []struct{ is, becomes approvals.State }{
		{approvals.Approved, approvals.Applied}, {approvals.Reverting, approvals.Reverted}} {
		<-w.idle
		w.actions[0].State, w.actions[0].Claim = step.is, nil
		w.changed <- struct{}{}
		if state := <-told; state != step.becomes {
			t.Errorf("%s becomes %s", step.is, state)
		}
	}
	stop()
	<-ended
	// One at the start, and two for each change: that of the answer, and that of the look after it.
	if w.lists != 5 {
		t.Errorf("the queue was listed %d times", w.lists)
	}
}

// Only an agent whose manifest names the gatekeeper and that the owner has named may use it, and none
// is told of the others.
func TestWhoMayUseAGatekeeper(t *testing.T) {
	f := customers(t, t.TempDir(), "MEMORY")
	d := (&world{keys: map[string]string{}}).desk(f)
	for name, c := range map[string]struct {
		who Caller
		may bool
	}{
		"the owner":           {Caller{}, true},
		"an agent with both":  {triage, true},
		"not in the manifest": {Caller{Agent: "triage", Allowed: []string{"other"}}, false},
		"no manifest":         {Caller{Agent: "triage"}, false},
		"not named":           {Caller{Agent: "other", Allowed: []string{"crm"}}, false},
	} {
		all, err := d.Describe(t.Context(), c.who, "")
		if err != nil || len(all) == 1 != c.may {
			t.Errorf("%s: %d gatekeepers, %v", name, len(all), err)
		}
		_, err = d.Read(t.Context(), c.who, "crm", "count", raws(object{"table": "customers"}))
		if e, ok := errors.AsType[*agent.Error](err); err == nil != c.may || !c.may &&
			(!ok || e.Code != agent.ErrNotFound) {
			t.Errorf("%s reads: %v", name, err)
		}
		if _, err = d.Propose(t.Context(), c.who, ofTriage(name)); err == nil != c.may {
			t.Errorf("%s proposes: %v", name, err)
		}
	}
	all, err := d.Describe(t.Context(), triage, "crm")
	if err != nil || strings.Contains(string(raws(all)), f.File) {
		t.Errorf("an agent is told where the file is: %s, %v", raws(all), err)
	}
	d.o.Kept = func() ([]Kept, error) {
		return []Kept{{Settings{Name: "api", Agents: []string{"triage"}},
			&httpAPI{Settings: Settings{URL: "https://secret"}}}}, nil
	}
	of := triage
	of.Allowed = []string{"api"}
	if all, err := d.Describe(t.Context(), of, ""); err != nil || len(all) != 1 ||
		strings.Contains(string(raws(all)), "secret") {
		t.Errorf("an agent is told where the API is: %s, %v", raws(all), err)
	}
	d.o.Kept = func() ([]Kept, error) { return nil, errors.New("gatekeepers.toml: credential = secret") }
	for _, name := range []string{"", "api"} {
		if _, err := d.Describe(t.Context(), of, name); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("an agent reads the owner's file: %v", err)
		}
		if _, err := d.Describe(t.Context(), Caller{}, name); err == nil ||
			!strings.Contains(err.Error(), "secret") {
			t.Errorf("the owner is not told what is wrong: %v", err)
		}
	}
}
