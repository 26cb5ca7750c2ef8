package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// The tool's side of a test runs in a copy of the test binary, in a mount namespace of its own, so
// that the host's mount table stays as it is.
const childEnv = "JAIL_WORKSPACE_TEST_CHILD"

const testBase = 0x70010000

// the child's main thread is the one with the private mounts
func init() { runtime.LockOSThread() }

// An order is what the child does on the shadow, as the tool's user.
type order struct {
	Target string
	UID    int    // inside
	Script string // for sh
	Ops    []toolOp
	Read   bool // without an upper layer
	// Shell reads scripts from the child's input, for as long as that is open.
	Shell bool
	// Frozen is the number of frozen layers.
	Frozen int
	// do not look at the tree afterwards
	Quiet bool
	// Copy the tree there afterwards, as root.
	Copy string
}

type answer struct {
	Out    string
	Err    string // of attaching
	Script string // of the script
	Attach time.Duration
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		json.NewEncoder(os.Stdout).Encode(childMain(text))
		os.Exit(0)
	}
	if text := os.Getenv(actEnv); text != "" {
		json.NewEncoder(os.Stdout).Encode(actMain(text))
		os.Exit(0)
	}
	if dir := os.Getenv(reviewEnv); dir != "" {
		if err := reviewMain(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// reviewMain shows the workspace r1 of a store.
func reviewMain(dir string) error {
	store, err := Open(dir)
	if err != nil {
		return err
	}
	w, err := store.Get("r1")
	if err != nil {
		return err
	}
	return errors.Join(w.patch(context.Background(), os.Stdout, PatchOptions{Terminal: true}),
		w.Close())
}

func childMain(text string) (a answer) {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return answer{Err: err.Error()}
	}
	if err := childAttach(o, &a); err != nil {
		a.Err = err.Error()
		return a
	}
	uid := testBase + o.UID
	if o.Shell {
		cmd := exec.Command("/bin/sh")
		cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Target, os.Stdin, os.Stdout, os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid),
			Gid: uint32(uid)}, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Run(); err != nil {
			a.Script = err.Error()
		}
		return a
	}
	if o.Script != "" {
		cmd := exec.Command("/bin/sh", "-c", o.Script)
		cmd.Dir = o.Target
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid),
			Gid: uint32(uid)}}
		out, err := cmd.CombinedOutput()
		a.Out = string(out)
		if err != nil {
			a.Script = err.Error()
		}
		return a
	}
	if err := os.Chdir(o.Target); err != nil {
		a.Err = err.Error()
		return a
	}
	if err := syscall.Setresgid(uid, uid, uid); err != nil {
		a.Err = err.Error()
	}
	if err := syscall.Setresuid(uid, uid, 0); err != nil {
		a.Err = err.Error()
	}
	syscall.Umask(0o022)
	for _, op := range o.Ops {
		op.run()
	}
	// To look at everything, whatever its mode is by now.
	if err := syscall.Setresuid(0, 0, 0); err != nil {
		a.Err = err.Error()
	}
	if o.Copy != "" {
		if out, err := exec.Command("cp", "-a", ".", o.Copy).CombinedOutput(); err != nil {
			a.Err = fmt.Sprintf("cp: %v: %s", err, out)
		}
	}
	if !o.Quiet {
		a.Out = snapshotText(o.Target)
	}
	return a
}

func childAttach(o order, a *answer) error {
	if err := sys.PrivateMounts(); err != nil {
		return err
	}
	ids := []sys.IDMap{{Inside: 0, Host: testBase, Size: 65536}}
	userns, err := sys.NewUserNS(sys.UserNS{UIDs: ids, GIDs: ids})
	if err != nil {
		return err
	}
	defer userns.Close()
	att := Attachment{Lower: os.NewFile(3, "lower"), Upper: os.NewFile(4, "upper"), UserNS: userns,
		Base: testBase, Target: o.Target}
	for i := range o.Frozen {
		att.Frozen = append(att.Frozen, os.NewFile(uintptr(5+i), "frozen"))
	}
	if o.Read {
		att.Upper = nil
	}
	start := time.Now()
	err = Attach(att)
	a.Attach = time.Since(start)
	att.Lower.Close()
	if att.Upper != nil {
		att.Upper.Close()
	}
	return err
}

// A fixture is a store and a real directory below a temporary one.
type fixture struct {
	t      testing.TB
	store  *Store
	dir    string // the store's
	real   string
	target string
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("this machine has no loop devices")
	}
	tmp, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.Chmod(tmp, 0o755))
	// Test directories are closed to others, and the tool is another.
	for d := tmp; d != "/"; d = filepath.Dir(d) {
		if st, err := os.Stat(d); err == nil && st.Mode()&0o001 == 0 {
			must(t, os.Chmod(d, st.Mode()|0o011))
		}
	}
	f := &fixture{t: t, dir: filepath.Join(tmp, "store"), real: filepath.Join(tmp, "real"),
		target: filepath.Join(tmp, "target")}
	must(t, os.Mkdir(f.real, 0o755))
	must(t, os.Mkdir(f.target, 0o755))
	f.store, err = Open(f.dir)
	must(t, err)
	t.Cleanup(func() { f.store.Close() })
	return f
}

// workIn changes the working directory of the process. back changes it again: what a later test
// builds lies beside the first one.
func workIn(t testing.TB, dir string) (back func()) {
	t.Helper()
	home, err := os.Getwd()
	must(t, err)
	must(t, os.Chdir(dir))
	return func() { must(t, os.Chdir(home)) }
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write makes files: "dir/" is a directory, "link -> target" a link, everything else a file with
// its own name as content.
func (f *fixture) write(paths ...string) {
	f.t.Helper()
	for _, p := range paths {
		name, target, link := strings.Cut(p, " -> ")
		full := filepath.Join(f.real, name)
		must(f.t, os.MkdirAll(filepath.Dir(full), 0o755))
		switch {
		case link:
			must(f.t, os.Symlink(target, full))
		case strings.HasSuffix(p, "/"):
			must(f.t, os.MkdirAll(full, 0o755))
		default:
			must(f.t, os.WriteFile(full, []byte(p+"\n"), 0o644))
		}
	}
}

// settle waits until the file system's clock has moved on, so that what was written before is older
// than what comes.
func settle(t testing.TB) {
	t.Helper()
	last, err := sys.CoarseNow()
	must(t, err)
	// The first may have been due before that was written.
	for ticks := 0; ticks < 2; runtime.Gosched() {
		now, err := sys.CoarseNow()
		must(t, err)
		if now.Compare(last) > 0 {
			ticks++
			last = now
		}
	}
}

func (f *fixture) prepare(id string) *Workspace { return f.prepareAs(id, Caller{}, 64<<20, 2000) }

func (f *fixture) prepareAs(id string, c Caller, bytes, inodes int64) *Workspace {
	f.t.Helper()
	settle(f.t)
	source, err := os.Open(f.real)
	must(f.t, err)
	defer source.Close()
	w, err := f.store.Prepare(Spec{ID: id, Source: source, Bytes: bytes, Inodes: inodes, Caller: c})
	must(f.t, err)
	f.t.Cleanup(func() { w.Close() })
	return w
}

// run has the tool do something on the shadow and returns what it said.
func (f *fixture) run(w *Workspace, o order) answer {
	f.t.Helper()
	lower, err := w.Lower()
	must(f.t, err)
	defer lower.Close()
	upper, err := w.Upper()
	must(f.t, err)
	defer upper.Close()
	frozen, err := FrozenLayers(w)
	must(f.t, err)
	defer closeAll(frozen...)
	return f.child(lower, upper, o, frozen...)
}

func (f *fixture) child(lower, upper *os.File, o order, frozen ...*os.File) answer {
	f.t.Helper()
	a := f.ask(lower, upper, o, frozen...)
	if a.Err != "" {
		f.t.Fatalf("child: %s", a.Err)
	}
	return a
}

// ask is child for a shadow that may be refused.
func (f *fixture) ask(lower, upper *os.File, o order, frozen ...*os.File) answer {
	f.t.Helper()
	o.Target, o.Frozen = f.target, len(frozen)
	text, err := json.Marshal(o)
	must(f.t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.ExtraFiles = append([]*os.File{lower, upper}, frozen...)
	out, err := cmd.Output()
	must(f.t, err)
	var a answer
	must(f.t, json.Unmarshal(out, &a))
	return a
}

// shadow prepares a workspace, runs a script in it and freezes it.
func (f *fixture) shadow(id, script string) *Workspace {
	f.t.Helper()
	w := f.prepare(id)
	if a := f.run(w, order{Script: script}); a.Script != "" {
		f.t.Fatalf("script: %s: %s", a.Script, a.Out)
	}
	must(f.t, w.Freeze())
	return w
}

func changesOf(t testing.TB, w *Workspace) []Change {
	t.Helper()
	var all []Change
	for c, err := range w.changes(t.Context(), false) {
		must(t, err)
		all = append(all, c)
	}
	return all
}

// brief renders changes as "kind path", one word each.
func brief(changes []Change) []string {
	out := []string{}
	for _, c := range changes {
		out = append(out, fmt.Sprintf("%s %s", c.Kind, c.Path))
	}
	return out
}
