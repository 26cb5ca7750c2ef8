package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/built"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/agent"
	wasiguest "github.com/jail-sandbox/jail/runners/wasi/guest"
)

// An agentBed is what the runs of agents have in common.
type agentBed struct {
	// init is the jail-init that hosts agents.
	init, cache string
	module      []byte
}

var agents = sync.OnceValues(func() (b agentBed, err error) {
	// In the directory of the other bed, which the end of the tests removes.
	dir := filepath.Join(shared.dir, "agents")
	b = agentBed{init: filepath.Join(dir, "init"), cache: filepath.Join(dir, "cache")}
	wasm := filepath.Join(dir, "agent.wasm")
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return b, err
	}
	if err := errors.Join(built.Program(b.init, []string{"CGO_ENABLED=0"}, "-ldflags=-s -w",
		"-tags", "agents", "./cmd/jail-init"), built.Program(wasm, []string{"GOOS=wasip1",
		"GOARCH=wasm", "CGO_ENABLED=0"}, "-ldflags=-s -w",
		"github.com/jail-sandbox/jail/cmd/testdata/agent")); err != nil {
		return b, err
	}
	if b.module, err = os.ReadFile(wasm); err != nil {
		return b, err
	}
	if err := wasiguest.Compile(context.Background(), b.module, runners.ModuleLimits{}, b.cache); err != nil {
		return b, err
	}
	return b, exec.Command("chmod", "-R", "a+rX", dir).Run()
})

// runAgent has an agent work on an event, fail the next one and end, with changed filters. It
// returns what was refused, how the jail ended, and what it said.
func runAgent(t *testing.T, change func(*jail.Plan)) ([]control.Refused, control.Exited, string) {
	t.Helper()
	b, err := agents()
	if err != nil {
		t.Fatal(err)
	}
	s := jailtest.New(t)
	s.Launcher.AgentInit = b.init
	dir := t.TempDir()
	// As the root of the jail, so that a new log is given to the owner of its database.
	s.Request.Agent = &jail.State{Source: jail.Source{Path: dir}, Size: 4 << 20}
	s.Request.Workspace = nil
	s.Files = launch.Files{}
	if s.Plan, err = jail.NewPlan(s.Policy, s.Request); err != nil {
		t.Fatal(err)
	}
	s.Plan.Cgroup.Memory = 256 << 20
	first := jail.CacheDir + "/0"
	s.Plan.Mounts = append(s.Plan.Mounts,
		jail.Mount{Kind: jail.MountBind, Source: b.cache, Target: first})
	s.Plan.Landlock.Rules = append(s.Plan.Landlock.Rules, jail.LandlockRule{Path: first})
	change(&s.Plan)
	j, err := s.TryStart(t)
	if err != nil {
		return nil, control.Exited{Code: -1}, err.Error()
	}
	module, err := launch.SealedFile("module", b.module)
	if err != nil {
		t.Fatal(err)
	}
	defer module.Close()
	var frames bytes.Buffer
	w := agent.NewWriter(&frames)
	sql := func(statement string) map[string]any {
		return map[string]any{"binding": "STORAGE", "method": "exec",
			"params": map[string]any{"sql": statement}}
	}
	for _, o := range []agent.Order{{Wake: &agent.Wake{AgentID: "agent:a:b"}},
		{Event: event(t, 1, "http", sql("CREATE TABLE t (a); WITH RECURSIVE c(n) AS (SELECT 1 "+
			"UNION ALL SELECT n + 1 FROM c LIMIT 20) INSERT INTO t SELECT randomblob(100000) FROM c"))},
		{Event: event(t, 2, "", sql("ROLLBACK"))}} {
		if err := w.Write(o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Input().Write(frames.Bytes()); err != nil {
		t.Fatal(err)
	}
	// A jail-init that has ended already says so by its end.
	_ = j.Invoke(runners.Order{Invocation: runners.Invocation{Args: runners.Texts{"agent"},
		Layout: runners.LayoutPreopens, CacheDir: first}, Agent: &runners.Agent{ID: "agent:a:b",
		Bindings: agent.Bindings, Imports: agent.Bindings, Dir: jail.AgentDir, Size: 4 << 20,
		DeadlineNanos: int64(20 * time.Second)}}, module)
	watchdog := time.AfterFunc(patience, func() { _ = j.Kill() })
	defer watchdog.Stop()
	var answer runners.Answer
	_ = j.Report(&answer)
	watchdog.Reset(toEnd)
	status, err := j.Wait()
	if err != nil {
		t.Fatal(err)
	}
	j.End()
	return j.Refused(), status, j.Stderr() + answer.Failure
}

// event is one that has the guest make calls.
func event(t *testing.T, seq uint64, do string, calls ...map[string]any) *agent.Event {
	t.Helper()
	data, err := json.Marshal(map[string]any{"calls": calls, "do": do})
	if err != nil {
		t.Fatal(err)
	}
	return &agent.Event{Seq: seq, Data: data}
}

// TestAgentUses: an agent is refused no system call, and meets the gap that each call leaves which
// only agents may make.
func TestAgentUses(t *testing.T) {
	newBed(t)
	refused, status, said := runAgent(t, func(*jail.Plan) {})
	if len(refused) != 0 || status != (control.Exited{}) ||
		!strings.Contains(said, `{"result":{}}`) {
		t.Fatalf("refused %+v, ended with %+v\n%s", refused, status, said)
	}
	every := seccomp.NewFilter(seccomp.WASIGroups...)
	for _, call := range seccomp.NewFilter("agent").Allow {
		if slices.Contains(every.Allow, call) && !slices.ContainsFunc(every.Only,
			func(c seccomp.Condition) bool { return c.Call == call }) {
			t.Errorf("%s is allowed to every module", call)
			continue
		}
		refused, _, said := runAgent(t, func(p *jail.Plan) {
			takeBack(&p.InnerFilter, call, every)
		})
		if told(refused, call) == 0 {
			t.Errorf("%s: an agent does not use it\n%s", call, said)
		}
	}
}
