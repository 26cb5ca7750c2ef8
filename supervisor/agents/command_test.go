package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// An agent whose manifest names tools runs them and reads how they end; one that names none, and a
// facet, has no such method. What the daemon refuses has an error of its own kind.
func TestCommand(t *testing.T) {
	w := newWorld(t).start()
	var ran []Command
	w.jails.command = func(_ context.Context, c Command) (toolsession.Output, error) {
		ran = append(ran, c)
		switch c.Argv[0] {
		case "denied":
			return toolsession.Output{}, problem.New(problem.Refused, "tool denied is not allowed")
		case "odd":
			return toolsession.Output{}, problem.New(problem.Usage, "--limit: what is it")
		case "later":
			return toolsession.Output{}, fmt.Errorf("%w: it ends", ErrNoJail)
		case "broken":
			return toolsession.Output{}, errors.New("it fell")
		}
		return toolsession.Output{ExitCode: 1, Stdout: c.Stdin}, nil
	}
	var answers []string
	run := func(g *work) error {
		reply, text := g.call(agent.Host, agent.MethodCommand, g.Data)
		answer := string(text) + string(reply.Result)
		if reply.Error != nil {
			answer = reply.Error.Code
		}
		answers = append(answers, answer)
		return nil
	}
	w.install("a", "capabilities = { tools = [\"core-utils/*\"] }\n", run)
	w.install("none", "", run)
	w.jails.classes[""] = run
	for _, params := range []map[string]any{
		{"argv": []string{"wc", "-l"}, "stdin": "x", "cwd": "d", "limits": []string{"wall=1s"},
			"env": map[string]string{"B": "2", "A": "1"}},
		{"argv": []string{}}, {"argv": []string{"wc"}, "shell": true},
		{"argv": []string{"wc"}, "env": map[string]string{"A=B": ""}},
		{"argv": []string{"denied"}}, {"argv": []string{"odd"}}, {"argv": []string{"later"}},
		{"argv": []string{"broken"}},
	} {
		w.tell("a", params)
	}
	w.empty("a")
	w.tell("none", map[string]any{"argv": []string{"wc"}})
	w.empty("none")
	want := []string{`{"exitCode":1,"stdout":"x","stderr":"","truncated":false,` +
		`"meta":{"run":"","wall_ms":0}}`, agent.ErrParams, agent.ErrParams, agent.ErrParams,
		agent.ErrForbidden, agent.ErrParams, agent.ErrBusy, agent.ErrBusy, agent.ErrNoMethod}
	if !slices.Equal(answers, want) {
		t.Errorf("answers %q\nwant %q", answers, want)
	}
	first := ran[0]
	if len(ran) != 5 || !slices.Equal(first.Argv, []string{"wc", "-l"}) || first.Cwd != "d" ||
		!slices.Equal(first.Env, []string{"A=1", "B=2"}) ||
		!slices.Equal(first.Limits, []string{"wall=1s"}) || first.Launch.AgentID != "agent:ann:a" {
		t.Errorf("%d ran, the first as %+v", len(ran), first)
	}
	if m := (ask{Bindings: agent.Bindings}).of(first.Launch.Manifest); len(m.Capabilities.Tools) > 0 {
		t.Errorf("a facet has the tools %q", m.Capabilities.Tools)
	}
}

// An agent that starts one tool after another fills the queue with no more actions than it may have.
func TestCommandFlood(t *testing.T) {
	w := newWorld(t).start()
	started := 0
	w.jails.command = func(context.Context, Command) (toolsession.Output, error) {
		started++
		e := problem.New(problem.ApprovalPending, "it waits for an approval")
		e.Approval = fmt.Sprint("tool", started)
		_ = w.queue.change(e.Approval, func(*fakeAction) {})
		return toolsession.Output{}, e
	}
	codes := map[string]int{}
	w.install("a", "capabilities = { tools = [\"core-utils/*\"] }\n", func(g *work) error {
		for range 205 {
			reply, _ := g.call(agent.Host, agent.MethodCommand, map[string]any{"argv": []string{"wc"}})
			codes[reply.Error.Code]++
		}
		return nil
	})
	w.tell("a", "go")
	w.empty("a")
	if started != 200 || codes[agent.ErrPending] != 200 || codes[agent.ErrBusy] != 5 {
		t.Errorf("%d starts, answers %v", started, codes)
	}
}

// A tool whose start needs an approval does not start. The agent is woken by the decision, once, and
// the session of its tools ends when the agent is deleted.
func TestCommandWaits(t *testing.T) {
	w := newWorld(t).start()
	started := 0
	w.jails.command = func(context.Context, Command) (toolsession.Output, error) {
		if started++; w.queue.get("one").state == Approved {
			return toolsession.Output{Stdout: "ran"}, nil
		}
		_ = w.queue.change("one", func(*fakeAction) {})
		e := problem.New(problem.ApprovalPending, "it waits for an approval")
		e.Approval = "one"
		return toolsession.Output{}, e
	}
	var answers []string
	i := w.install("a", "capabilities = { tools = [\"core-utils/*\"] }\n[tools]\n"+
		"workspace = \"/srv\"\n", func(g *work) error {
		if g.Type == agent.TypeApproval {
			answers = append(answers, g.ReplyTo, string(g.Data))
		}
		reply, text := g.call(agent.Host, agent.MethodCommand, map[string]any{
			"argv": []string{"wc"}})
		if reply.Error != nil {
			answers = append(answers, reply.Error.Code, reply.Error.Message)
			return nil
		}
		answers = append(answers, string(text)+string(reply.Result))
		return nil
	})
	// Twice is once.
	w.tell("a", "go")
	w.tell("a", "go")
	w.empty("a")
	if all := w.asks(); len(all) != 1 || all[0].Action != "one" || all[0].Key != "" {
		t.Fatalf("%+v wait", all)
	}
	w.crash()
	w.start()
	w.queue.decide(Approved)
	w.until("it has run", func() bool { return len(w.asks()) == 0 && w.instance("a").Settled == 3 })
	if err := w.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.stop()
	if len(answers) != 7 || answers[0] != agent.ErrPending ||
		!strings.Contains(answers[1], "action one: it waits for an approval") ||
		answers[2] != agent.ErrPending || answers[4] != "one" ||
		answers[5] != `{"action":"one","decision":"approved","id":"one"}` ||
		!strings.Contains(answers[6], `"stdout":"ran"`) || started != 3 {
		t.Errorf("%d starts: %q", started, answers)
	}
	if !slices.Equal(w.jails.ended, []string{i.Name}) {
		t.Errorf("tools of %q were ended", w.jails.ended)
	}
	w.start()
}

// What tools change in a conversation is proposed or thrown away by its name. The agent is woken by
// the decision.
func TestChanges(t *testing.T) {
	w := newWorld(t).start()
	var answers []string
	run := func(g *work) error {
		if g.Type == agent.TypeApproval {
			answers = append(answers, string(g.Data))
			return nil
		}
		var c struct {
			Method string
			Params json.RawMessage
		}
		if err := json.Unmarshal(g.Data, &c); err != nil {
			return err
		}
		reply, text := g.call(agent.Host, c.Method, c.Params)
		answer := string(text) + string(reply.Result)
		if reply.Error != nil {
			answer = reply.Error.Code
		}
		answers = append(answers, answer)
		return nil
	}
	const tools = "capabilities = { tools = [\"core-utils/*\"] }\n"
	w.install("a", tools+"[tools]\nworkspace = \"/srv\"\n", run)
	w.install("bare", tools, run)
	w.install("none", "", run)
	tell := func(name, method string, p any) {
		w.tell(name, params{"method": method, "params": p})
		w.empty(name)
	}
	_ = w.queue.change("commit", func(*fakeAction) {})
	tell("a", agent.MethodPropose, params{"conversation": "fix-1", "words": "please"})
	tell("a", agent.MethodDiscard, params{})
	for _, name := range []string{"../x", "A", "-a", "a.b", strings.Repeat("a", 33)} {
		tell("a", agent.MethodPropose, params{"conversation": name})
		tell("a", agent.MethodCommand, params{"argv": []string{"wc"}, "conversation": name})
	}
	tell("bare", agent.MethodPropose, params{})
	tell("bare", agent.MethodCommand, params{"argv": []string{"wc"}, "conversation": "x"})
	tell("none", agent.MethodDiscard, params{})
	w.queue.decide(Approved)
	w.until("it is told", func() bool { return len(w.asks()) == 0 })
	w.empty("a")
	w.stop()
	want := []string{`{"id":"commit","state":"pending","added":1,"modified":0,"deleted":0}`, "{}"}
	for range 12 {
		want = append(want, agent.ErrParams)
	}
	want = append(want, agent.ErrNoMethod, `{"action":"commit","decision":"approved","id":"commit"}`)
	if !slices.Equal(answers, want) {
		t.Errorf("answers %q\nwant %q", answers, want)
	}
	all := w.jails.changes
	if len(all) != 2 || all[0].Conversation != "fix-1" || all[0].Words != "please" ||
		len(all[0].Asked) != 0 || all[1].Conversation != "" ||
		!slices.Equal(all[1].Asked, []string{"commit"}) {
		t.Errorf("%+v", all)
	}
	w.start()
}

// Of the tools that an agent runs at one time a few have a jail, so that what it may have bounds what
// all of them use; the others wait.
func TestFewTools(t *testing.T) {
	w := newWorld(t).start()
	var mu sync.Mutex
	running, most, full := 0, 0, make(chan struct{})
	w.jails.command = func(context.Context, Command) (toolsession.Output, error) {
		mu.Lock()
		if running++; running > most {
			if most = running; most == mostTools {
				close(full)
			}
		}
		mu.Unlock()
		<-full
		mu.Lock()
		defer mu.Unlock()
		running--
		return toolsession.Output{}, nil
	}
	failed := make(chan *agent.Error, 3*mostTools)
	w.install("a", "capabilities = { tools = [\"core-utils/*\"] }\n", func(g *work) error {
		var all sync.WaitGroup
		for range 3 * mostTools {
			all.Go(func() {
				reply, _ := g.call(agent.Host, agent.MethodCommand, map[string]any{
					"argv": []string{"wc"}})
				failed <- reply.Error
			})
		}
		all.Wait()
		return nil
	})
	w.tell("a", "go")
	w.empty("a")
	for range 3 * mostTools {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most != mostTools {
		t.Errorf("%d tools ran at one time, want %d", most, mostTools)
	}
}
