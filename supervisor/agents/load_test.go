package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

func TestLoadRunsWhatItIsGivenOnce(t *testing.T) {
	w := newWorld(t)
	w.start()
	a := w.install("a", withFacets, nil)
	var dirs []string
	w.jails.load = func(_ context.Context, l Load) (Loaded, error) {
		w.jails.mu.Lock()
		defer w.jails.mu.Unlock()
		dirs = append(dirs, l.Dir)
		text, err := l.Files[l.Main], error(nil)
		// A part of what is for the facets, and not more than that together.
		if l.Share.Memory != 64<<20 || l.Launch.AgentID != "agent:ann:a" {
			err = errors.Join(err, errors.New("it has another share"))
		}
		return Loaded{ExitCode: 3, Stdout: string(text), Stderr: strings.Join(l.Env, " ")}, err
	}
	w.do(a, func(in *work) {
		var done Loaded
		if err := in.hostCall("load", params{"executionId": "x", "mainModule": "d/m.js",
			"modules": params{"d/m.js": "one", "n.wasm": params{"base64": "AAE="}},
			"env":     params{"B": "2", "A": "1"}, "globalOutbound": nil}, &done); err != nil ||
			done.Stdout != "one" || done.Stderr != "A=1 B=2" || done.ExitCode != 3 {
			t.Errorf("%v %+v", err, done)
		}
		for _, p := range []params{
			{"executionId": "", "mainModule": "m.js", "modules": params{"m.js": ""}},
			{"executionId": "x", "mainModule": "n.js", "modules": params{"m.js": ""}},
			{"executionId": "x", "mainModule": "m.sh", "modules": params{"m.sh": ""}},
			{"executionId": "x", "mainModule": "../m.js", "modules": params{"../m.js": ""}},
			{"executionId": "x", "mainModule": "/m.js", "modules": params{"/m.js": ""}},
			{"executionId": "x", "mainModule": "m.js", "modules": params{"m.js": "", "m.js/x": ""}},
			{"executionId": "x", "mainModule": "m.js", "modules": params{"m.js": 7}},
			{"executionId": "x", "mainModule": "m.js", "modules": params{"m.js": params{}}},
			{"executionId": "x", "mainModule": "m.js", "modules": params{"m.js": ""},
				"env": params{"a=b": ""}},
			{"executionId": "x", "mainModule": "m.js", "modules": params{"m.js": ""},
				"env": params{"DB": params{"binding": "STORAGE"}}},
			{"executionId": "x", "mainModule": "m.js", "modules": params{"m.js": ""},
				"globalOutbound": "all"},
			{"executionId": "x", "mainModule": "m.js", "modules": params{"m.js": ""}, "root": true},
		} {
			if err := in.hostCall("load", p, nil); err == nil || err.Code != agent.ErrParams {
				t.Errorf("load %s: %v", mustJSON(p), err)
			}
		}
	})
	for _, dir := range dirs {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	// A crash leaves nothing, either.
	left := filepath.Join(w.o.State, loadPrefix+"left")
	if err := os.MkdirAll(filepath.Join(left, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.crash()
	w.start()
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after a crash: %v", err)
	}
	if len(w.families.accounts) > 0 {
		t.Error("an account is left")
	}
}

// A program has at most 16 MiB and 100 modules.
func TestLoadBounds(t *testing.T) {
	code := func(modules, size int) error {
		p := program{ExecutionID: "x", MainModule: "m0.py", Modules: map[string]json.RawMessage{}}
		for n := range modules {
			p.Modules[fmt.Sprintf("m%d.py", n)] = mustJSON(strings.Repeat("#", size/modules))
		}
		_, err := p.code()
		return err
	}
	for _, tt := range []struct {
		modules, size int
		want          string
	}{{1, maxCode, ""}, {maxModules, 0, ""}, {2, maxCode + 2, agent.ErrTooLarge},
		{maxModules + 1, 0, agent.ErrParams}} {
		got := ""
		if no, ok := errors.AsType[*agent.Error](code(tt.modules, tt.size)); ok {
			got = no.Code
		}
		if got != tt.want {
			t.Errorf("%d modules of %d bytes: %q, want %q", tt.modules, tt.size, got, tt.want)
		}
	}
}

// Parameters come in parts, as many as their bound allows.
func TestPartsOfCalls(t *testing.T) {
	w := newWorld(t)
	w.start()
	c := newCalls(t.Context(), &run{a: w.Agents, orders: make(chan agent.Order, 100),
		m: manifest.Manifest{}})
	part := make([]byte, agent.MaxParams)
	var refused *cause
	for n := 0; refused == nil && n < 3*agent.MaxLoad/len(part); n++ {
		refused = c.take(agent.Call{ID: uint64(n % 3), Part: part, More: true})
	}
	if refused == nil {
		t.Error("parts without an end are taken")
	}
	c = newCalls(t.Context(), c.r)
	if c.take(agent.Call{ID: 1, Part: part, More: true}) != nil ||
		c.take(agent.Call{ID: 1, Part: []byte("x"), Binding: agent.Host, Method: "facets"}) == nil {
		t.Error("parts that are too large for their method are taken")
	}
	c.work.Wait()
}

// The errors of a load name the modules as the agent does, and no path of the host.
func TestLoadErrorsHaveNoPaths(t *testing.T) {
	w := newWorld(t).start()
	a := w.install("a", withFacets, nil)
	var why func(l Load) error
	w.jails.load = func(_ context.Context, l Load) (Loaded, error) { return Loaded{}, why(l) }
	w.jails.command = func(_ context.Context, c Command) (toolsession.Output, error) {
		return toolsession.Output{}, problem.New(problem.Failed, "%s is full", c.Launch.Dir)
	}
	module := func(l Load) string { return filepath.Join(l.Dir, "d/m.wasm") }
	load := params{"executionId": "x", "mainModule": "d/m.wasm", "modules": params{"d/m.wasm": ""}}
	for _, tt := range []struct {
		why        func(l Load) error
		code, text string
	}{
		{func(l Load) error {
			return problem.New(problem.Refused, "module %s: no magic number", module(l))
		}, agent.ErrFailed, "load: module d/m.wasm: no magic number"},
		{func(Load) error { return errors.New("its jail breaks the protocol") }, agent.ErrFailed,
			"load: its jail breaks the protocol"},
		{func(l Load) error { return problem.New(problem.Failed, "mkfs %s: no space", l.Dir) },
			agent.ErrFailed, "jail failed: the log of jail-agentd says why"},
		{func(l Load) error { _, err := os.Open(module(l) + "x"); return err }, agent.ErrFailed,
			"jail failed: the log of jail-agentd says why"},
		{func(l Load) error { return fmt.Errorf("%w: dial unix %s", ErrNoJail, l.Dir) },
			agent.ErrBusy, "no jail can be had now: call again later"},
	} {
		why = tt.why
		w.do(a, func(in *work) {
			if err := in.hostCall("load", load, nil); err == nil || err.Code != tt.code ||
				err.Message != tt.text {
				t.Errorf("%v, want %s: %s", err, tt.code, tt.text)
			}
		})
	}
	tools := w.install("tools", "capabilities = { tools = [\"core-utils/*\"] }\n", nil)
	w.do(tools, func(in *work) {
		if err := in.hostCall(agent.MethodCommand, params{"argv": []string{"wc"}}, nil); err == nil ||
			strings.Contains(err.Message, w.o.State) || strings.Contains(err.Message, w.o.Folder) {
			t.Errorf("a tool: %v", err)
		}
	})
}

// A program has exactly the bindings that env gives it: a facet of its agent, and models that the
// agent has itself. What it writes comes back, to its bound.
func TestLoadWithBindings(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.jails.limits["agent:ann:a"] = Share{1 << 30, 256}
	a := w.install("a", withFacets+"[ai]\nroles = { fast = \"anthropic/x\" }\n", nil)
	w.jails.classes["notes"] = func(w *work) error {
		w.count++
		w.answer(params{"call": w.Data, "n": w.count})
		return nil
	}
	// said are the errors of calls, by their bindings.
	said := map[string]string{}
	w.jails.load = func(_ context.Context, l Load) (Loaded, error) {
		if l.Orders == nil || !l.Models || strings.Join(l.Env, " ") != "A=1" {
			return Loaded{}, fmt.Errorf("%+v", l)
		}
		out, in := agent.NewWriter(l.Orders.Out), agent.NewReader(l.Orders.In)
		for n, call := range []agent.Call{{Binding: "NOTES", Method: "add", Params: mustJSON(7)},
			{Binding: "NOTES", Method: "add", Params: mustJSON(8)}, {Binding: "AI", Method: "listRoles"},
			{Binding: "AI", Method: "load"}, {Binding: "HOST", Method: "facets"},
			{Binding: "STORAGE", Method: "exec"}, {Binding: "OTHER", Method: "x"}} {
			call.ID = uint64(n + 1)
			var order agent.Order
			if err := errors.Join(out.Write(agent.Report{Call: &call}), in.Read(&order)); err != nil {
				return Loaded{}, err
			}
			text := string(order.Reply.Result)
			if order.Reply.Error != nil {
				text = order.Reply.Error.Code
			}
			said[call.Binding+"."+call.Method] = text
		}
		return Loaded{ExitCode: 3}, errors.Join(
			out.Write(agent.Report{Output: &agent.Output{Data: []byte("out")}}),
			out.Write(agent.Report{Output: &agent.Output{Err: true, Data: []byte("err")}}))
	}
	load := func(in *work, env params) (done Loaded, err *agent.Error) {
		err = in.hostCall("load", params{"executionId": "x", "mainModule": "m.js",
			"modules": params{"m.js": ""}, "env": env}, &done)
		return done, err
	}
	notes, models := params{"facet": "notes"}, params{"binding": "AI"}
	w.do(a, func(in *work) {
		if _, err := load(in, params{"NOTES": notes}); err == nil || err.Code != agent.ErrNotFound {
			t.Errorf("a facet that is not there: %v", err)
		}
		if err := in.hostCall("facet", params{"name": "notes", "class": "notes"}, nil); err != nil {
			t.Fatal(err)
		}
		for _, env := range []params{{"NOTES": models}, {"AI": notes}, {"NOTES": params{}},
			{"STORAGE": params{"binding": "STORAGE"}}, {"X": params{"binding": "AI", "facet": "notes"}},
			{"HOST": notes}, {"X": params{"facet": "notes", "more": 1}}, {"X": 1}, {"X": nil}} {
			if _, err := load(in, env); err == nil || err.Code != agent.ErrParams {
				t.Errorf("env %s: %v", mustJSON(env), err)
			}
		}
		if _, err := load(in, params{"CRM": params{"gatekeeper": "crm"}}); err == nil ||
			err.Code != agent.ErrNoBinding {
			t.Errorf("a gatekeeper that the agent has not: %v", err)
		}
		done, err := load(in, params{"NOTES": notes, "AI": models, "A": "1"})
		if err != nil || done.Stdout != "out" || done.Stderr != "err" || done.ExitCode != 3 {
			t.Errorf("%+v, %v", done, err)
		}
	})
	for call, want := range map[string]string{
		"NOTES.add":    `{"call":{"args":8,"method":"add"},"n":2}`,
		"AI.listRoles": `["fast"]`, "AI.load": agent.ErrNoMethod, "HOST.facets": agent.ErrNoBinding,
		"STORAGE.exec": agent.ErrNoBinding, "OTHER.x": agent.ErrNoBinding} {
		if said[call] != want {
			t.Errorf("%s: %s, want %s", call, said[call], want)
		}
	}
	w.jails.load = func(ctx context.Context, l Load) (Loaded, error) {
		out := agent.NewWriter(l.Orders.Out)
		text := bytes.Repeat([]byte("x"), 4096)
		for {
			select {
			case <-l.Enough:
				used := Loaded{ExitCode: 9}
				used.Usage.CPUMS = 7
				return used, nil
			default:
			}
			if err := out.Write(agent.Report{Output: &agent.Output{Data: text}}); err != nil {
				return Loaded{}, ctx.Err()
			}
		}
	}
	w.do(a, func(in *work) {
		done, err := load(in, params{"NOTES": notes})
		if err != nil || len(done.Stdout) != MaxLoadOutput || done.Limit != limitOutput ||
			done.ExitCode != exitKilled || done.Usage.CPUMS != 7 {
			t.Errorf("a program that writes without an end: %d bytes, limit %q, exit code %d, %+v, %v",
				len(done.Stdout), done.Limit, done.ExitCode, done.Usage, err)
		}
	})
	left, err := filepath.Glob(filepath.Join(w.o.State, loadPrefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%q, %v", left, err)
	}
	w.families.mu.Lock()
	defer w.families.mu.Unlock()
	for id := range w.families.accounts {
		if id < 0 {
			t.Error("the account of a program is left")
		}
	}
}
