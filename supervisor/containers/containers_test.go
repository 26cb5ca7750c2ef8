package containers_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/containers"
)

// log is an audit log in memory.
type log struct {
	mu  sync.Mutex
	all []audit.Entry
}

func (l *log) Append(_ context.Context, e audit.Entry) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
	return uint64(len(l.all)), nil
}

func (l *log) AppendAll(all []audit.Entry) (first, last uint64, err error) {
	for _, e := range all {
		last, err = l.Append(context.Background(), e)
	}
	return last, last, err
}

// types are those of the records, in their order.
func (l *log) types() (all []audit.Type) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.all {
		all = append(all, e.Event.Type())
	}
	return all
}

func (l *log) last() audit.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[len(l.all)-1].Event
}

type host struct {
	*testing.T
	log  *log
	dir  string
	wall time.Duration
}

func newHost(t *testing.T) *host {
	return &host{T: t, log: &log{}, dir: t.TempDir(), wall: time.Hour}
}

func (h *host) open() *containers.Keeper {
	h.Helper()
	k, err := containers.Open(containers.Options{Dir: filepath.Join(h.dir, "containers"),
		Node: filepath.Join(h.dir, "oci.toml"), Log: h.log,
		Resolve: func(_ caller.Caller, name string) (policy.Effective, error) {
			set, err := profiles.Load("")
			if err != nil {
				return policy.Effective{}, err
			}
			p, err := set.Get(name)
			if err != nil {
				return policy.Effective{}, err
			}
			layer := p.File.Layer("profile "+name, "")
			layer.Policy.Limits.Wall = h.wall
			return policy.Resolve(policy.Layer{Name: policy.CeilingLayer, Policy: policy.Top()}, layer)
		},
		Check: func(what string, err error) {
			if err != nil {
				h.Errorf("%s: %v", what, err)
			}
		}}, false)
	if err != nil {
		h.Fatal(err)
	}
	return k
}

func request() oci.Request {
	var s specs.Spec
	text := `{"process":{"args":["sh"],"cwd":"/"},"root":{"path":"/x"},"linux":{"namespaces":[
{"type":"pid"},{"type":"ipc"},{"type":"uts"},{"type":"mount"},{"type":"network"}]}}`
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(err)
	}
	return oci.Request{Container: "c", Bundle: "/b", Spec: s, Root: []string{"bin"}}
}

// child is a process that the engine waits for, and not the daemon.
func (h *host) child() *exec.Cmd {
	h.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { cmd.Process.Kill() })
	go cmd.Wait()
	return cmd
}

func (h *host) plan(k *containers.Keeper) oci.Plan {
	h.Helper()
	p, err := k.Plan(caller.Caller{}, request())
	if err != nil {
		h.Fatal(err)
	}
	return p
}

func (h *host) awaitEnd() audit.RunFinished {
	h.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		if f, ok := h.log.last().(audit.RunFinished); ok {
			return f
		}
		time.Sleep(10 * time.Millisecond)
	}
	h.Fatalf("no end is on record: %v", h.log.types())
	return audit.RunFinished{}
}

// A container outlives the daemon that planned it: the next one records its end.
func TestEndIsRecorded(t *testing.T) {
	h := newHost(t)
	k := h.open()
	p, child := h.plan(k), h.child()
	if err := k.Report(caller.Caller{}, string(p.ID), oci.Made{PID: child.Process.Pid}); err != nil {
		t.Fatal(err)
	}
	if err := k.Report(caller.Caller{}, string(p.ID), oci.Made{Error: "x"}); err == nil {
		t.Error("a second report was taken")
	}
	k.Close()
	k = h.open()
	if n := k.Living(); n != 1 {
		t.Errorf("%d containers live", n)
	}
	process := specs.Process{Args: []string{"id"}, Cwd: "/",
		Capabilities: &specs.LinuxCapabilities{Bounding: []string{"CAP_KILL"}}}
	dropped, err := k.Exec(caller.Caller{}, string(p.ID), &process)
	if err != nil || !slices.Equal(dropped, []string{"capability CAP_KILL"}) ||
		!process.NoNewPrivileges {
		t.Errorf("exec: %q, %v, %+v", dropped, err, process)
	}
	child.Process.Kill()
	// Older kernels tell the code to the parent alone.
	if f := h.awaitEnd(); f.Signal != "SIGKILL" && f.ExitCode != -1 {
		t.Errorf("%+v", f)
	}
	want := []audit.Type{audit.TypeRunStarted, audit.TypeExec, audit.TypeRunFinished}
	if got := h.log.types(); !slices.Equal(got, want) {
		t.Errorf("records %v, want %v", got, want)
	}
	if left, _ := os.ReadDir(filepath.Join(h.dir, "containers")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := k.Exec(caller.Caller{}, string(p.ID), &process); err == nil {
		t.Error("exec in a container that has ended")
	}
}

// The limit of wall time ends a container.
func TestWall(t *testing.T) {
	h := newHost(t)
	h.wall = 50 * time.Millisecond
	k := h.open()
	p, child := h.plan(k), h.child()
	if err := k.Report(caller.Caller{}, string(p.ID), oci.Made{PID: child.Process.Pid}); err != nil {
		t.Fatal(err)
	}
	if f := h.awaitEnd(); f.Limit != "wall" {
		t.Errorf("%+v", f)
	}
	if got := h.log.types(); !slices.Contains(got, audit.TypeLimit) {
		t.Errorf("records %v", got)
	}
}

// What is refused is on record, and so is a container that was not made.
func TestNotMade(t *testing.T) {
	h := newHost(t)
	k := h.open()
	if _, err := k.Plan(caller.Caller{Caller: asuser.Caller{UID: 1000}}, request()); err == nil ||
		!strings.Contains(err.Error(), "for root") {
		t.Errorf("a user's container: %v", err)
	}
	r := request()
	r.Spec.Linux.Namespaces = nil
	if _, err := k.Plan(caller.Caller{}, r); err == nil {
		t.Error("a container in the namespaces of the host")
	}
	if f, ok := h.log.last().(audit.RunFinished); !ok || f.ExitCode != 126 ||
		!strings.Contains(f.Error, "namespace mount is missing") {
		t.Errorf("%+v", h.log.last())
	}
	r = request()
	r.Spec.Annotations = map[string]string{oci.ProfileAnnotation: "build"}
	if _, err := k.Plan(caller.Caller{}, r); err == nil ||
		!strings.Contains(err.Error(), `may not have profile "build"`) {
		t.Errorf("another profile: %v", err)
	}
	p := h.plan(k)
	if err := k.Report(caller.Caller{}, string(p.ID), oci.Made{Error: "no room"}); err != nil {
		t.Fatal(err)
	}
	if f, ok := h.log.last().(audit.RunFinished); !ok || f.Error != "no room" {
		t.Errorf("%+v", h.log.last())
	}
}
