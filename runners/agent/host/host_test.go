package host

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
)

// bound is how long a test waits for what hangs.
const bound = time.Minute

// A peer is in the place of jail-agentd.
type peer struct {
	t       *testing.T
	h       *Host
	to      *agent.Writer
	reports chan agent.Report
	exited  chan int
}

// start starts a host on the database in dir.
func start(t *testing.T, dir string, bindings ...string) *peer {
	t.Helper()
	return startWith(t, Options{Dir: dir, Bindings: bindings})
}

func startWith(t *testing.T, o Options) *peer {
	t.Helper()
	p := &peer{t: t, reports: make(chan agent.Report, 100), exited: make(chan int, 10)}
	in, stdin := io.Pipe()
	out, stdout := io.Pipe()
	p.to = agent.NewWriter(stdin)
	go func() {
		defer close(p.reports)
		frames := agent.NewReader(out)
		for {
			var r agent.Report
			if frames.Read(&r) != nil {
				return
			}
			p.reports <- r
		}
	}()
	var err error
	o.ID, o.Size, o.Deadline, o.In, o.Out = "agent:a:b", 1<<20, bound, in, stdout
	o.Exit = func(code int) { p.exited <- code }
	if p.h, err = New(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The host takes the end of the input for that of jail-agentd.
		stdin.Close()
		stdout.Close()
	})
	return p
}

func (p *peer) report() agent.Report {
	p.t.Helper()
	select {
	case r := <-p.reports:
		return r
	case <-time.After(bound):
		p.t.Fatal("no report")
		return agent.Report{}
	}
}

func (p *peer) order(o agent.Order) {
	p.t.Helper()
	if err := p.to.Write(o); err != nil {
		p.t.Fatal(err)
	}
}

// call returns the answer of a call.
func (p *peer) call(binding, method, params string) string {
	p.t.Helper()
	text, err := io.ReadAll(p.h.Call(binding, method, []byte(params)))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

func (p *peer) wants(binding, method, params, want string) {
	p.t.Helper()
	if got := p.call(binding, method, params); !strings.Contains(got, want) {
		p.t.Errorf("%s.%s %.60s: %s, want %s", binding, method, params, got, want)
	}
}

func event(seq uint64) agent.Order {
	return agent.Order{Event: &agent.Event{Seq: seq, ID: fmt.Sprint(seq)}}
}

// TestEffects: what an event sends is reported when it is committed, numbered, and not before.
func TestEffects(t *testing.T) {
	p := start(t, t.TempDir(), agent.Bindings...)
	p.report()
	p.wants(agent.PubSub, "send", `{"content":1}`, `"no_event"`)
	p.order(event(1))
	if n := p.h.Wait(bound); n.Type != nextEvent {
		t.Fatalf("%+v", n)
	}
	p.wants(agent.PubSub, "send", `{"content":{"a":1},"options":{"to":"team"}}`, `{"id":"agent:a:b/1/1"}`)
	p.wants(agent.Host, "setAlarm", `{"name":"x","in_ms":1000}`, `{}`)
	p.wants(agent.Host, "propose", `{"action":{}}`, `agent:a:b/1/3`)
	p.wants(agent.Host, "checkpoint", `{"seq":2}`, "but the event is 1")
	p.wants(agent.Host, "checkpoint", `{"seq":1}`, `{"result":{}}`)
	r := p.report()
	if r.Done == nil || r.Done.Seq != 1 || len(r.Done.Effects) != 3 || r.Done.Effects[1].Op !=
		agent.OpAlarm || time.Until(r.Done.Effects[1].At) > time.Minute {
		t.Errorf("%+v", r)
	}
	p.wants(agent.Host, "checkpoint", `{"seq":1}`, `"no_event"`)
}

// TestParams: wrong parameters, methods and bindings are errors.
func TestParams(t *testing.T) {
	p := start(t, t.TempDir(), agent.Host, agent.PubSub)
	p.report()
	p.order(event(1))
	p.h.Wait(bound)
	long := strings.Repeat("x", agent.MaxEvent)
	for _, c := range [][4]string{
		{agent.Storage, "exec", `{"sql":"SELECT 1"}`, `"no_binding"`},
		{agent.Host, "dance", `{}`, `"no_method"`},
		{agent.PubSub, "send", `{}`, `"bad_params"`},
		{agent.PubSub, "send", `{"content":1,"contents":1}`, `unknown field`},
		{agent.PubSub, "send", `{"content":1} {}`, `more than one JSON value`},
		{agent.PubSub, "send", `[`, `"bad_params"`},
		{agent.PubSub, "send", `{"content":"` + long + `"}`, `"too_large"`},
		{agent.PubSub, "send", `{"content":1,"options":{"to":"` + long[:1000] + `"}}`, `"bad_params"`},
		{agent.PubSub, "send", `{"content":1,"options":{"type":"approval"}}`, `given by jail-agentd`},
		{agent.PubSub, "update", `{"id":"x","content":1,"options":{"type":"tick"}}`, `given by jail-agentd`},
		{agent.PubSub, "roster", `[]`, `"bad_params"`},
		{agent.Host, "log", `{"level":"loud","message":"x"}`, `want info, warn or error`},
		{agent.Host, "setAlarm", `{"name":"x"}`, `want either at`},
		{agent.Host, "setAlarm", `{"name":"x","in_ms":-1}`, `in_ms`},
		{agent.Host, "setAlarm", `{"in_ms":1}`, `no name`},
	} {
		p.wants(c[0], c[1], c[2], c[3])
	}
	for range agent.MaxEffects {
		p.call(agent.PubSub, "send", `{"content":1}`)
	}
	p.wants(agent.PubSub, "send", `{"content":1}`, `"too_large"`)
}

// TestForward: jail-agentd answers calls in one reply or in several, as a stream, or with an error.
func TestForward(t *testing.T) {
	p := start(t, t.TempDir(), agent.Bindings...)
	p.report()
	p.order(event(7))
	p.h.Wait(bound)
	for _, c := range []struct {
		binding, method string
		replies         []agent.Reply
		want            string
	}{
		{agent.PubSub, "roster", []agent.Reply{{Result: json.RawMessage(`[1]`)}}, `{"result":[1]}`},
		{agent.PubSub, "getSettings", []agent.Reply{{}}, `{"result":null}`},
		{agent.PubSub, "callMethod", []agent.Reply{{Chunk: []byte(`{"a":`), More: true},
			{Chunk: []byte(`1}`)}}, `{"result":{"a":1}}`},
		{agent.AI, "listRoles", []agent.Reply{{Error: &agent.Error{Code: agent.ErrBusy}}},
			`{"error":{"code":"busy","message":""}}`},
		{agent.AI, "streamText", []agent.Reply{{Chunk: []byte("data: 1\n\n"), More: true},
			{Chunk: []byte("data: 2\n\n")}}, "data: 1\n\ndata: 2\n\n"},
		{agent.AI, "streamText", []agent.Reply{{Chunk: []byte("data: 1\n\n"), More: true},
			{Error: &agent.Error{Code: agent.ErrModel, Message: "x"}}},
			"data: 1\n\nevent: error\ndata: {\"code\":\"model\",\"message\":\"x\"}\n\n"},
	} {
		a := p.h.Call(c.binding, c.method, nil)
		r := p.report()
		if r.Call == nil || !strings.HasPrefix(r.Call.Key, "agent:a:b/7/") {
			t.Fatalf("%+v", r)
		}
		for _, reply := range c.replies {
			reply.ID = r.Call.ID
			p.order(agent.Order{Reply: &reply})
		}
		if text, err := io.ReadAll(a); string(text) != c.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", c.method, text, err, c.want)
		}
	}
	// An answer that nobody reads holds up nothing.
	a := p.h.Call(agent.AI, "streamText", nil)
	r := p.report()
	a.Close()
	for range 2 * maxAhead {
		p.order(agent.Order{Reply: &agent.Reply{ID: r.Call.ID, Chunk: []byte("x"), More: true}})
	}
	p.wants(agent.Host, "checkpoint", `{"seq":7}`, `{}`)
}

// TestNoneOvertakes: after an event that has failed the guest gets no other, and is to end.
func TestNoneOvertakes(t *testing.T) {
	p := start(t, t.TempDir(), agent.Bindings...)
	p.report()
	p.order(event(1))
	p.order(event(2))
	p.h.Wait(bound)
	p.wants(agent.Host, "fail", `{"seq":1,"message":"cannot"}`, `{}`)
	if r := p.report(); r.Failed == nil || r.Failed.Seq != 1 || r.Failed.Message != "cannot" {
		t.Errorf("%+v", r)
	}
	if n := p.h.Wait(bound); n.Type != nextSleep {
		t.Errorf("%+v", n)
	}
	if p.h.Asleep() {
		t.Error("jail-agentd has asked for no sleep")
	}
}

// TestCommittedAgain: an event that is committed is done, and the guest does not get it again.
func TestCommittedAgain(t *testing.T) {
	p := start(t, t.TempDir(), agent.Bindings...)
	p.report()
	p.order(event(1))
	p.h.Wait(bound)
	p.wants(agent.Host, "checkpoint", `{"seq":1}`, `{}`)
	p.report()
	p.order(event(1))
	p.order(event(2))
	if n := p.h.Wait(bound); n.Event == nil || n.Event.Seq != 2 {
		t.Errorf("%+v", n)
	}
	if r := p.report(); r.Done == nil || r.Done.Seq != 1 {
		t.Errorf("%+v", r)
	}
}

// TestMemory: the owner's operations see and change the memory tables between events. Importing what
// was exported changes nothing, twice as once.
func TestMemory(t *testing.T) {
	p := start(t, t.TempDir(), agent.Bindings...)
	p.report()
	const memory = `{"agent":"agent:x:y","conversations":[{"id":"c","started_at":5,"summary":"s",` +
		`"tokens_used":1,"messages":[{"id":"m","role":"user","content":"hi","created_at":6}]}],` +
		`"patterns":[{"id":"p","pattern_type":"t","description":"d","confidence":0.5}],` +
		`"goals":[{"id":"g","description":"d","priority":1,"status":"open","progress":0.5}],` +
		`"peers":[{"npub":"n","name":"x","relationship":"r","trust_score":0.1}]}`
	n := uint64(0)
	admin := func(op, data string) string {
		t.Helper()
		n++
		half := len(data) / 2
		p.order(agent.Order{Admin: &agent.Admin{ID: n, Op: op, Data: []byte(data[:half]), More: true}})
		p.order(agent.Order{Admin: &agent.Admin{ID: n, Op: op, Data: []byte(data[half:])}})
		var all []byte
		for {
			r := p.report()
			if r.Admin == nil || r.Admin.ID != n {
				t.Fatalf("%s: %+v", op, r)
			}
			if r.Admin.Error != nil {
				return r.Admin.Error.Message
			}
			if all = append(all, r.Admin.Data...); !r.Admin.More {
				return string(all)
			}
		}
	}
	want := strings.Replace(memory, "agent:x:y", "agent:a:b", 1)
	for range 2 {
		if got := admin(agent.AdminImport, memory); got != "null" {
			t.Errorf("import: %s", got)
		}
		if got := admin(agent.AdminExport, ""); got != want {
			t.Errorf("export: %s", got)
		}
	}
	newer := strings.NewReplacer(`"started_at":5,"summary":"s"`, `"started_at":6,"summary":"new"`,
		`"confidence":0.5`, `"confidence":0.6`, `"progress":0.5`, `"progress":0.4`).Replace(memory)
	admin(agent.AdminImport, newer)
	got := admin(agent.AdminExport, "")
	for _, part := range []string{`"summary":"new"`, `"confidence":0.6`, `"progress":0.5`} {
		if !strings.Contains(got, part) {
			t.Errorf("merged: %s, want %s", got, part)
		}
	}
	if got := admin(agent.AdminAddGoal, `{"id":"h","priority":9}`); got != "null" {
		t.Error(got)
	}
	if got := admin(agent.AdminGoals, ""); !strings.HasPrefix(got, `[{"id":"h",`) {
		t.Error(got)
	}
	if got := admin(agent.AdminTables, ""); !strings.Contains(got, `"goals":2`) {
		t.Error(got)
	}
	if got := admin("dance", ""); !strings.Contains(got, "none of that name") {
		t.Error(got)
	}
	// While the guest works on an event an operation waits.
	p.order(event(1))
	p.h.Wait(bound)
	p.call(agent.Storage, "exec", `{"sql":"DELETE FROM goals"}`)
	p.order(agent.Order{Admin: &agent.Admin{ID: 99, Op: agent.AdminGoals}})
	p.call(agent.Host, "log", `{"level":"info","message":"x"}`)
	if r := p.report(); r.Log == nil {
		t.Errorf("%+v", r)
	}
	p.wants(agent.Host, "checkpoint", `{"seq":1}`, `{}`)
	seen := map[bool]bool{}
	for range 2 {
		r := p.report()
		seen[r.Admin != nil && string(r.Admin.Data) == "[]"] = true
	}
	if !seen[true] {
		t.Error("the operation was not carried out after the event")
	}
}

// TestOnce: a program that runs once has models if they are granted, and the bindings that only
// jail-agentd knows. It has no events and no database, and what it writes is reported.
func TestOnce(t *testing.T) {
	dir := t.TempDir()
	for _, models := range []bool{false, true} {
		bindings := []string{agent.Host}
		if models {
			bindings = agent.Bindings
		}
		p := startWith(t, Options{Dir: dir, Bindings: bindings, Once: true})
		for _, b := range []string{agent.Host, agent.PubSub, agent.Storage} {
			p.wants(b, "exec", `{"sql":"SELECT 1"}`, `"no_binding"`)
		}
		p.wants(strings.Repeat("x", 1000), "exec", "", `"no_binding"`)
		p.wants("NOTES", "add", strings.Repeat(" ", agent.MaxParams+1), `"too_large"`)
		if !models {
			p.wants(agent.AI, "listRoles", "", `"no_binding"`)
		}
		if n := p.h.Wait(bound); n.Type != nextNone {
			t.Errorf("%+v", n)
		}
		name := "NOTES"
		if models {
			name = agent.AI
		}
		answer := make(chan string)
		go func() {
			text, _ := io.ReadAll(p.h.Call(name, "add", nil))
			answer <- string(text)
		}()
		call := p.report().Call
		if call == nil || call.Binding != name || call.Method != "add" {
			t.Fatalf("%+v", call)
		}
		p.order(agent.Order{Reply: &agent.Reply{ID: call.ID, Result: json.RawMessage("7")}})
		if got := <-answer; got != `{"result":7}` {
			t.Error(got)
		}
	}
	p := startWith(t, Options{Dir: dir, Bindings: []string{agent.Host}, Once: true})
	out, errOut, done, err := p.h.Output()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(out, "to out")
	fmt.Fprint(errOut, "to err")
	done()
	got := map[bool]string{}
	for range 2 {
		if o := p.report().Output; o != nil {
			got[o.Err] += string(o.Data)
		}
	}
	if got[false] != "to out" || got[true] != "to err" {
		t.Errorf("%v", got)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("%v, %v", names, err)
	}
}
