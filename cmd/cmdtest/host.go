package cmdtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/jailtest/built"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// From runs a command of jail with another working directory.
func (h *Host) From(dir string, args ...string) Outcome {
	h.T.Helper()
	cmd := h.Command(args...)
	cmd.Dir = dir
	return h.Run(cmd)
}

// Detached starts a run that goes on by itself.
func Detached(h *Host, args ...string) string {
	h.T.Helper()
	o := h.Jail(append([]string{"run", "--detach"}, args...)...)
	id := strings.TrimSpace(o.Out)
	if o.Code != 0 || id == "" {
		h.T.Fatalf("run --detach %q: %+v", args, o)
	}
	return id
}

// Bound is how long anything here may take before it counts as hanging. Nothing waits for as long
// as that unless it fails, so it leaves room for a machine that is busy with twenty other things.
var Bound = 3 * time.Minute * time.Duration(min(Slower(), 2))

// Slower is how many times as long compiling may take: the machines of cmd/dev/vmtest have an
// emulated processor, whose time goes on while the host does other work. No more is allowed.
func Slower() int {
	if os.Getenv("JAIL_VM_BUILT") != "" {
		return 100
	}
	return 1
}

// CompileSlowly lets what keeps its state in dir take its time to compile, where that is needed.
func CompileSlowly(dir string) error {
	return os.WriteFile(filepath.Join(dir, "jaild.toml"),
		fmt.Appendf(nil, "[compile]\ntimes = %d\n", Slower()), 0o600)
}

// NeedBuilt skips the test where jails cannot be started, and fails it where nothing is built.
func NeedBuilt(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start jails")
	}
	if _, err := os.Stat(filepath.Join(Built, "bundles", "core-utils", "bundle.json")); err != nil {
		t.Fatalf("%v: run make build first", err)
	}
}

// scratch outlives single tests: it holds the programs that they are made with. A process that a
// test starts from its own program shares that of its parent, which names it in scratchEnv.
var scratch string

const scratchEnv = "JAIL_TEST_SCRATCH"

// Main runs the tests of a package that uses this fixture, and returns the exit code. Each such
// package calls it from its TestMain.
func Main(m *testing.M) int {
	code := 1
	// A signal that is ignored here, as nohup has it, would be ignored by what the tests start,
	// too; one that is caught is not.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
		syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	if scratch = os.Getenv(scratchEnv); scratch != "" {
		return m.Run()
	}
	var err error
	if scratch, err = os.MkdirTemp("", "jail-life-"); err == nil {
		// Other users run what is in it.
		err = errors.Join(os.Chmod(scratch, 0o755), os.Setenv(scratchEnv, scratch))
	}
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	os.RemoveAll(scratch)
	return code
}

// Tree returns the path of a file of the source tree, in which the tests run.
func Tree(elem ...string) string { return built.Tree(elem...) }

// Built is where `make build` leaves the programs.
var Built = Tree("bin")

// Build returns a function that builds a program the first time that it is called. Its package is
// named from the directory cmd.
func Build(name, pkg string, env ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		path := filepath.Join(scratch, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
		if err := built.Program(fresh, append(env, "CGO_ENABLED=0"), "-ldflags=-s -w",
			"github.com/jail-sandbox/jail/"+filepath.Join("cmd", pkg)); err != nil {
			return "", err
		}
		return path, os.Rename(fresh, path)
	})
}

var (
	probeModule    = Build("probe.wasm", "./testdata/probe", "GOOS=wasip1", "GOARCH=wasm")
	WithoutProgram = Build("without", "./testdata/without")
)

// Must returns the value of a function that can fail, or fails the test.
func Must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A Host is one installation of jail with a state directory and a workspace of its own.
type Host struct {
	T     *testing.T
	Bin   string
	Root  string
	State string // JAIL_STATE
	Work  string
	Probe string
	Env   []string

	// Process ids of shared daemons that live.
	Daemons map[int]bool
	// In the state directory, and none of ours.
	Foreign map[string]bool
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Installed is a copy of the built programs where every user of the host can execute them, and no
// build beside the tests changes them.
var Installed = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "bin")
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	args := []string{"-R"}
	for _, name := range []string{"jail", "jail-full", "jaild", "jail-shim", "jail-oci", "jail-init",
		"jail-init-agent", "jail-agentd", "bundles"} {
		args = append(args, filepath.Join(Built, name))
	}
	// Where it was built: no run needs it.
	if runsc := filepath.Join(Built, "runsc"); exists(runsc) {
		args = append(args, runsc)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if out, err := exec.Command("cp", append(args, dir)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cp: %w: %s", err, out)
	}
	return dir, nil
})

// coreUtils is the module of most commands of the default profile.
const coreUtils = "bundles/core-utils/toybox.wasm"

// New returns a host on which the probe and coreUtils are compiled already. When the test ends
// nothing may be left of its runs, and the log must verify.
func New(t *testing.T) *Host {
	t.Helper()
	h := NewNative(t)
	if err := Compiled(h.State, h.Probe, filepath.Join(h.Bin, coreUtils)); err != nil {
		t.Fatal(err)
	}
	return h
}

// NewNative is New for tests that run no module: nothing is compiled, which takes minutes on an
// emulated processor.
func NewNative(t *testing.T) *Host {
	t.Helper()
	NeedBuilt(t)
	root, err := os.MkdirTemp("", "jail-life-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	h := &Host{T: t, Root: root, State: filepath.Join(root, "jail"), Work: filepath.Join(root,
		"work"),
		Daemons: map[int]bool{}, Foreign: map[string]bool{}}
	h.Bin = Must(Installed())(t)
	h.Probe = Must(probeModule())(t)
	for _, dir := range []string{root, h.State, filepath.Join(h.State, "state"), h.Work} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	// What waits for runs would be taken for what is left of them.
	h.Pool(0)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "JAIL_") {
			h.Env = append(h.Env, e)
		}
	}
	h.Env = append(h.Env, "JAIL_STATE="+h.State, "PATH="+h.Bin+":"+os.Getenv("PATH"))
	t.Cleanup(func() {
		h.WantNothingLeft()
		if _, err := os.Stat(filepath.Join(h.State, "audit", "audit.pub")); err == nil {
			h.Wants(h.Jail("audit", "verify"), 0, "")
		}
	})
	return h
}

// NewForEngines returns a host as New does, on which the probe is compiled for shared engines, too.
func NewForEngines(t *testing.T) *Host {
	t.Helper()
	h := New(t)
	if err := CompiledForEngines(h.State, h.Probe); err != nil {
		t.Fatal(err)
	}
	return h
}

// Command is jail with these arguments, in the workspace.
func (h *Host) Command(args ...string) *exec.Cmd {
	return h.Program(filepath.Join(h.Bin, "jail"), args...)
}

// Program is a command in the workspace.
func (h *Host) Program(path string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	h.T.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env = h.Work, h.Env
	return cmd
}

// An Outcome is what a user sees of a command.
type Outcome struct {
	// -1 and on: ended by that signal
	Code     int
	Out, Err string
}

// Jail runs jail with these arguments.
func (h *Host) Jail(args ...string) Outcome {
	h.T.Helper()
	return h.Run(h.Command(args...))
}

// Run runs a command to its end.
func (h *Host) Run(cmd *exec.Cmd) Outcome {
	h.T.Helper()
	var out, errOut bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &errOut
	}
	err := cmd.Run()
	return Outcome{h.ExitCode(cmd, err), out.String(), errOut.String()}
}

// ExitCode returns how a command ended, as an outcome has it.
func (h *Host) ExitCode(cmd *exec.Cmd, err error) int {
	h.T.Helper()
	if e := (*exec.ExitError)(nil); err != nil && !errors.As(err, &e) {
		h.T.Fatalf("%.200q: %v", cmd.Args, err)
	}
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		return -int(s.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// Sentence is an error as it must be: one line, and at most one hint.
var Sentence = regexp.MustCompile(`^jail: error: [^\n]+\n(jail: hint: [^\n]+\n)?$`)

// Wants checks an exit code; for those of jail's own also that there is one sentence, which pattern
// matches.
func (h *Host) Wants(o Outcome, code int, pattern string) {
	h.T.Helper()
	if o.Code != code {
		h.T.Errorf("exit code %d, want %d\nstdout: %.500s\nstderr: %.1000s", o.Code, code, o.Out,
			o.Err)
		return
	}
	if pattern == "" {
		return
	}
	if !Sentence.MatchString(o.Err) {
		h.T.Errorf("stderr is not one sentence: %.1000q", o.Err)
	}
	if !regexp.MustCompile(pattern).MatchString(o.Err) {
		h.T.Errorf("stderr %.1000q does not match %q", o.Err, pattern)
	}
}

// A LiveRun is a run of which it is known that its tool runs.
type LiveRun struct {
	H   *Host
	ID  string
	Cmd *exec.Cmd
	In  io.WriteCloser
	Out *bufio.Reader
	Err *bytes.Buffer
}

// Live starts a run that answers each line of its input, and returns when it has answered the
// first. Where the flags name no policy it has all the time that it is given.
func (h *Host) Live(id string, flags ...string) *LiveRun {
	h.T.Helper()
	if !slices.Contains(flags, "--policy") && !slices.Contains(flags, "--profile") {
		flags = append([]string{"--policy", Patient(h)}, flags...)
	}
	return h.LiveWith(h.Command(append(append([]string{"run", "--id", id}, flags...), "--", h.Probe,
		"lines")...), id)
}

// Patient is the default profile with more time, for a run that is to outlast what a slow processor
// does beside it.
func Patient(h *Host) string {
	h.T.Helper()
	path := filepath.Join(h.Root, "patient.toml")
	if err := os.WriteFile(path,
		[]byte("policy = 1\nname = \"patient\"\ninclude = [\"default\"]\n"+
			"[limits]\nwall = \"10m\"\n"), 0o644); err != nil {
		h.T.Fatal(err)
	}
	return path
}

// LiveWith is live of a command that runs the probe.
func (h *Host) LiveWith(cmd *exec.Cmd, id string) *LiveRun {
	h.T.Helper()
	r := &LiveRun{H: h, ID: id, Cmd: cmd, Err: &bytes.Buffer{}}
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = r.Err
	if err := errors.Join(err, err2, cmd.Start()); err != nil {
		h.T.Fatal(err)
	}
	r.In, r.Out = in, bufio.NewReader(out)
	r.Says("hello")
	return r
}

// Says checks that the run answers a line.
func (r *LiveRun) Says(word string) {
	r.H.T.Helper()
	_, err := fmt.Fprintln(r.In, word)
	line, err2 := r.Out.ReadString('\n')
	if line != "got "+word+"\n" {
		r.Cmd.Process.Kill()
		r.Cmd.Wait()
		r.H.T.Fatalf("run %s answered %q (%v)\n%s", r.ID, line, errors.Join(err, err2), r.Err)
	}
}

// Wait returns what came of the run, when it has ended.
func (r *LiveRun) Wait() Outcome {
	r.H.T.Helper()
	rest, _ := io.ReadAll(r.Out)
	err := r.Cmd.Wait()
	return Outcome{r.H.ExitCode(r.Cmd, err), string(rest), r.Err.String()}
}

// InitPID returns the host's number of the run's process 1, shimPID that of its shim. The daemon
// writes it down while the tool starts, so the record of the start can come first.
func (r *LiveRun) InitPID() int {
	r.H.T.Helper()
	var st struct{ PID int }
	Eventually(r.H.T, "the process of run "+r.ID+" is written down", func() bool {
		text, err := os.ReadFile(filepath.Join(r.H.State, "state", "runs", r.H.GlobalID(r.ID),
			"run.json"))
		return errors.Join(err, json.Unmarshal(text, &st)) == nil && st.PID != 0
	})
	return st.PID
}

// ParentOf returns the process id of the parent of a process.
func ParentOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "\nPPid:\t")
	n, err2 := strconv.Atoi(strings.SplitN(rest, "\n", 2)[0])
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return n
}

// A Record is what the tests look at in a line of the log.
type Record struct {
	Type      string
	Run       string
	RunID     string `json:"run_id"`
	Actor     struct{ UID int }
	ExitCode  int `json:"exit_code"`
	Signal    string
	Error     string
	Reason    string
	Workspace string
	Begun     bool
	GaveUp    string `json:"gave_up"`
	State     string
	Git       string
}

// Records returns what the log says of a run; of all, for "".
func (h *Host) Records(id, kind string) []Record {
	h.T.Helper()
	var all []Record
	segments, err := filepath.Glob(filepath.Join(h.State, "audit", "*.jsonl"))
	if err != nil {
		h.T.Fatal(err)
	}
	for _, s := range segments {
		text, err := os.ReadFile(s)
		if err != nil {
			h.T.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			if !bytes.Contains(line, []byte(`"`+id)) || !bytes.Contains(line, []byte(`"`+kind)) {
				// A log can have a hundred thousand records.
				continue
			}
			var r Record
			if json.Unmarshal(line, &r) == nil && (id == "" || r.Run == id) && (kind == "" ||
				r.Type == kind) {
				all = append(all, r)
			}
		}
	}
	return all
}

// Finished returns the one record of the end of a run.
func (h *Host) Finished(id string) Record {
	h.T.Helper()
	all := h.Records(id, "run.finished")
	if len(all) != 1 {
		h.T.Fatalf("run %s has %d records of its end: %+v", id, len(all), all)
	}
	return all[0]
}

// Eventually waits for something that another process does.
func Eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(Bound)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("still not after %v: %s", Bound, what)
		case <-tick.C:
		}
	}
}

// WantNothingLeft fails the test if anything stays behind on the host but the kept shadows named.
func (h *Host) WantNothingLeft(kept ...string) {
	h.T.Helper()
	var left []string
	deadline := time.Now().Add(Bound / 4)
	for {
		if left = Left(h, kept); len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			h.T.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Discard throws kept shadows away.
func (h *Host) Discard(ids ...string) {
	h.T.Helper()
	for _, id := range ids {
		h.Wants(h.Jail("discard", id), 0, "")
	}
}

// Sorted sorts names in place, and returns them.
func Sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// Kept returns the shadows that are kept.
func (h *Host) Kept() []string {
	var ids []string
	for _, name := range NamesIn(filepath.Join(h.State, "state", "workspaces")) {
		if name[0] != '.' {
			ids = append(ids, h.shownName(name))
		}
	}
	return ids
}

// Result runs jail run --json and reads what it says.
func (h *Host) Result(args ...string) message.Result {
	h.T.Helper()
	o := h.Jail(append([]string{"run", "--json"}, args...)...)
	var r message.Result
	if err := json.Unmarshal([]byte(o.Out), &r); err != nil {
		h.T.Fatalf("%v: %+v", err, o)
	}
	return r
}
