package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// clock is one that the test moves.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) jump(d time.Duration)    { c.ahead.Add(int64(d)) }
func (w *world) tell(name string, d any) { w.say(w.instance(name), d) }
func (w *world) alarms(name string) []agentapi.Alarm {
	w.t.Helper()
	all, err := w.Store.Alarms(w.t.Context(), w.instance(name).ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// Rule 7: an alarm has fired when its event is committed. After downtime, a restart in the middle or
// a clock that jumps it comes once, and says how late it is.
func TestRule7Alarms(t *testing.T) {
	var c clock
	w := newWorld(t)
	w.now = c.now
	w.start()
	var mu sync.Mutex
	fired := map[string][]int64{}
	refuse := true
	run := func(g *work) error {
		switch g.Type {
		case agent.TypeMessage:
			for _, name := range []string{"one", "two"} {
				g.effect(agent.Effect{Op: agent.OpAlarm, Name: name,
					At: c.now().Add(time.Hour)})
			}
		case agent.TypeAlarm:
			mu.Lock()
			defer mu.Unlock()
			if refuse {
				refuse = false
				return errors.New("not now")
			}
			var a struct {
				Name   string `json:"name"`
				LateMS int64  `json:"late_ms"`
			}
			if err := json.Unmarshal(g.Data, &a); err != nil {
				return err
			}
			fired[a.Name] = append(fired[a.Name], a.LateMS)
		}
		return nil
	}
	w.install("a", "", run)
	w.tell("a", "go")
	w.empty("a")
	if got := w.alarms("a"); len(got) != 2 {
		t.Fatalf("alarms %+v", got)
	}
	// The clock jumps back: nothing fires.
	c.jump(-2 * time.Hour)
	w.crash()
	w.start()
	if got := w.alarms("a"); len(got) != 2 {
		t.Fatalf("after the clock was set back there are %+v", got)
	}
	w.crash()
	c.jump(6 * time.Hour)
	w.start()
	w.until("both alarms have fired", func() bool { return len(w.alarms("a")) == 0 })
	w.crash()
	w.start()
	w.empty("a")
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"one", "two"} {
		if len(fired[name]) != 1 || fired[name][0] < (3*time.Hour-time.Minute).Milliseconds() {
			t.Errorf("alarm %s came %d times, late by %v ms", name, len(fired[name]), fired[name])
		}
	}
	if refuse {
		t.Error("no alarm came twice because its event failed: the test tests nothing")
	}
}

// An alarm that is due while its event waits makes no second one, and one that is set again while
// its event waits fires again after it.
func TestOneOutstandingAlarm(t *testing.T) {
	var c clock
	w := newWorld(t)
	w.now = c.now
	w.start()
	ticks := 0
	w.install("a", "[wake]\nheartbeat = \"1m\"\n", func(g *work) error {
		if g.Type == agent.TypeTick {
			ticks++
		}
		return nil
	})
	if err := w.Pause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.jump(5 * time.Minute)
		nudge(w.Agents.alarms)
		w.until("the tick waits", func() bool { return w.instance("a").Waiting > 0 })
	}
	if got := w.instance("a").Waiting; got != 1 {
		t.Errorf("%d ticks wait, want 1", got)
	}
	if err := w.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.empty("a")
	if got := w.alarms("a"); len(got) != 1 || got[0].Pending != 0 ||
		got[0].At.Before(c.now().Add(30*time.Second)) {
		t.Errorf("the heartbeat is %+v", got)
	}
	w.stop()
	if ticks != 1 {
		t.Errorf("%d ticks, want 1", ticks)
	}
	w.start()
}

// An agent that sleeps is woken by each of these, and is told which it was.
func TestWakeReasons(t *testing.T) {
	var c clock
	var mu sync.Mutex
	var reasons []string
	w := newWorld(t)
	w.now = c.now
	w.records = func(s audit.AgentStep) {
		mu.Lock()
		defer mu.Unlock()
		if s.ID == "agent:ann:a" && s.Step == audit.AgentWoken {
			reasons = append(reasons, s.Reason)
		}
	}
	w.start()
	i := w.install("a", "channels = [\"team\"]\n[wake]\nidle = \"100ms\"\nheartbeat = \"1h\"\n",
		func(g *work) error {
			switch g.Type {
			case agent.TypeMessage:
				g.effect(agent.Effect{Op: agent.OpAlarm, Name: "tea", At: c.now().Add(time.Minute)})
			case agent.TypeDirect:
				g.effect(agent.Effect{Op: agent.OpPropose, Data: mustJSON("deploy")})
			}
			return nil
		})
	w.install("b", "channels = [\"team\"]\n", func(g *work) error {
		switch to := string(g.Data); to {
		case `"mention"`:
			g.send("team", "look, @a")
		case `"direct"`:
			g.send("a", "you")
		}
		return nil
	})
	for n, step := range []struct {
		reason string
		do     func()
	}{
		{agent.TypeMessage, func() { w.say(i, "hi") }},
		{agent.TypeAlarm, func() { c.jump(2 * time.Minute); nudge(w.Agents.alarms) }},
		{agent.TypeTick, func() { c.jump(2 * time.Hour); nudge(w.Agents.alarms) }},
		{agent.TypeMention, func() { w.tell("b", "mention") }},
		{agent.TypeDirect, func() { w.tell("b", "direct") }},
		{agent.TypeApproval, func() { w.queued(1); w.queue.decide(Approved) }},
		{"webhook", func() {
			if _, err := w.Send(i.ID, agent.Event{Source: "user", Channel: "team", Type: "webhook",
				Data: mustJSON(1)}); err != nil {
				t.Error(err)
			}
		}},
		{agent.TypeManual, func() {
			if _, err := w.Operate(t.Context(), i, agent.AdminTables, nil); err != nil {
				t.Error(err)
			}
		}},
	} {
		step.do()
		w.until("it is woken by "+step.reason, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(reasons) > n
		})
		if mu.Lock(); reasons[n] != step.reason {
			t.Errorf("wake %d is by %q, want %q", n, reasons[n], step.reason)
		}
		mu.Unlock()
		w.until("it is dormant", func() bool {
			return w.instance("a").Waiting == 0 && w.turns.state(i.ID) == "" &&
				w.StateOf(w.instance("a")) == store.Dormant
		})
	}
}

// A changed agent is loaded anew while events wait for it: none is lost, none comes twice.
func TestReload(t *testing.T) {
	w := newWorld(t).start()
	if err := w.Watch(); err != nil {
		t.Fatal(err)
	}
	const events = 1000
	var versions sync.Map
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	// Else the end of a test that has failed would wait for the event.
	defer open()
	i := w.install("a", "config = { version = 0 }\n", nil)
	w.jails.guest[i.Name] = func(g *work) error {
		if g.count == events/10 {
			<-gate
		}
		versions.Store(string(g.host.l.Manifest.Config), nil)
		g.count++
		return nil
	}
	for n := range events {
		w.say(i, n)
	}
	w.until("some are done", func() bool { return w.disk(i).count == events/10 })
	before, err := w.Store.Agent(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.dir, "agents", "a", "agent.toml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "version = 0", "version = 1", 1))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	w.until("the change is seen", func() bool {
		now, err := w.Store.Agent(t.Context(), "a")
		return err == nil && now.Digest != before.Digest
	})
	open()
	w.empty("a")
	w.until("it runs in its new version", func() bool {
		w.jails.mu.Lock()
		defer w.jails.mu.Unlock()
		return w.jails.ran[i.Name] > 1
	})
	d := w.disk(i)
	slices.Sort(d.seen)
	if d.count != events || len(slices.Compact(d.seen)) != events {
		t.Errorf("%d events, want %d, each once", d.count, events)
	}
}

// An agent that loops, one that dies and one that does not sleep change nothing for another.
func TestIsolation(t *testing.T) {
	w := newWorld(t)
	w.awake = 4
	w.start()
	w.jails.die = func(instance, point string) bool {
		return instance == "agent-insomniac-main" && point == "sleep"
	}
	w.install("loops", "[wake]\ndeadline = \"100ms\"\n", func(g *work) error {
		<-g.ctx.Done()
		return g.ctx.Err()
	})
	w.install("dies", "", func(*work) error { return errKilled })
	w.install("insomniac", "[wake]\nidle = \"100ms\"\n", count)
	good := w.install("good", "", count)
	for _, name := range []string{"loops", "dies", "insomniac"} {
		w.tell(name, "x")
	}
	for n := range 200 {
		w.say(good, n)
	}
	w.empty("good", "insomniac")
	if got := w.disk(good).count; got != 200 {
		t.Errorf("the good agent counts %d, want 200", got)
	}
	w.until("the event of the agent that dies is a dead letter", func() bool {
		letters, err := w.Store.Letters(t.Context(), w.instance("dies").ID, 1)
		return err == nil && len(letters) == 1
	})
}

// More agents than may be awake at one time all have their turn.
func TestTurns(t *testing.T) {
	w := newWorld(t)
	w.awake = 3
	w.start()
	const agents = 20
	var names []string
	for n := range agents {
		name := fmt.Sprintf("a%d", n)
		names = append(names, name)
		w.say(w.install(name, "[wake]\nidle = \"10m\"\n", count), n)
	}
	w.empty(names...)
	w.until("few are awake", func() bool { return w.turns.count() <= 3 })
}

// Two agents whose instances would have one name: the second is refused.
func TestInstanceNames(t *testing.T) {
	w := newWorld(t).start()
	w.install("a-b", `channels = ["c"]`, count)
	dir := filepath.Join(w.dir, "agents", "a")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "agent = 1\ntype = \"agent\"\nname = \"a\"\nmodule = \"python/python3\"\n" +
		"channels = [\"b-c\"]\n"
	if err := os.WriteFile(filepath.Join(dir, manifest.File), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := w.register(t.Context(), "a"); !errors.Is(err, store.ErrTaken) {
		t.Errorf("an instance of the name agent-a-b-c a second time: %v", err)
	}
	if _, err := w.Of(t.Context(), "a"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the refused agent is registered: %v", err)
	}
}

// An agent that sends to a full inbox is as slow as the receiver; what has no room after a while is
// no loss, but a dead letter.
func TestFullInbox(t *testing.T) {
	w := newWorld(t).start()
	b := w.install("b", "", count)
	if err := w.Pause(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 200<<10)
	full := 0
	for {
		_, err := w.Send(b.ID, agent.Event{Source: "user", Type: "message", Data: mustJSON(large)})
		if errors.Is(err, store.ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		full++
	}
	if full < 300 || full > 330 {
		t.Errorf("%d events of 200 KiB fit, want those of 64 MiB", full)
	}
	w.install("a", "", func(g *work) error {
		g.send("b", large)
		return nil
	})
	w.tell("a", "go")
	w.until("the send waits", func() bool { return w.turns.state(w.instance("a").ID) == "active" })
	if err := w.Resume(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	w.empty("a", "b")
	if got := w.disk(b).count; got != full+1 {
		t.Errorf("b counts %d, want %d", got, full+1)
	}
}

// The other way of Ack: it does not wait.
func TestSpill(t *testing.T) {
	w := newWorld(t).start()
	a, b := w.install("a", "", count), w.install("b", "", count)
	w.still()
	large := mustJSON(strings.Repeat("x", 200<<10))
	for {
		if _, err := w.Send(b.ID, agent.Event{Source: "user", Type: "message",
			Data: large}); err != nil {
			break
		}
	}
	seq := w.say(a, "x")
	if _, _, err := w.Store.Next(a.ID, 0, 1); err != nil {
		t.Fatal(err)
	}
	effects := []agent.Effects{{Seq: seq, Effects: []agent.Effect{{N: 1, Op: agent.OpSend, To: "b",
		Data: large}}}}
	if _, err := w.Store.Ack(a.ID, seq, effects, false, store.Want{}); !errors.Is(err, store.ErrFull) {
		t.Fatalf("without spill: %v", err)
	}
	if got := w.instance("a").Waiting; got != 1 {
		t.Fatalf("after a refused Ack %d events wait, want 1", got)
	}
	done, err := w.Store.Ack(a.ID, seq, effects, true, store.Want{})
	if err != nil || len(done.Spilled) != 1 {
		t.Fatalf("with spill: %+v, %v", done, err)
	}
	letters, err := w.Store.Letters(t.Context(), b.ID, 10)
	if err != nil || len(letters) != 1 || letters[0].ID != "agent:ann:a/1/1" {
		t.Errorf("letters %d, %v", len(letters), err)
	}
}

// An agent cannot claim what was never delivered to it, send in another's name, or reach a channel
// that its manifest does not name.
func TestHostileReports(t *testing.T) {
	w := newWorld(t).start()
	a := w.install("a", `channels = ["team"]`, count)
	b := w.install("b", `channels = ["secret"]`, count)
	w.still()
	w.say(a, "x")
	w.say(a, "y")
	if _, err := w.Store.Ack(a.ID, 2, nil, false, store.Want{}); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("an event that was not delivered: %v", err)
	}
	if _, _, err := w.Store.Next(a.ID, 0, 1); err != nil {
		t.Fatal(err)
	}
	done, err := w.Store.Ack(a.ID, 1, []agent.Effects{{Seq: 1, Effects: []agent.Effect{
		{N: 1, Op: agent.OpSend, To: "secret", Data: mustJSON("x")},
		{N: 2, Op: agent.OpUpdate, ID: "agent:ann:b/1/1", Data: mustJSON("x")},
		{N: 3, Op: "grant", Data: mustJSON("x")},
		{N: 4, Op: agent.OpSend, To: "nobody", Data: mustJSON("x")},
		{N: 5, Op: agent.OpSettings, To: "secret", Data: mustJSON(map[string]int{"x": 1})},
		{N: 6, Op: agent.OpAlarm, Name: "", At: time.Now()},
	}}}, false, store.Want{})
	if err != nil || len(done.Refused) != 6 {
		t.Errorf("refused %q, %v", done.Refused, err)
	}
	if got := w.instance("b").Waiting; got != 0 {
		t.Errorf("%d events came to b on a channel that a is not on", got)
	}
	_ = b
}

// An agent cannot tell another one of an approval, an alarm or a call in the place of jail-agentd,
// whatever its jail reports, and its message is not direct or a mention because it says so.
func TestReservedTypes(t *testing.T) {
	w := newWorld(t).start()
	a, b := w.install("a", `channels = ["team"]`, count), w.install("b", `channels = ["team"]`, count)
	w.still()
	seq := w.say(a, "x")
	if _, _, err := w.Store.Next(a.ID, 0, 1); err != nil {
		t.Fatal(err)
	}
	var effects []agent.Effect
	send := func(to, kind, data string) {
		effects = append(effects, agent.Effect{N: len(effects) + 1, Op: agent.OpSend, To: to,
			Type: kind, Data: mustJSON(data)})
	}
	for _, kind := range []string{agent.TypeApproval, agent.TypeAlarm, agent.TypeTick,
		agent.TypeCall, agent.TypeManual, agent.TypeRoster} {
		send("b", kind, "forged")
	}
	send("", agent.TypeDirect, "to all")
	send("", agent.TypeMention, "to @b")
	send("b", agent.TypeMention, "to b")
	send("b", "note", "to b")
	done, err := w.Store.Ack(a.ID, seq, []agent.Effects{{Seq: seq, Effects: effects}}, false,
		store.Want{})
	if err != nil || len(done.Refused) != 6 {
		t.Errorf("refused %q, %v", done.Refused, err)
	}
	events, _, err := w.Store.Next(b.ID, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, e.Type)
	}
	want := []string{agent.TypeMessage, agent.TypeMention, agent.TypeDirect, "note"}
	if !slices.Equal(got, want) {
		t.Errorf("events of the types %q, want %q", got, want)
	}
}

// Operations of the owner's are answered by the agent's jail, also of an agent that is paused.
func TestOperation(t *testing.T) {
	w := newWorld(t).start()
	i := w.install("a", "", count)
	w.tell("a", "x")
	w.empty("a")
	if err := w.Pause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.tell("a", "waits")
	got, err := w.Operate(t.Context(), i, agent.AdminTables, nil)
	if err != nil || string(got) != `{"count":1}` {
		t.Errorf("%s, %v", got, err)
	}
	if got := w.instance("a").Waiting; got != 1 {
		t.Errorf("%d events wait for a paused agent, want 1", got)
	}
}

// Agents on one channel see each other, and call the methods that others offer; the same call of an
// event that comes again is carried out once.
func TestCallMethod(t *testing.T) {
	w := newWorld(t).start()
	called := 0
	w.install("adder", "[config]\nmethods = [{ name = \"add\", description = \"adds\" }]\n",
		func(g *work) error {
			if g.Type != agent.TypeCall {
				return nil
			}
			called++
			g.effect(agent.Effect{Op: agent.OpSend, Type: agent.TypeResult, ReplyTo: g.ID,
				Data: mustJSON(3)})
			return nil
		})
	first := true
	var roster, methods, result, unknown agent.Reply
	var wrong []agent.Reply
	w.install("asker", "", func(g *work) error {
		if g.Type != agent.TypeMessage {
			return fmt.Errorf("an event of the type %s", g.Type)
		}
		roster, _ = g.call(agent.PubSub, "roster", nil)
		methods, _ = g.call(agent.PubSub, "discoverMethodDefs", nil)
		unknown, _ = g.call(agent.PubSub, "callMethod", map[string]any{"providerId": "adder",
			"methodName": "subtract"})
		result, _ = g.call(agent.PubSub, "callMethod", map[string]any{"providerId": "adder",
			"methodName": "add", "args": []int{1, 2}})
		if first {
			first = false
			return errKilled
		}
		for method, params := range map[string]any{
			"roster": map[string]int{"page": 1}, "getSettings": map[string]int{"page": 1},
			"discoverMethodDefs": map[string]int{"page": 1}, "callMethod": map[string]any{
				"providerId": "adder", "methodName": "add", "arguments": []int{1, 2}}} {
			reply, _ := g.call(agent.PubSub, method, params)
			wrong = append(wrong, reply)
		}
		return nil
	})
	w.tell("asker", "go")
	w.empty("asker", "adder")
	w.stop()
	if string(result.Result) != "3" || called != 1 {
		t.Errorf("the result is %s, %+v, of %d calls", result.Result, result.Error, called)
	}
	if !strings.Contains(string(roster.Result), `"agent:ann:adder"`) ||
		!strings.Contains(string(methods.Result), `"methodName":"add"`) {
		t.Errorf("roster %s, methods %s", roster.Result, methods.Result)
	}
	if unknown.Error == nil || unknown.Error.Code != agent.ErrNotFound {
		t.Errorf("a method that is not there: %+v", unknown.Error)
	}
	for _, reply := range wrong {
		if reply.Error == nil || reply.Error.Code != agent.ErrParams {
			t.Errorf("a parameter that is not there: %s, %+v", reply.Result, reply.Error)
		}
	}
	w.start()
}

// An agent cannot ask for the answer that another one got, by the key of the other's call.
func TestForgedKey(t *testing.T) {
	w := newWorld(t).start()
	w.install("teller", "[config]\nmethods = [{ name = \"tell\", description = \"tells\" }]\n",
		func(g *work) error {
			if g.Type == agent.TypeCall {
				g.effect(agent.Effect{Op: agent.OpSend, Type: agent.TypeResult, ReplyTo: g.ID,
					Data: mustJSON("for " + g.Source)})
			}
			return nil
		})
	what := map[string]any{"providerId": "teller", "methodName": "tell"}
	const key = "agent:ann:friend/1/1"
	ask := func(g *work) agent.Reply {
		reply, _ := g.host.call(agent.Call{Binding: agent.PubSub, Method: "callMethod",
			Params: mustJSON(what), Key: key})
		return reply
	}
	var friend, stranger agent.Reply
	w.install("friend", "", func(g *work) error { friend = ask(g); return nil })
	w.install("stranger", "[wake]\nretries = 0\n", func(g *work) error { stranger = ask(g); return nil })
	w.tell("friend", "go")
	w.empty("friend", "teller")
	w.tell("stranger", "go")
	w.empty("stranger", "teller")
	w.stop()
	if string(friend.Result) != `"for agent:ann:friend"` {
		t.Fatalf("the friend got %s, %+v", friend.Result, friend.Error)
	}
	if len(stranger.Result) > 0 {
		t.Errorf("the stranger got %s", stranger.Result)
	}
	w.start()
}

// An agent that waits for its next try can be deleted.
func TestDeleteFailing(t *testing.T) {
	w := newWorld(t).start()
	w.o.FirstPause = time.Hour
	i := w.install("a", "", func(*work) error { return errKilled })
	w.tell("a", "x")
	w.until("it waits for its next try", func() bool {
		return !w.instance("a").NotBefore.IsZero() && w.turns.state(i.ID) == ""
	})
	if err := w.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := w.turns.count(); got != 0 {
		t.Errorf("%d turns are left", got)
	}
}

// Delete ends what runs and leaves nothing of the agent; a new one of the name begins anew.
func TestDelete(t *testing.T) {
	w := newWorld(t).start()
	i := w.install("a", "[wake]\ndeadline = \"1h\"\n", func(g *work) error {
		<-g.ctx.Done()
		return errKilled
	})
	if err := os.MkdirAll(w.stateDir(i.Name), 0o700); err != nil {
		t.Fatal(err)
	}
	w.tell("a", "x")
	w.until("it runs", func() bool { return w.turns.state(i.ID) == store.Active })
	if err := w.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{w.stateDir(i.Name), filepath.Join(w.dir, "agents", "a")} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	if _, err := w.Of(t.Context(), "a"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the agent is still there: %v", err)
	}
	again := w.install("a", "", count)
	if seq := w.say(again, "x"); seq != 2 || again.ID == i.ID {
		t.Errorf("event %d of instance %d, which was %d", seq, again.ID, i.ID)
	}
	w.empty("a")
}
