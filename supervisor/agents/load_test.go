package agents

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
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
		text, err := os.ReadFile(filepath.Join(l.Dir, l.Main))
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
	c.wait()
}
