// Package agent_test holds the tests of agents in jails: a driver in the place of jail-agentd talks
// to the host of an agent over the streams of a real run.
package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

var guest = cmdtest.Build("agent.wasm", "./testdata/agent", "GOOS=wasip1", "GOARCH=wasm")

const profile = `policy = 1
name = "agent"
[[mount]]
target = "/tmp"
access = "tmpfs"
[limits]
wall = "24h"
cpu_time = "10m"
cpus = 1.0
memory = "128MiB"
pids = 32
open_files = 64
output = "1MiB"
workspace = "1MiB"
workspace_files = 1
file_size = "1GiB"
[tools]
modules = ["**"]
[env]
allow = ["*"]
[syscalls]
groups = ["wasi"]
[agent]
bindings = ["pubsub", "storage", "ai", "host"]
`

// bound is how long a test waits for what hangs.
var bound = cmdtest.Bound

// An agentRun is an agent that is awake.
type agentRun struct {
	t       *testing.T
	to      *agent.Writer
	stdin   *io.PipeWriter
	reports chan agent.Report
	result  chan message.Result
	cancel  context.CancelFunc

	mu  sync.Mutex
	log []byte
}

// Write takes what the guest writes.
func (r *agentRun) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, p...)
	return len(p), nil
}

func (r *agentRun) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.log)
}

// An owner is whose agent it is.
type owner struct {
	uid  uint32
	name string
}

var root = owner{0, "root"}

// state makes a directory for an agent's database.
func state(t *testing.T, h *cmdtest.PolicyHost, o owner) string {
	t.Helper()
	dir, err := os.MkdirTemp(h.Root, "state-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, int(o.uid), int(o.uid)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// put are the modules that compiled has put into a state directory.
var put sync.Map

// compiled puts the machine code of an agent's module into the state directory of a host.
func compiled(t *testing.T, h *cmdtest.Host, module string) {
	t.Helper()
	if _, done := put.LoadOrStore([2]string{h.State, module}, true); done {
		return
	}
	if err := cmdtest.CompiledBy(h.State, "agent", func(dir, module string) error {
		p := &cmdtest.PolicyHost{Host: &cmdtest.Host{T: t, Bin: h.Bin, Root: t.TempDir(), State: dir,
			Work: t.TempDir()}, Dir: t.TempDir()}
		if err := os.Mkdir(filepath.Join(p.Dir, "profiles"), 0o755); err != nil {
			return err
		}
		p.Write("agent", profile)
		p.Open()
		defer p.Close()
		req := request(t, root, state(t, p, root))
		req.Tool = module
		r, _ := wakeWith(t, p, root, req, nil)
		r.sleep()
		return nil
	}, module); err != nil {
		t.Fatal(err)
	}
}

// request asks for the test's agent.
func request(t *testing.T, o owner, dir string) message.Request {
	t.Helper()
	return message.Request{Profile: "agent", Tool: cmdtest.Must(guest())(t), NoWorkspace: true,
		Agent: &message.Agent{ID: "agent:" + o.name + ":test", Instance: "agent-test-team",
			Bindings: agent.Bindings, State: dir, Storage: 8 << 20, DeadlineMS: 120_000}}
}

// wake starts the agent, and returns it with its first report.
func wake(t *testing.T, h *cmdtest.PolicyHost, o owner, req message.Request) (*agentRun,
	*agent.Ready) {
	t.Helper()
	if req.Tool == cmdtest.Must(guest())(t) {
		compiled(t, h.Host, req.Tool)
	}
	return wakeWith(t, h, o, req, json.RawMessage(`{"a":1}`))
}

// wakeWith is wake of an agent with a config.
func wakeWith(t *testing.T, h *cmdtest.PolicyHost, o owner, req message.Request,
	config json.RawMessage) (*agentRun, *agent.Ready) {
	t.Helper()
	r := &agentRun{t: t, reports: make(chan agent.Report, 1000),
		result: make(chan message.Result, 1)}
	in, stdin := io.Pipe()
	out, stdout := io.Pipe()
	r.stdin, r.to = stdin, agent.NewWriter(stdin)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	req.Dir = h.Work
	go func() {
		res := h.S.Run(ctx, h.Caller(o.uid), req, stdio.Streams{In: in, Out: stdout, Err: r})
		in.Close()
		stdout.Close()
		r.result <- res
	}()
	go func() {
		defer close(r.reports)
		frames := agent.NewReader(out)
		for {
			var rep agent.Report
			if err := frames.Read(&rep); err != nil {
				return
			}
			r.reports <- rep
		}
	}()
	t.Cleanup(func() { r.kill() })
	first := r.report()
	if first == nil || first.Ready == nil {
		t.Fatalf("the first report is %+v\n%s%s", first, r.end(), r.output())
	}
	r.order(agent.Order{Wake: &agent.Wake{Reason: "manual", AgentID: req.Agent.ID, Channel: "team",
		Handle: "test", Config: config}})
	return r, first.Ready
}

// kill ends the run if it has not ended.
func (r *agentRun) kill() {
	r.cancel()
	r.stdin.Close()
	for range r.reports {
	}
}

// end returns the result of a run that ends, in words.
func (r *agentRun) end() string {
	select {
	case res := <-r.result:
		r.result <- res
		text, _ := json.Marshal(res)
		return string(text) + "\n"
	case <-time.After(bound):
		return "the run goes on\n"
	}
}

func (r *agentRun) order(o agent.Order) {
	r.t.Helper()
	// The run may have ended.
	_ = r.to.Write(o)
}

// report returns the next report, nil at the end.
func (r *agentRun) report() *agent.Report {
	r.t.Helper()
	select {
	case rep, ok := <-r.reports:
		if !ok {
			return nil
		}
		return &rep
	case <-time.After(bound):
		r.t.Fatalf("no report within %v\n%s", bound, r.output())
		return nil
	}
}

// A call is one that the guest makes.
type call struct {
	Binding string         `json:"binding"`
	Method  string         `json:"method"`
	Params  map[string]any `json:"params,omitempty"`
}

// sql is a call of STORAGE.
func sql(method, statement string, params ...any) call {
	c := call{"STORAGE", method, map[string]any{"sql": statement}}
	if len(params) > 0 {
		c.Params["params"] = params
	}
	return c
}

// send sends an event that makes the guest do something after its calls.
func (r *agentRun) send(seq uint64, do string, calls ...call) {
	r.t.Helper()
	data, err := json.Marshal(map[string]any{"calls": calls, "do": do})
	if err != nil {
		r.t.Fatal(err)
	}
	r.order(agent.Order{Event: &agent.Event{Seq: seq, ID: fmt.Sprint(seq), Time: time.Now(),
		Source: "user", Type: agent.TypeMessage, Kind: agent.KindNew, Attempt: 1, Data: data}})
}

// an answer is that of one call.
type answer struct {
	Result json.RawMessage `json:"result"`
	Error  *agent.Error    `json:"error"`
}

// event sends an event and returns the answers of its calls, or why it failed.
func (r *agentRun) event(seq uint64, calls ...call) ([]answer, *agent.Failed) {
	r.t.Helper()
	answers, failed := r.tryEvent(seq, calls...)
	if answers == nil && failed == nil {
		r.t.Fatalf("the run ended: %s%s", r.end(), r.output())
	}
	return answers, failed
}

// tryEvent is event, and returns nothing if the run has ended.
func (r *agentRun) tryEvent(seq uint64, calls ...call) ([]answer, *agent.Failed) {
	r.t.Helper()
	r.send(seq, "", calls...)
	for {
		rep := r.report()
		switch {
		case rep == nil:
			return nil, nil
		case rep.Failed != nil:
			return nil, rep.Failed
		case rep.Done != nil:
			sent := []answer{}
			for _, e := range rep.Done.Effects {
				if e.Op == agent.OpSend {
					if err := json.Unmarshal(e.Data, &sent); err != nil {
						r.t.Fatalf("%s: %v", e.Data, err)
					}
				}
			}
			return sent, nil
		}
	}
}

// rest takes the reports that are left, and returns how the run ended. slept says that the agent has
// reported that it sleeps.
func (r *agentRun) rest() (res message.Result, slept bool) {
	r.t.Helper()
	for rep := r.report(); rep != nil; rep = r.report() {
		slept = slept || rep.Slept
	}
	res = <-r.result
	r.result <- res
	return res, slept
}

// sleep asks the agent to sleep, and returns how the run ended.
func (r *agentRun) sleep() message.Result {
	r.t.Helper()
	r.order(agent.Order{Sleep: true})
	res, slept := r.rest()
	if !slept {
		r.t.Errorf("the agent has not said that it sleeps\n%+v\n%s", res, r.output())
	}
	return res
}

// files returns the owners of the files in a directory.
func files(t *testing.T, dir string) map[string]os.FileInfo {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]os.FileInfo{}
	for _, e := range entries {
		info, err := os.Lstat(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = info
	}
	return all
}
