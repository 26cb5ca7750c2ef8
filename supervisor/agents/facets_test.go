package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/models"
)

const withFacets = "capabilities = { facets = true, storage = true, ai = true }\n"

// hostCall makes a call of HOST and reads its result.
func (w *work) hostCall(method string, params, result any) *agent.Error {
	r, _ := w.call(agent.Host, method, params)
	if r.Error == nil && result != nil {
		if err := json.Unmarshal(r.Result, result); err != nil {
			return &agent.Error{Code: "test", Message: err.Error()}
		}
	}
	return r.Error
}

func (w *work) answer(result any) {
	w.effect(agent.Effect{Op: agent.OpSend, Type: agent.TypeResult, ReplyTo: w.ID,
		Data: mustJSON(result)})
}

type params = map[string]any

// results are those of callFacets.
type results []struct {
	Result json.RawMessage
	Error  *agent.Error
}

func callsOf(method string, names ...string) params {
	var all []params
	for _, name := range names {
		all = append(all, params{"name": name, "method": method, "args": params{"of": name}})
	}
	return params{"calls": all}
}

// do has the agent a run f as its event, and waits for that.
func (w *world) do(i store.Instance, f func(w *work)) {
	w.t.Helper()
	done := make(chan struct{})
	w.jails.mu.Lock()
	var once sync.Once
	w.jails.guest[i.Name] = func(in *work) error {
		once.Do(func() {
			f(in)
			close(done)
		})
		return nil
	}
	w.jails.mu.Unlock()
	w.say(i, "go")
	select {
	case <-done:
	case <-time.After(hanging):
		w.t.Fatal("the event does not end")
	}
	w.empty(i.Agent)
}

// A meeting is a model that answers nobody before all have asked.
type meeting struct{ asked sync.WaitGroup }

func (m *meeting) Ask(context.Context, manifest.Role, string, []byte) (*models.Response, error) {
	m.asked.Done()
	m.asked.Wait()
	answer := answers(200, streams["chat"])
	return &answer, nil
}

// Three sub-agents work and ask a model at one time: one after the other would hang.
func TestFacetsWorkInParallel(t *testing.T) {
	w, model := newWorld(t), &meeting{}
	model.asked.Add(3)
	w.models = model
	w.start()
	// What docs/agents/facets.md gives an agent whose facets run Python.
	w.jails.limits["agent:ann:a"] = Share{512 << 20, 64}
	a := w.install("a", withFacets+"[ai.roles]\nfast = { form = \"chat\", "+
		"url = \"https://model.example\", model = \"m1\", credential = \"k\" }\n", nil)
	w.jails.classes["worker"] = func(w *work) error {
		if reply, text := w.call(agent.AI, "streamText", params{"role": "fast",
			"prompt": "x"}); reply.Error != nil || string(text) != streams["chat"] {
			return fmt.Errorf("%+v, %q", reply.Error, text)
		}
		var call struct{ Args struct{ Of string } }
		if err := json.Unmarshal(w.Data, &call); err != nil {
			return err
		}
		w.count++
		w.answer(call.Args.Of)
		return nil
	}
	w.do(a, func(in *work) {
		for _, name := range []string{"x", "y", "z"} {
			var made child
			if err := in.hostCall("facet", params{"name": name, "class": "worker",
				"bindings": []string{"STORAGE", "AI"}}, &made); err != nil {
				t.Error(err)
			}
			if made.Name != name || made.ID != "agent:ann:a/"+name {
				t.Errorf("%+v", made)
			}
		}
		var all results
		if err := in.hostCall("callFacets", callsOf("work", "x", "y", "z"), &all); err != nil {
			t.Error(err)
		}
		if text := string(mustJSON(all)); !strings.Contains(text, `"x"`) ||
			strings.Index(text, `"y"`) < strings.Index(text, `"x"`) || len(all) != 3 {
			t.Error(text)
		}
	})
	for _, i := range w.instances("a") {
		if i.Parent == 0 {
			continue
		}
		// Each has its own database, with its own call alone.
		if d := w.disk(i); d.count != 1 || len(d.seen) != 1 {
			t.Errorf("%s: %+v", i.Name, d)
		}
	}
	// A call of an event that comes again is not carried out again, and has the same answer: the
	// facets would wait for each other for ever.
}

// What a facet gets is what its parent has and asks for.
func TestFacetHasNoMoreThanItsParent(t *testing.T) {
	w := newWorld(t)
	w.start()
	a := w.install("a", withFacets+"[storage]\nsize = \"8MiB\"\n", nil)
	everything := params{"bindings": []string{"PUBSUB", "STORAGE", "AI", "HOST"}, "network": true,
		"facets": true, "storage": 1 << 30, "limits": []string{"memory=1TiB", "pids=100000"},
		"policy": "policy = 1\n"}
	with := func(more params) params {
		out := params{}
		for _, p := range []params{everything, more} {
			for k, v := range p {
				out[k] = v
			}
		}
		return out
	}
	w.jails.classes["outer"] = func(in *work) error {
		if err := in.hostCall("facet", with(params{"name": "in", "class": "inner"}), nil); err != nil {
			return err
		}
		var all results
		if err := in.hostCall("callFacets", callsOf("", "in"), &all); err != nil {
			return err
		}
		in.answer(all)
		return nil
	}
	w.jails.classes["inner"] = func(in *work) error { in.answer("done"); return nil }
	w.do(a, func(in *work) {
		if err := in.hostCall("facet", with(params{"name": "out", "class": "outer",
			"bindings": []string{"STORAGE", "HOST"}}), nil); err != nil {
			t.Error(err)
		}
		var all results
		if err := in.hostCall("callFacets", callsOf("", "out"), &all); err != nil ||
			!strings.Contains(string(mustJSON(all)), "done") {
			t.Errorf("%v %s", err, mustJSON(all))
		}
	})
	w.jails.mu.Lock()
	defer w.jails.mu.Unlock()
	for _, l := range w.jails.launches {
		m, depth := l.Manifest, strings.Count(l.AgentID, "/")
		if m.Capabilities.Network || m.Storage > 8<<20 || len(l.Narrow) != depth {
			t.Errorf("%s: %+v, narrowed by %q", l.AgentID, m, l.Narrow)
		}
		if depth > 0 && !slices.Equal(m.Bindings(), []string{"STORAGE", "HOST"}) {
			t.Errorf("%s has the bindings %q", l.AgentID, m.Bindings())
		}
		// Half of what is there at each depth.
		if want := int64(64<<20) >> depth; l.Share == nil || l.Share.Memory != want {
			t.Errorf("%s has %+v, want %d bytes", l.AgentID, l.Share, want)
		}
	}
}

// A facet that is awake while its parent is narrowed has no more than the parent from its next event
// on.
func TestFacetOfANarrowedParent(t *testing.T) {
	w := newWorld(t)
	w.start()
	const rest = "[wake]\nidle = \"10m\"\n"
	a := w.install("a", withFacets+rest, nil)
	w.jails.classes["f"] = func(in *work) error { in.answer(in.host.l.Manifest.Bindings()); return nil }
	// has returns the bindings with which the facet answers.
	has := func(ask bool) (bindings string) {
		w.do(a, func(in *work) {
			if ask {
				if err := in.hostCall("facet", params{"name": "f", "class": "f",
					"bindings": []string{"STORAGE", "AI"}}, nil); err != nil {
					t.Error(err)
				}
			}
			var all results
			if err := in.hostCall("callFacets", callsOf("", "f"), &all); err != nil ||
				all[0].Error != nil {
				t.Errorf("%v %s", err, mustJSON(all))
			}
			bindings = string(all[0].Result)
		})
		return bindings
	}
	if got := has(true); got != `["STORAGE","AI","HOST"]` {
		t.Errorf("at first it has %s", got)
	}
	w.install("a", strings.Replace(withFacets, "ai = true", "ai = false", 1)+rest, nil)
	if got := has(false); got != `["STORAGE","HOST"]` {
		t.Errorf("after its parent was narrowed it has %s", got)
	}
}

// An agent whose files, or what it asks for a facet, change while an event of it goes on can call its
// facets in that event: they do not wait until it sleeps.
func TestFacetsOfAChangedAgent(t *testing.T) {
	w := newWorld(t)
	w.start()
	const rest = "[wake]\nidle = \"10m\"\ndeadline = \"2m\"\n"
	a := w.install("a", withFacets+rest, nil)
	facet := params{"name": "f", "class": "f", "facets": true}
	// steps of the facet: it has begun, and may go on.
	steps := make(chan struct{})
	w.jails.classes["f"] = func(in *work) error {
		for range 2 {
			select {
			case steps <- struct{}{}:
			case <-in.ctx.Done():
				return in.ctx.Err()
			}
		}
		if err := in.hostCall("facet", params{"name": "g", "class": "g"}, nil); err != nil {
			return err
		}
		var all results
		if err := in.hostCall("callFacets", callsOf("", "g"), &all); err != nil {
			return err
		}
		in.answer(all)
		return nil
	}
	w.jails.classes["g"] = func(in *work) error { in.answer("done"); return nil }
	for what, changes := range map[string]func(in *work){
		"nothing":       func(*work) {},
		"its files":     func(*work) { w.install("a", withFacets+rest+"batch = 7\n", nil) },
		"its facet":     func(in *work) { in.facetAgain(t, facet, params{"config": params{"n": 1}}) },
		"what it keeps": func(*work) { w.install("a", withFacets+rest+"[facets]\npids = 8\n", nil) },
	} {
		w.do(a, func(in *work) {
			in.facetAgain(t, facet, nil)
			for range 2 {
				go func() {
					<-steps
					changes(in)
					<-steps
				}()
				var all results
				in.effects = append(in.effects, agent.Effect{}) // another key
				if err := in.hostCall("callFacets", callsOf("", "f"), &all); err != nil ||
					!strings.Contains(string(mustJSON(all)), "done") {
					t.Errorf("%s changes: %v %s", what, err, mustJSON(all))
				}
			}
			in.effects = nil
		})
	}
}

// facetAgain gets a facet with what is asked for now.
func (w *work) facetAgain(t *testing.T, ask, more params) {
	all := maps.Clone(ask)
	maps.Copy(all, more)
	if err := w.hostCall("facet", all, nil); err != nil {
		t.Error(err)
	}
}

// A facet for which another one leaves too little says so in the log, and which limits to raise.
func TestCrowdedFacetSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.start()
	a := w.install("a", withFacets, nil)
	w.jails.classes["f"] = func(in *work) error {
		for in.ctx.Err() == nil {
			all, err := w.Store.Published(t.Context(), "a", 0, 100)
			if err != nil {
				return err
			}
			for _, p := range all {
				if p.Kind == store.LogKind {
					in.answer(string(p.Data))
					return nil
				}
			}
			// The one that waits has done so for a while.
			w.turns.mu.Lock()
			for _, at := range w.turns.all {
				if !at.crowded.IsZero() {
					at.crowded = time.Now().Add(-crowdedNote)
				}
			}
			w.turns.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		return in.ctx.Err()
	}
	w.do(a, func(in *work) {
		for _, name := range []string{"x", "y"} {
			in.facetAgain(t, params{"name": name, "class": "f", "limits": []string{"memory=1TiB"}}, nil)
		}
		var all results
		err := in.hostCall("callFacets", callsOf("", "x", "y"), &all)
		if text := string(mustJSON(all)); err != nil || !strings.Contains(text, "waiting for its turn: "+
			"other facets of the agent are awake: they have 64MiB of memory and 12 processes, this one "+
			"needs 64MiB") ||
			!strings.Contains(text, "raise memory and pids in [limits]") {
			t.Errorf("%v %s", err, text)
		}
	})
}

// A call of a facet that has failed too often is an error at once, until it is got again. An agent that
// is paused ends its event with the facets that the event calls.
func TestCallsOfFailedAndPausedFacets(t *testing.T) {
	w := newWorld(t)
	w.start()
	a := w.install("a", withFacets+"[wake]\nidle = \"10m\"\ndeadline = \"2m\"\n", nil)
	fails := true
	w.jails.classes["f"] = func(in *work) error {
		if fails {
			return errors.New("module " + filepath.Join(w.o.State, "x/m.wasm") + " is damaged")
		}
		in.answer("done")
		return nil
	}
	facet := params{"name": "f", "class": "f"}
	// call calls facets and returns what is said.
	call := func(in *work, names ...string) string {
		var all results
		in.effects = append(in.effects, agent.Effect{}) // another key
		if err := in.hostCall("callFacets", callsOf("", names...), &all); err != nil {
			return err.Code
		}
		return string(mustJSON(all))
	}
	w.do(a, func(in *work) {
		in.facetAgain(t, facet, nil)
		for n := range mostFailures + 1 {
			if said := call(in, "f"); strings.Contains(said, "has failed, and is not woken: ") !=
				(n == mostFailures) || !strings.Contains(said, `"failed"`) ||
				!strings.Contains(said, ": module x/m.wasm is damaged") {
				t.Errorf("call %d: %s", n, said)
			}
		}
		fails = false
		in.facetAgain(t, facet, nil)
		if said := call(in, "f", "f"); strings.Count(said, "done") != 2 {
			t.Errorf("the facet that is got again: %s", said)
		}
		if err := w.Pause(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		for range 2 {
			if said := call(in, "f", "f"); strings.Count(said, "done") != 2 {
				t.Errorf("the agent is paused: %s", said)
			}
		}
		in.effects = nil
	})
	w.until("the agent and its facet sleep", func() bool { return w.turns.count() == 0 })
}

func TestFacetBounds(t *testing.T) {
	w := newWorld(t)
	w.start()
	a := w.install("a", withFacets, nil)
	other := w.install("b", "capabilities = { storage = true }\n", nil)
	w.do(other, func(in *work) {
		if err := in.hostCall("facet", params{"name": "x"}, nil); err == nil ||
			err.Code != agent.ErrNoBinding {
			t.Errorf("an agent without the capability: %v", err)
		}
	})
	w.do(a, func(in *work) {
		for _, p := range []params{{"name": "X"}, {"name": "1"}, {"name": "../x"}, {"name": ""},
			{"name": "x", "bindings": []string{"ROOT"}}, {"name": "x", "limits": []string{"memory"}},
			{"name": "x", "limits": []string{"memry=1MiB"}}, {"name": "x", "storage": 1},
			{"name": "x", "config": 7}, {"name": "x", "root": true},
			{"name": "x", "policy": strings.Repeat("#", 1<<17)}} {
			if err := in.hostCall("facet", p, nil); err == nil || err.Code != agent.ErrParams {
				t.Errorf("facet %s: %v", mustJSON(p), err)
			}
		}
		for n := range store.MaxFacets + 1 {
			err := in.hostCall("facet", params{"name": fmt.Sprint("x", n)}, nil)
			if (err != nil) != (n == store.MaxFacets) {
				t.Errorf("facet %d: %v", n+1, err)
			}
		}
		var all results
		if err := in.hostCall("callFacets", callsOf("", "nobody"), &all); err != nil ||
			all[0].Error == nil || all[0].Error.Code != agent.ErrNotFound {
			t.Errorf("%v %s", err, mustJSON(all))
		}
	})
	// Four in one another, and not five.
	deep := func(in *work) error {
		var all results
		err := in.hostCall("facet", params{"name": "d", "facets": true, "class": "deep",
			"limits": []string{"memory=1TiB", "pids=1000"}}, nil)
		if err == nil {
			err = in.hostCall("callFacets", callsOf("", "d"), &all)
		}
		if err != nil {
			in.answer(err.Code)
		} else {
			in.answer(all[0])
		}
		return nil
	}
	w.jails.classes["deep"] = deep
	b := w.install("c", withFacets, nil)
	w.do(b, func(in *work) {
		if err := deep(in); err != nil {
			t.Error(err)
		}
		said := string(in.effects[0].Data)
		if strings.Count(said, "Result") != 4 || !strings.Contains(said, agent.ErrTooLarge) {
			t.Error(said)
		}
	})
}

// Nobody but its parent reaches a facet, and a facet without PUBSUB reaches nobody but its parent.
func TestFacetIsItsParentsAlone(t *testing.T) {
	w := newWorld(t)
	w.start()
	a := w.install("a", withFacets, nil)
	b := w.install("b", "capabilities = { storage = true }\n", func(*work) error { return nil })
	w.jails.classes["loud"] = func(in *work) error {
		// As a jail whose host has been taken over would report it.
		in.send("", "to everybody")
		in.send("b", "to one")
		in.effect(agent.Effect{Op: agent.OpSettings, Data: json.RawMessage(`{"x":1}`)})
		in.answer("said")
		return nil
	}
	for _, tt := range []struct {
		bindings []string
		heard    int
	}{{nil, 0}, {[]string{"PUBSUB"}, 2}} {
		w.do(a, func(in *work) {
			if err := in.hostCall("facet", params{"name": "f", "class": "loud",
				"bindings": tt.bindings}, nil); err != nil {
				t.Error(err)
			}
			var all results
			if err := in.hostCall("callFacets", callsOf("", "f"), &all); err != nil ||
				all[0].Error != nil {
				t.Errorf("%v %s", err, mustJSON(all))
			}
			// By its own agent's name, or as a channel, it is not there.
			in.send("a/f", "x")
			in.send("agent:ann:a/f", "x")
		})
		w.until("the facet sleeps with what it was told", func() bool {
			return w.instances("a")[1].Waiting == 0
		})
		w.empty("b")
		if heard := len(w.disk(b).seen); heard != tt.heard {
			t.Errorf("with the bindings %q b heard %d messages", tt.bindings, heard)
		}
		w.jails.mu.Lock()
		delete(w.jails.disks, b.Name)
		w.jails.mu.Unlock()
	}
	members, err := w.Store.Members(t.Context(), "main")
	if err != nil || len(members) != 2 {
		t.Errorf("%d members: %v", len(members), err)
	}
}

func TestFacetIsAborted(t *testing.T) {
	w := newWorld(t)
	w.start()
	a := w.install("a", withFacets, nil)
	working := make(chan struct{}, 10)
	hang := true
	w.jails.classes["f"] = func(in *work) error {
		if in.count++; hang && in.count == 2 {
			working <- struct{}{}
			<-in.ctx.Done()
			return in.ctx.Err()
		}
		in.answer(in.count)
		return nil
	}
	w.do(a, func(in *work) {
		if err := in.hostCall("facet", params{"name": "f", "class": "f"}, nil); err != nil {
			t.Error(err)
		}
		one := func(want string) {
			var all results
			in.effects = append(in.effects, agent.Effect{}) // another key
			if err := in.hostCall("callFacets", callsOf("", "f"), &all); err != nil ||
				!strings.Contains(string(mustJSON(all)), want) {
				t.Errorf("%v %s, want %s", err, mustJSON(all), want)
			}
		}
		one("1")
		go func() {
			<-working
			if err := in.hostCall("abortFacet", params{"name": "f", "reason": "too slow"},
				nil); err != nil {
				t.Error(err)
			}
			working <- struct{}{}
		}()
		one(agent.ErrAborted)
		<-working
		hang = false
		// It starts anew with what it had committed.
		one("2")
		in.effects = nil
	})
}

func TestFacetIsDeletedWithAllBelow(t *testing.T) {
	w := newWorld(t)
	w.start()
	a := w.install("a", withFacets, nil)
	w.jails.classes["f"] = func(in *work) error {
		if err := in.hostCall("facet", params{"name": "g", "class": "g"}, nil); err != nil {
			return err
		}
		var all results
		if err := in.hostCall("callFacets", callsOf("", "g"), &all); err != nil {
			return err
		}
		in.answer("f")
		return nil
	}
	w.jails.classes["g"] = func(in *work) error { in.answer("g"); return nil }
	grow := func(in *work) {
		if err := in.hostCall("facet", params{"name": "f", "class": "f", "facets": true},
			nil); err != nil {
			t.Error(err)
		}
		var all results
		in.effects = append(in.effects, agent.Effect{})
		if err := in.hostCall("callFacets", callsOf("", "f"), &all); err != nil || all[0].Error != nil {
			t.Errorf("%v %s", err, mustJSON(all))
		}
		in.effects = nil
	}
	// The files are those of a jail, which the test has none of.
	files := func() {
		for _, i := range w.instances("a") {
			if err := errors.Join(os.MkdirAll(w.stateDir(i.Name), 0o700),
				os.WriteFile(w.stateDir(i.Name)+"/state.db", []byte("x"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func(want int) {
		t.Helper()
		entries, err := os.ReadDir(w.o.State)
		if err != nil || len(entries) != want || len(w.instances("a")) != want {
			t.Errorf("%v: %d directories and %d instances, want %d", err, len(entries),
				len(w.instances("a")), want)
		}
	}
	w.do(a, grow)
	files()
	left(3)
	w.do(a, func(in *work) {
		var d deleted
		for _, want := range []bool{true, false} {
			if err := in.hostCall("deleteFacet", params{"name": "f"}, &d); err != nil ||
				d.Deleted != want {
				t.Errorf("%v %+v", err, d)
			}
		}
		left(1)
	})
	// A crash after the first step, and one in the middle of the files.
	for _, gone := range []int{0, 1} {
		w.do(a, grow)
		files()
		f, err := store.ChildrenOf(w.Store).Find(t.Context(), a, "f")
		if err != nil {
			t.Fatal(err)
		}
		all, err := store.ChildrenOf(w.Store).Condemn(f.ID)
		if err != nil || len(all) != 2 {
			t.Fatal(all, err)
		}
		if gone > 0 {
			if err := os.RemoveAll(w.stateDir(all[0].Name)); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := store.ChildrenOf(w.Store).Get(a.ID, "f", nil); !errors.Is(err,
			store.ErrDeleting) {
			t.Errorf("the name of what is being deleted: %v", err)
		}
		w.crash()
		w.start()
		left(1)
	}
	w.do(a, grow)
	files()
	if err := w.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(w.o.State); err != nil || len(entries) != 0 {
		t.Errorf("after the agent was deleted: %v %v", entries, err)
	}
}

// More facets than may be awake at one time all have their turn.
func TestManyFacets(t *testing.T) {
	w := newWorld(t)
	w.start()
	a := w.install("a", withFacets+"[wake]\nidle = \"10m\"\n", nil)
	var mu sync.Mutex
	awake, most := map[string]bool{}, 0
	w.jails.classes["f"] = func(in *work) error {
		mu.Lock()
		awake[in.host.l.Instance] = true
		mu.Unlock()
		w.families.mu.Lock()
		for _, n := range w.families.awake {
			most = max(most, n)
		}
		w.families.mu.Unlock()
		in.answer(1)
		return nil
	}
	w.do(a, func(in *work) {
		var names []string
		for n := range 40 {
			names = append(names, fmt.Sprint("f", n))
			if err := in.hostCall("facet", params{"name": names[n], "class": "f",
				"limits": []string{"memory=1MiB", "pids=1"}}, nil); err != nil {
				t.Error(err)
			}
			w.jails.mu.Lock()
			w.jails.limits["agent:ann:a/"+names[n]] = Share{1 << 20, 1}
			w.jails.mu.Unlock()
		}
		var all results
		if err := in.hostCall("callFacets", callsOf("", names...), &all); err != nil {
			t.Error(err)
		}
		for n, r := range all {
			if r.Error != nil {
				t.Errorf("facet %d: %v", n, r.Error)
			}
		}
	})
	if len(awake) != 40 || most > mostFacets {
		t.Errorf("%d facets were awake, %d of them at one time", len(awake), most)
	}
}

// Whatever runs, all jails of a family together have no more than the agent.
func TestFamiliesDivideWhatThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &families{}
		whole := Share{rapid.Int64Range(1<<20, 1<<30).Draw(t, "memory"),
			rapid.Int64Range(4, 1000).Draw(t, "pids")}
		n := rapid.IntRange(2, 12).Draw(t, "instances")
		lines, limits := make([][]kin, n), map[string]Share{}
		for i := range n {
			m := manifest.Manifest{}
			m.Capabilities.Facets = i == 0 || rapid.Bool().Draw(t, "facets")
			m.Facets.Memory = rapid.SampledFrom([]int64{0, 0, 1 << 20, 1 << 40}).Draw(t, "part")
			k := kin{instance: store.Instance{ID: int64(i + 1)},
				launch: Launch{Instance: fmt.Sprint(i), Manifest: m}}
			if rapid.Bool().Draw(t, "named") {
				k.ask.Limits = []string{"memory=1TiB", "pids=1000"}
			}
			limits[fmt.Sprint(i)] = whole
			var above []kin
			if i > 0 {
				above = lines[rapid.IntRange(0, i-1).Draw(t, "parent")]
			}
			lines[i] = append(slices.Clone(above), k)
		}
		// Files may change while something runs.
		versions := 0
		change := func(i int, facets bool) {
			versions++
			for _, line := range lines {
				for at := range line {
					if k := &line[at]; k.instance.ID == int64(i+1) {
						k.version = fmt.Sprint(versions)
						k.launch.Manifest.Capabilities.Facets = facets
					}
				}
			}
		}
		running := map[int]Share{}
		grant := func(_ context.Context, l Launch) (Share, error) { return limits[l.Instance], nil }
		for range 40 {
			i := rapid.IntRange(0, n-1).Draw(t, "which")
			if rapid.IntRange(0, 5).Draw(t, "changes") == 0 {
				change(i, rapid.Bool().Draw(t, "facets"))
			} else if _, ok := running[i]; ok {
				f.leave(lines[i])
				delete(running, i)
			} else if own, err := f.enter(context.Background(), lines[i], grant); err == nil {
				if running[i] = whole; own != nil {
					running[i] = *own
				}
			} else if !errors.Is(err, errCrowded) && !errors.Is(err, errNothing) {
				t.Fatal(err)
			}
			sum := Share{}
			for _, s := range running {
				if s.Memory < 1 || s.PIDs < 1 {
					t.Fatalf("one has %+v", s)
				}
				sum = sum.plus(s)
			}
			if !sum.fitsIn(whole) {
				t.Fatalf("%+v together, of %+v", sum, whole)
			}
		}
		for i := range running {
			f.leave(lines[i])
		}
		if len(f.accounts) != 0 || len(f.awake) != 0 {
			t.Fatalf("%d accounts are left", len(f.accounts))
		}
	})
}

// A facet has those gatekeepers that its parent has and asks for, and none unasked.
func TestGatekeepersOfFacets(t *testing.T) {
	parent := manifest.Manifest{Capabilities: manifest.Capabilities{
		Gatekeepers: []string{"crm", "tracker"}}}
	got := ask{Gatekeepers: []string{"crm", "other"}}.of(parent)
	if !slices.Equal(got.Capabilities.Gatekeepers, []string{"crm"}) ||
		len(ask{}.of(got).Capabilities.Gatekeepers) > 0 || len(parent.Capabilities.Gatekeepers) != 2 {
		t.Errorf("%q of %q", got.Capabilities.Gatekeepers, parent.Capabilities.Gatekeepers)
	}
}
