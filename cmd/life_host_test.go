package cmd_test

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
)

// scratch outlives single tests: it holds the programs that they are made with.
var scratch string

// runMain runs the tests of a package that uses this fixture, and returns the exit code. It is the
// package's TestMain.
func runMain(m *testing.M) int {
	code := 1
	// A signal that is ignored here, as nohup has it, would be ignored by what the tests start,
	// too; one that is caught is not.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
		syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	var err error
	if scratch, err = os.MkdirTemp("", "jail-life-"); err == nil {
		// Other users run what is in it.
		err = os.Chmod(scratch, 0o755)
	}
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	os.RemoveAll(scratch)
	return code
}

// tree returns the path of a file of the source tree, in which the tests run.
func tree(elem ...string) string {
	root, err := os.Getwd()
	for err == nil && root != "/" {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Dir(root)
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

// built is where `make build` leaves the programs.
var built = tree("bin")

// build returns a function that builds a program the first time that it is called. Its package is
// named from the directory cmd.
func build(name, pkg string, env ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		path := filepath.Join(scratch, name)
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, pkg)
		cmd.Dir, cmd.Env = tree("cmd"), append(append(os.Environ(), "CGO_ENABLED=0"), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build of %s: %w\n%s", pkg, err, out)
		}
		return path, nil
	})
}

var (
	probeModule    = build("probe.wasm", "./testdata/probe", "GOOS=wasip1", "GOARCH=wasm")
	withoutProgram = build("without", "./testdata/without")
)

// must returns the value of a function that can fail, or fails the test.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A host is one installation of jail with a state directory and a workspace of its own.
type host struct {
	t     *testing.T
	bin   string
	root  string
	state string // JAIL_STATE
	work  string
	probe string
	env   []string

	// Process ids of shared daemons that live.
	daemons map[int]bool
	// In the state directory, and none of ours.
	foreign map[string]bool
}

// installed is a copy of the built programs where every user of the host can execute them, and no
// build beside the tests changes them.
var installed = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "bin")
	args := []string{"-R"}
	for _, name := range []string{"jail", "jail-full", "jaild", "jail-shim", "jail-init", "bundles"} {
		args = append(args, filepath.Join(built, name))
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if out, err := exec.Command("cp", append(args, dir)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cp: %w: %s", err, out)
	}
	return dir, nil
})

// seed holds what every state directory would make anew: the compiled probe.
var seed = sync.OnceValues(func() (string, error) {
	probe, err := probeModule()
	if err != nil {
		return "", err
	}
	bin, err := installed()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(scratch, "seed")
	if err := errors.Join(os.Mkdir(dir, 0o755), compileSlowly(dir)); err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(bin, "jail"), "run", "--no-workspace", "--", probe)
	cmd.Env = append(os.Environ(), "JAIL_STATE="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("first run: %w\n%s", err, out)
	}
	return filepath.Join(dir, "state", "modules"), nil
})

// newHost returns a host on which the probe is compiled already. When the test ends nothing may be
// left of its runs, and the log must verify.
func newHost(t *testing.T) *host {
	t.Helper()
	needBuilt(t)
	root, err := os.MkdirTemp("", "jail-life-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	h := &host{t: t, root: root, state: filepath.Join(root, "jail"), work: filepath.Join(root,
		"work"),
		daemons: map[int]bool{}, foreign: map[string]bool{}}
	h.bin = must(installed())(t)
	h.probe = must(probeModule())(t)
	modules := must(seed())(t)
	for _, dir := range []string{root, h.state, filepath.Join(h.state, "state"), h.work} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("cp", "-a", modules,
		filepath.Join(h.state, "state", "modules")).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	// What waits for runs would be taken for what is left of them.
	h.pool(0)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "JAIL_") {
			h.env = append(h.env, e)
		}
	}
	h.env = append(h.env, "JAIL_STATE="+h.state, "PATH="+h.bin+":"+os.Getenv("PATH"))
	t.Cleanup(func() {
		h.wantNothingLeft()
		if _, err := os.Stat(filepath.Join(h.state, "audit", "audit.pub")); err == nil {
			h.wants(h.jail("audit", "verify"), 0, "")
		}
	})
	return h
}

// command is jail with these arguments, in the workspace.
func (h *host) command(args ...string) *exec.Cmd {
	return h.program(filepath.Join(h.bin, "jail"), args...)
}

// program is a command in the workspace.
func (h *host) program(path string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	h.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env = h.work, h.env
	return cmd
}

// An outcome is what a user sees of a command.
type outcome struct {
	// -1 and on: ended by that signal
	code     int
	out, err string
}

// jail runs jail with these arguments.
func (h *host) jail(args ...string) outcome {
	h.t.Helper()
	return h.run(h.command(args...))
}

// run runs a command to its end.
func (h *host) run(cmd *exec.Cmd) outcome {
	h.t.Helper()
	var out, errOut bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &errOut
	}
	err := cmd.Run()
	return outcome{h.exitCode(cmd, err), out.String(), errOut.String()}
}

// exitCode returns how a command ended, as an outcome has it.
func (h *host) exitCode(cmd *exec.Cmd, err error) int {
	h.t.Helper()
	if e := (*exec.ExitError)(nil); err != nil && !errors.As(err, &e) {
		h.t.Fatalf("%.200q: %v", cmd.Args, err)
	}
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		return -int(s.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// sentence is an error as it must be: one line, and at most one hint.
var sentence = regexp.MustCompile(`^jail: error: [^\n]+\n(jail: hint: [^\n]+\n)?$`)

// wants checks an exit code; for those of jail's own also that there is one sentence, which pattern
// matches.
func (h *host) wants(o outcome, code int, pattern string) {
	h.t.Helper()
	if o.code != code {
		h.t.Errorf("exit code %d, want %d\nstdout: %.500s\nstderr: %.1000s", o.code, code, o.out,
			o.err)
		return
	}
	if pattern == "" {
		return
	}
	if !sentence.MatchString(o.err) {
		h.t.Errorf("stderr is not one sentence: %.1000q", o.err)
	}
	if !regexp.MustCompile(pattern).MatchString(o.err) {
		h.t.Errorf("stderr %.1000q does not match %q", o.err, pattern)
	}
}

// A liveRun is a run of which it is known that its tool runs.
type liveRun struct {
	h   *host
	id  string
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err *bytes.Buffer
}

// live starts a run that answers each line of its input, and returns when it has answered the
// first.
func (h *host) live(id string, flags ...string) *liveRun {
	h.t.Helper()
	return h.liveWith(h.command(append(append([]string{"run", "--id", id}, flags...), "--", h.probe,
		"lines")...), id)
}

// patient is the default profile with more time, for a run that is to outlast what a slow processor
// does beside it.
func (h *host) patient() string {
	h.t.Helper()
	path := filepath.Join(h.root, "patient.toml")
	if err := os.WriteFile(path,
		[]byte("policy = 1\nname = \"patient\"\ninclude = [\"default\"]\n[limits]\nwall = \"10m\"\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
	return path
}

// liveWith is live of a command that runs the probe.
func (h *host) liveWith(cmd *exec.Cmd, id string) *liveRun {
	h.t.Helper()
	r := &liveRun{h: h, id: id, cmd: cmd, err: &bytes.Buffer{}}
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = r.err
	if err := errors.Join(err, err2, cmd.Start()); err != nil {
		h.t.Fatal(err)
	}
	r.in, r.out = in, bufio.NewReader(out)
	r.says("hello")
	return r
}

// says checks that the run answers a line.
func (r *liveRun) says(word string) {
	r.h.t.Helper()
	_, err := fmt.Fprintln(r.in, word)
	line, err2 := r.out.ReadString('\n')
	if line != "got "+word+"\n" {
		r.cmd.Process.Kill()
		r.cmd.Wait()
		r.h.t.Fatalf("run %s answered %q (%v)\n%s", r.id, line, errors.Join(err, err2), r.err)
	}
}

// wait returns what came of the run, when it has ended.
func (r *liveRun) wait() outcome {
	r.h.t.Helper()
	rest, _ := io.ReadAll(r.out)
	err := r.cmd.Wait()
	return outcome{r.h.exitCode(r.cmd, err), string(rest), r.err.String()}
}

// initPID returns the host's number of the run's process 1, shimPID that of its shim.
func (r *liveRun) initPID() int {
	r.h.t.Helper()
	var st struct{ PID int }
	text, err := os.ReadFile(filepath.Join(r.h.state, "state", "runs", r.h.globalID(r.id),
		"run.json"))
	if err = errors.Join(err, json.Unmarshal(text, &st)); err != nil || st.PID == 0 {
		r.h.t.Fatalf("run %s: %v: %s", r.id, err, text)
	}
	return st.PID
}

func (r *liveRun) shimPID() int {
	r.h.t.Helper()
	return parentOf(r.h.t, r.initPID())
}

// parentOf returns the process id of the parent of a process.
func parentOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "\nPPid:\t")
	n, err2 := strconv.Atoi(strings.SplitN(rest, "\n", 2)[0])
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return n
}

// A record is what the tests look at in a line of the log.
type record struct {
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
	Git       string
}

// records returns what the log says of a run; of all, for "".
func (h *host) records(id, kind string) []record {
	h.t.Helper()
	var all []record
	segments, err := filepath.Glob(filepath.Join(h.state, "audit", "*.jsonl"))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, s := range segments {
		text, err := os.ReadFile(s)
		if err != nil {
			h.t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			if !bytes.Contains(line, []byte(`"`+id)) || !bytes.Contains(line, []byte(`"`+kind)) {
				// A log can have a hundred thousand records.
				continue
			}
			var r record
			if json.Unmarshal(line, &r) == nil && (id == "" || r.Run == id) && (kind == "" ||
				r.Type == kind) {
				all = append(all, r)
			}
		}
	}
	return all
}

// finished returns the one record of the end of a run.
func (h *host) finished(id string) record {
	h.t.Helper()
	all := h.records(id, "run.finished")
	if len(all) != 1 {
		h.t.Fatalf("run %s has %d records of its end: %+v", id, len(all), all)
	}
	return all[0]
}

// eventually waits for something that another process does.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(bound)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("still not after %v: %s", bound, what)
		case <-tick.C:
		}
	}
}

// wantNothingLeft fails the test if anything stays behind on the host but the kept shadows named.
func (h *host) wantNothingLeft(kept ...string) {
	h.t.Helper()
	var left []string
	deadline := time.Now().Add(bound / 4)
	for {
		if left = h.left(kept); len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			h.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// discard throws kept shadows away.
func (h *host) discard(ids ...string) {
	h.t.Helper()
	for _, id := range ids {
		h.wants(h.jail("discard", id), 0, "")
	}
}

// sorted sorts names in place, and returns them.
func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
