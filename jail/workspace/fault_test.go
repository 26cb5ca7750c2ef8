package workspace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jail-sandbox/jail/jail/jailtest/built"
)

const actEnv = "JAIL_WORKSPACE_TEST_ACT"

// An act is a commit or revert by a process of its own, so that it can be killed.
type act struct {
	Store string
	// Do is commit or revert of w, or fork of p, merge, revert-merge or discard of its branch b.
	Do string
}

// An acted says how it went.
type acted struct {
	Err string
	// It says that it could not be undone whole.
	Incomplete bool
	State      State
}

// actBegins is what the injector waits for.
const actBegins = "/here-the-act-begins"

func actMain(text string) (out acted) {
	var a act
	err := json.Unmarshal([]byte(text), &a)
	os.Lstat(actBegins)
	if err == nil {
		out.State, err = a.run()
	}
	if err != nil {
		out.Err, out.Incomplete = err.Error(), errors.Is(err, ErrIncomplete)
	}
	return out
}

func (a act) run() (State, error) {
	store, err := Open(a.Store)
	if err != nil {
		return "", err
	}
	defer store.Close()
	switch a.Do {
	case "fork":
		_, err := BranchesOf(store).Fork(context.Background(), "p", "b", Caller{})
		return Frozen, err
	case "merge":
		_, err := BranchesOf(store).Merge(context.Background(), "b", Caller{}, CommitOptions{})
		return Frozen, err
	case "revert-merge":
		_, err := BranchesOf(store).RevertMerge(context.Background(), "b", Caller{})
		return Frozen, err
	case "discard":
		w, err := store.Get("b")
		if err == nil {
			err = errors.Join(w.Discard(), w.Close())
		}
		return "", err
	}
	w, err := store.Get("w")
	if err != nil {
		return "", err
	}
	defer w.Close()
	if a.Do == "revert" {
		r, err := w.Revert(context.Background(), RevertOptions{})
		return r.State, err
	}
	r, err := w.Commit(context.Background(), CommitOptions{Keep: keepAll})
	return r.State, err
}

// injected runs the act with a fault at its n-th system call; hit reports whether there are so
// many.
func injected(t testing.TB, tool string, a act, n int, fault ...string) (out acted, hit,
	killed bool) {
	t.Helper()
	text, err := json.Marshal(a)
	must(t, err)
	record := filepath.Join(t.TempDir(), "points")
	args := append([]string{"-role", "act", "-match", ".", "-n", strconv.Itoa(n), "-from",
		actBegins, "-record", record}, fault...)
	cmd := exec.Command(tool, append(args, "--", "/proc/self/exe")...)
	self, err := os.Executable()
	must(t, err)
	cmd.Args[len(cmd.Args)-1] = self
	cmd.Env = append(os.Environ(), actEnv+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	points, readErr := os.ReadFile(record)
	must(t, readErr)
	hit = bytes.Contains(points, []byte(`"failed":true`))
	killed = cmd.ProcessState.ExitCode() == 128+int(syscall.SIGKILL)
	if !killed {
		if err != nil || json.Unmarshal(stdout.Bytes(), &out) != nil {
			t.Fatalf("fault %v at %d: the act said nothing: %v %s%s", fault, n, err, stdout.Bytes(),
				stderr.Bytes())
		}
	}
	return out, hit, killed
}

// A faultBed is one workspace that is committed and reverted over and over.
type faultBed struct {
	f             *fixture
	script        string
	before, after string
	points        map[string]int
}

func newFaultBed(f *fixture, script string) *faultBed {
	b := &faultBed{f: f, script: script, points: map[string]int{}}
	b.fresh()
	b.plain("commit")
	b.after = snapshotText(f.real)
	if b.after == b.before {
		f.t.Fatal("the control: a commit changes nothing")
	}
	b.plain("revert")
	b.is("the first revert", b.before)
	return b
}

// fresh begins with another workspace of the same name.
func (b *faultBed) fresh() {
	f := b.f
	f.t.Helper()
	if err := f.store.discard("w"); err != nil && !errors.Is(err, ErrNotFound) {
		f.t.Fatal(err)
	}
	must(f.t, os.RemoveAll(f.real))
	must(f.t, os.Mkdir(f.real, 0o755))
	f.faultTree()
	b.before = snapshotText(f.real)
	w := f.prepareAs("w", Caller{UID: realUID, GID: realUID}, 8<<20, 500)
	if a := f.run(w, order{UID: realUID, Script: b.script}); a.Script != "" {
		f.t.Fatalf("%s: %s", a.Script, a.Out)
	}
	must(f.t, w.Freeze())
	_, _, err := w.Review(f.t.Context())
	must(f.t, err)
	must(f.t, errors.Join(w.Keep(), w.Close()))
}

func (b *faultBed) plain(do string) {
	b.f.t.Helper()
	if _, err := (act{b.f.dir, do}).run(); err != nil {
		b.f.t.Fatalf("%s: %v", do, err)
	}
}

func (b *faultBed) is(when, want string) {
	b.f.t.Helper()
	if now := snapshotText(b.f.real); now != want {
		b.f.t.Fatalf("%s: %s", when, cmp.Diff(want, now))
	}
}

// try has a fault at one call, lets a later process recover, and looks at the tree.
func (b *faultBed) try(tool, do string, n int, fault ...string) bool {
	t := b.f.t
	t.Helper()
	from, to := b.before, b.after
	if do == "revert" {
		from, to = to, from
	}
	if snapshotText(b.f.real) != from && from == b.before {
		// A fault while it was kept: the commit stands all the same.
		if _, err := (act{b.f.dir, "revert"}).run(); errors.Is(err, ErrNotKept) {
			b.fresh()
		} else if err != nil {
			t.Fatalf("the way back: %v", err)
		}
	} else if from == b.after && snapshotText(b.f.real) != from {
		b.plain("commit")
	}
	b.is("the way back", from)
	what := fmt.Sprintf("%s, %v at call %d", do, fault, n)
	out, hit, killed := injected(t, tool, act{b.f.dir, do}, n, fault...)
	if !hit {
		b.is(what+": none", to)
		return false
	}
	b.points[do+" "+strings.Join(fault, " ")]++
	if n := b.total(); n%100 == 0 {
		t.Logf("%d points so far", n)
	}
	switch {
	case killed, out.State == Committing:
		// In the second case all is in place but what a recovery has to tidy up.
	case out.Err == "":
		b.is(what+": it said that all went well", to)
	case !out.Incomplete:
		b.is(fmt.Sprintf("%s: it said that nothing was changed (%s)", what, out.Err), from)
	}
	_, err := b.f.store.Recover(t.Context())
	if err != nil {
		t.Fatalf("%s (%+v): recover: %v", what, out, err)
	}
	now := snapshotText(b.f.real)
	if now != from && now != to {
		t.Fatalf("%s (%+v): the tree is mixed: %s", what, out, cmp.Diff(to, now))
	}
	b.stateAgrees(what, now == b.after)
	b.nothingLeft(what)
	return true
}

func (b *faultBed) total() (n int) {
	for _, count := range b.points {
		n += count
	}
	return n
}

// stateAgrees makes sure that the store says the same as the tree.
func (b *faultBed) stateAgrees(what string, committed bool) {
	t := b.f.t
	t.Helper()
	w, err := b.f.store.Get("w")
	must(t, err)
	defer w.Close()
	stands := 0
	for _, r := range w.Info().Commits {
		if r.Reverted.IsZero() {
			stands++
		}
	}
	if w.Info().State != Frozen || committed != (stands == 1) || stands > 1 {
		t.Fatalf("%s: the tree is committed: %v; the store says %s, %d commits stand", what,
			committed, w.Info().State, stands)
	}
}

func (b *faultBed) nothingLeft(what string) {
	b.f.t.Helper()
	must(b.f.t, filepath.WalkDir(b.f.real, func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(filepath.Base(path), ".jail-") {
			b.f.t.Fatalf("%s: left: %s", what, path)
		}
		return err
	}))
}

func buildInjector(t *testing.T) string {
	t.Helper()
	tool := filepath.Join(t.TempDir(), "inject")
	must(t, built.Program(tool, []string{"CGO_ENABLED=0"}, "-ldflags=-s -w", "./cmd/testdata/inject"))
	return tool
}

// T-324: TestFaultAtEverySystemCall ends commits and reverts at their system calls, by a kill, with
// EIO and with ENOSPC. After a recovery the tree is old or new, the store says the same, and no
// name of ours is left. The calls are taken at even distances, smaller ones with JAIL_TEST_LONG.
func TestFaultAtEverySystemCall(t *testing.T) {
	if !inPrivateMounts(t) {
		return
	}
	tool := buildInjector(t)
	long := os.Getenv("JAIL_TEST_LONG") != ""
	eachFileSystem(t, func(t *testing.T, d *disk) {
		d.make()
		f := d.fixture()
		script := faultScript
		if d.kind == "xfs" {
			script = faultScriptMany
		}
		b := newFaultBed(f, script)
		// long: each call by some fault on some file system
		step, first := 7, 1
		switch {
		case os.Getenv("JAIL_VM_BUILT") != "": // on an emulated processor
			step = 500
		case !long:
			step = 350
		}
		for _, do := range []string{"commit", "revert"} {
			for _, fault := range [][]string{{"-kill"}, {"-errno", "EIO"}, {"-errno", "ENOSPC"}} {
				for n := first; b.try(tool, do, n, fault...); n += step {
				}
				first++
			}
		}
		total := b.total()
		t.Logf("%d points: %v", total, b.points)
		if total < 12 {
			t.Errorf("only %d points: the test tests nothing", total)
		}
	})
}
