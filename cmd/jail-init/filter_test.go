package main_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/built"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/runners"
	wasiguest "github.com/jail-sandbox/jail/runners/wasi/guest"
)

func TestMain(m *testing.M) {
	code := jailtest.Main(m)
	if shared.dir != "" {
		os.RemoveAll(shared.dir)
	}
	if usesDir != "" {
		os.RemoveAll(usesDir)
	}
	os.Exit(code)
}

// A bed is what every run of TestUses has in common.
type bed struct {
	// The jail-init that is shipped.
	init   string
	module []byte
	cache  string // its compiled form
	// The same of the module that fetches.
	streams      []byte
	streamsCache string
}

var shared struct {
	once sync.Once
	bed  *bed
	dir  string
}

// newBed returns the bed, which is made once.
func newBed(t *testing.T) *bed {
	t.Helper()
	jailtest.Require(t)
	shared.once.Do(func() { shared.bed = makeBed(t) })
	if shared.bed == nil {
		t.Fatal("the first test could not make what it needs")
	}
	return shared.bed
}

func makeBed(t *testing.T) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "jail-init-test-")
	if err != nil {
		t.Fatal(err)
	}
	shared.dir = dir
	b := &bed{init: filepath.Join(dir, "jail-init"), cache: filepath.Join(dir, "cache"),
		streamsCache: filepath.Join(dir, "streams")}
	wasm, streams := filepath.Join(dir, "uses.wasm"), filepath.Join(dir, "streams.wasm")
	guestEnv := []string{"GOOS=wasip1", "GOARCH=wasm"}
	for _, build := range []struct {
		out, pkg string
		env      []string
	}{{b.init, "", []string{"CGO_ENABLED=0"}}, {wasm, "/testdata/uses", guestEnv},
		{streams, "/testdata/streams", guestEnv}} {
		if err := built.Program(build.out, build.env, "-ldflags=-s -w",
			"./cmd/jail-init"+build.pkg); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []struct {
		file, cache string
		module      *[]byte
	}{{wasm, b.cache, &b.module}, {streams, b.streamsCache, &b.streams}} {
		if *m.module, err = os.ReadFile(m.file); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(m.cache, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := wasiguest.Compile(context.Background(), *m.module, runners.ModuleLimits{},
			m.cache); err != nil {
			t.Fatal(err)
		}
	}
	if err := exec.Command("chmod", "-R", "a+rX", dir).Run(); err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	// patience is how long a jail may take that is missing a call: a processor that is emulated
	// takes half a minute to compile. The jail is killed then, and what it was refused is known all
	// the same.
	patience = 2 * time.Minute
	// toEnd is how long a jail that cannot end may try to, once its run is over.
	toEnd = 20 * time.Second
)

// endUnheard kills the jail when one of its threads waits for an answer to a refused call: where
// the shim never got the listener, there is none. It returns when the jail has ended, too.
func endUnheard(j *jailtest.Jail) {
	for !j.Ended() && !unheard(j.PID) {
		time.Sleep(time.Millisecond)
	}
	_ = j.Kill()
}

// unheard reports whether a thread of the process waits in seccomp_unotify(2).
func unheard(pid int) bool {
	// The pattern is well-formed.
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid))
	return slices.ContainsFunc(threads, func(file string) bool {
		in, err := os.ReadFile(file)
		// A thread may have ended.
		return err == nil && strings.HasPrefix(string(in), "seccomp_")
	})
}

// run runs a scenario with changed filters. It returns what was refused, how the jail ended, and
// what it said.
func (b *bed) run(t *testing.T, scenario string, change func(*jail.Plan)) ([]control.Refused,
	control.Exited, string) {
	t.Helper()
	s := jailtest.New(t)
	s.Launcher.Init = b.init
	s.Plan.Cgroup.Memory = 256 << 20
	for i, m := range s.Plan.Mounts {
		if m.Kind == jail.MountTmpfs {
			s.Plan.Mounts[i].Size = 64 << 20 // for the compiled form
			if scenario == "full" {
				s.Plan.Mounts[i].Size = 1 << 20
			}
		}
	}
	for i, r := range s.Plan.Rlimits {
		if r.Name == "fsize" {
			s.Plan.Rlimits[i].Value = 128 << 20
		}
	}
	text, cache := b.module, b.cache
	if scenario == "fetch" {
		text, cache = b.streams, b.streamsCache
	}
	first := jail.CacheDir + "/0"
	s.Plan.Mounts = append(s.Plan.Mounts,
		jail.Mount{Kind: jail.MountBind, Source: cache, Target: first})
	s.Plan.Landlock.Rules = append(s.Plan.Landlock.Rules, jail.LandlockRule{Path: first})
	if groups := needs[scenario]; len(groups) > 0 {
		s.Plan.InnerFilter = seccomp.NewFilter(append(slices.Clone(seccomp.WASIGroups),
			groups...)...)
		s.Plan.OuterFilter = seccomp.NewOuterFilter(append(slices.Clone(seccomp.InitGroups),
			groups...)...)
	}
	change(&s.Plan)
	j, err := s.TryStart(t)
	if err != nil {
		return nil, control.Exited{Code: -1}, err.Error()
	}
	module, err := launch.SealedFile("module", text)
	if err != nil {
		t.Fatal(err)
	}
	files := []*os.File{module}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	order := runners.Order{Invocation: runners.Invocation{Args: runners.Texts{"uses"},
		Mounts: []runners.Mount{{Path: "/store", Write: true}},
		Layout: runners.LayoutPreopens, CacheDir: first}}
	switch scenario {
	case "script":
		order.Invocation.CacheDir = jail.CacheDir
		order.Script = &runners.Script{Name: "uses", Text: strings.Repeat("uses idle | ", 5) +
			"uses idle", Commands: map[string]runners.Command{"uses": {Name: "uses",
			Layout: runners.LayoutPreopens}}, Concurrent: 6}
	case "variables":
		// One file is somebody else's.
		if err := os.WriteFile(filepath.Join(s.Store, "other"), nil, 0o604); err != nil {
			t.Fatal(err)
		}
		order.Script = &runners.Script{Name: "variables",
			Text: `test -r /store && test -w /store && test -x /store && test -r /store/other && echo "$UID $EUID $GID $$ $PPID"`, Concurrent: 1}
	case "compile":
		order = runners.Order{Compile: true,
			Invocation: runners.Invocation{Args: runners.Texts{"compile"},
				CacheDir: "/tmp/compiled"}}
	case "large":
		// More memory than the runtime began with, and more than it is to keep.
		order.Script = &runners.Script{Name: "large",
			Text: strings.Repeat(":"+strings.Repeat(" x", 20)+"\n", 19_000), Concurrent: 1}
	case "full":
		order.Invocation.Mounts[0].Path = "/tmp"
		order.Invocation.Args = append(order.Invocation.Args, "full")
	case "fetch":
		order.Fetch = true
		files = append(files, echoProxy(t))
	case "spin":
		// The runtime interrupts a thread that computes for over 10 ms.
		order.Invocation.Args = append(order.Invocation.Args, "spin")
	case "stop":
		order.Invocation.Args = append(order.Invocation.Args, "1s")
	}
	// A jail-init that has ended already says so by its end.
	_ = j.Invoke(order, files...)
	goOn := func() {}
	if scenario == "stop" {
		goOn = stop(j)
	}
	watchdog := time.AfterFunc(patience, func() { _ = j.Kill() })
	defer watchdog.Stop()
	if scenario == "listener" {
		endUnheard(j)
	}
	var answer runners.Answer
	// A jail that was killed has none.
	_ = j.Report(&answer)
	if scenario == "end" {
		watchdog.Reset(toEnd)
	}
	goOn()
	status, err := j.Wait()
	if err != nil {
		t.Fatal(err)
	}
	j.End()
	return j.Refused(), status, j.Stderr() + answer.Failure
}

// echoProxy returns the socket of a proxy that echoes one stream.
func echoProxy(t *testing.T) *os.File {
	t.Helper()
	ours, theirs, err := control.Pair("fetch socket")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { ours.Close(); <-done })
	go func() {
		defer close(done)
		var request control.OpenStream
		if _, err := ours.Receive(&request); err != nil {
			return // no stream was requested
		}
		near, far, err := control.Pair("stream")
		if err != nil {
			t.Error(err)
			return
		}
		defer near.Close()
		err = ours.Send(control.Opened{}, far)
		far.Close()
		if err == nil {
			// Until the guest has ended its half, or all.
			_, _ = io.Copy(near.File(), near.File())
		}
	}()
	return theirs
}

// stop stops the jail and lets it go on, over and over, since nobody knows when its guest sleeps: a
// wait with a deadline goes on by a system call of its own. What it returns ends that, and is
// called before the jail's process is waited for.
func stop(j *jailtest.Jail) (goOn func()) {
	told, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
				_ = syscall.Kill(j.PID, sig) // it may have ended
				time.Sleep(10 * time.Millisecond)
			}
			select {
			case <-told:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() { close(told); <-done }
}

// needs are the groups of a scenario's filters beside those of every module.
var needs = map[string][]string{"script": {"shell"}, "large": {"shell"}, "variables": {"shell"},
	"fetch": {"fetch"}, "compile": {"compile"}}

// uses reads which scenario needs each call of a filter.
func uses(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		call, scenario, ok := strings.Cut(line, " ")
		if _, twice := table[call]; !ok || twice {
			t.Fatalf("%s: line %q", name, line)
		}
		table[call] = scenario
	}
	return table
}

// TestNothingIsRefused: a tool that does everything that tools may do is refused no system call.
func TestNothingIsRefused(t *testing.T) {
	b := newBed(t)
	for _, scenario := range []string{"run", "compile", "spin", "stop", "script", "variables",
		"fetch", "full", "large"} {
		refused, status, said := b.run(t, scenario, func(*jail.Plan) {})
		if len(refused) != 0 || status != (control.Exited{}) {
			t.Errorf("%s: refused %+v, ended with %+v\n%s", scenario, refused, status, said)
		}
	}
}

// TestUses takes each call out of the inner filter in turn: the scenario that the table names for
// it meets the gap. So no call is allowed that nobody uses, and none that no test uses.
func TestUses(t *testing.T) {
	b := newBed(t)
	table := uses(t, "uses.txt")
	f := seccomp.NewFilter(seccomp.WASIGroups...)
	for call := range table {
		if !slices.Contains(f.Allow, call) {
			t.Errorf("%s is in the table and not in the filter", call)
		}
	}
	for _, call := range f.Allow {
		scenario, ok := table[call]
		if !ok {
			t.Errorf("%s is allowed, and the table names nothing that uses it", call)
			continue
		}
		if call == "prctl" && !namesMemory() {
			t.Log("prctl: this kernel has no names for areas of memory, so the runtime asks it " +
				"once, at its start")
			continue
		}
		refused, status, said := b.run(t, scenario, func(p *jail.Plan) {
			without(&p.InnerFilter, call)
		})
		met := slices.ContainsFunc(refused, func(r control.Refused) bool {
			return r.What == call || strings.HasPrefix(r.What, call+"(")
		})
		// It may be missing before the listener is sent, with nobody who could tell: then the jail
		// waits for its end.
		if scenario == "listener" {
			met = met || len(refused) == 0 && status.Signal == int(syscall.SIGKILL)
		}
		// Go's runtime may make any of its calls there, too: then the start runs into its deadline.
		met = met || strings.Contains(said, "has not restricted itself within")
		if !met {
			t.Errorf("%s: %s does not use it: refused %+v, ended with %+v, %s", call, scenario,
				refused, status, said)
		}
	}
}

// TestGroupUses takes each call that only scripts or fetches are allowed back to what every module
// is: a script or a fetch meets the gap.
func TestGroupUses(t *testing.T) {
	b := newBed(t)
	every := seccomp.NewFilter(seccomp.WASIGroups...)
	for group, scenarios := range map[string][]string{"shell": {"script", "variables"},
		"fetch": {"fetch"}, "compile": {"compile"}} {
		for _, call := range seccomp.NewFilter(group).Allow {
			if slices.Contains(every.Allow, call) && !slices.ContainsFunc(every.Only,
				func(c seccomp.Condition) bool { return c.Call == call }) {
				t.Errorf("%s: %s is allowed to every module", group, call)
				continue
			}
			met := slices.ContainsFunc(scenarios, func(scenario string) bool {
				refused, _, _ := b.run(t, scenario, func(p *jail.Plan) {
					takeBack(&p.InnerFilter, call, every)
				})
				return told(refused, call) > 0
			})
			if !met {
				t.Errorf("%s: %v do not use %s", group, scenarios, call)
			}
		}
	}
}

// takeBack makes of a call in a filter what it is in another.
func takeBack(f *seccomp.Filter, call string, to seccomp.Filter) {
	without(f, call)
	if slices.Contains(to.Allow, call) {
		f.Allow = append(f.Allow, call)
	}
	for _, c := range to.Only {
		if c.Call == call {
			f.Only = append(f.Only, c)
		}
	}
}

// namesMemory reports whether the kernel is built with names for areas of memory
// (CONFIG_ANON_VMA_NAME): without, it knows the call as little as one with an operation that nobody
// has.
func namesMemory() bool {
	return unix.Prctl(unix.PR_SET_VMA, unix.PR_SET_VMA_ANON_NAME, 0, 0, 0) == nil
}

// without takes a call out of a filter.
func without(f *seccomp.Filter, call string) {
	f.Allow = slices.DeleteFunc(slices.Clone(f.Allow), func(n string) bool { return n == call })
	f.Only = slices.DeleteFunc(slices.Clone(f.Only),
		func(c seccomp.Condition) bool { return c.Call == call })
}

// TestStartUses takes each call that only the outer filter allows out of it: then there is no jail,
// or no run.
func TestStartUses(t *testing.T) {
	b := newBed(t)
	outer, inner := seccomp.NewOuterFilter(seccomp.InitGroups...),
		seccomp.NewFilter(seccomp.WASIGroups...)
	for _, call := range outer.Allow {
		if slices.Contains(inner.Allow, call) {
			// TestUses: what the inner filter needs, both do
			continue
		}
		_, status, said := b.run(t, "run", func(p *jail.Plan) { without(&p.OuterFilter, call) })
		if call == "sched_getaffinity" {
			// Without it the runtime takes the machine for one with a single processor, and waits
			// in other ways.
			continue
		}
		if status == (control.Exited{}) {
			t.Errorf("%s: everything went well without it\n%s", call, said)
		}
	}
}
