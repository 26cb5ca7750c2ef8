package policy_test

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// Whatever path a caller names as the workspace, it is that directory or nothing: not a larger one,
// and not what a name means to somebody else (T-001, T-080, T-081).
func TestWorkspacePaths(t *testing.T) {
	h := cmdtest.New(t)
	link := func(name, to string) string {
		path := filepath.Join(h.Root, name)
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := filepath.Join(h.Root, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	deep := h.Work
	for range 40 {
		deep = filepath.Join(deep, strings.Repeat("d", 200))
	}
	// Process 1 stands in the root on most hosts, and not in each container.
	other := exec.Command("cat")
	other.Dir = "/"
	hold, err := other.StdinPipe()
	if err == nil {
		err = other.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { hold.Close(); other.Wait() }()
	others := fmt.Sprintf("/proc/%d/", other.Process.Pid)
	for name, path := range map[string]string{
		"root": "/", "root by dots": "../../../../../..", "root by a link": link("root", "/"),
		"root twice":   "//",
		"a descriptor": "/proc/self/fd/7", "a descriptor twice": "//proc/self/fd/7",
		"another's directory": others + "cwd", "another's root": others + "root",
		"procfs": "/proc", "sysfs": "/sys", "devices": "/dev",
		"dangling": link("dangling", "nowhere"), "a loop": link("loop", "loop"), "a file": file,
		"below a file": filepath.Join(file, "x"), "long": deep,
		"a long name": filepath.Join(h.Work, strings.Repeat("n", 300)),
		"no text":     filepath.Join(h.Work, "\xff\xfe"), "none there": filepath.Join(h.Work,
			"nothing"),
	} {
		o := h.Jail("run", "--commit", "--workspace", path, "--", "touch", "ran")
		if o.Code != 126 && o.Code != 127 && o.Code != 2 {
			t.Errorf("%s: %.300q: exit code %d\n%s", name, path, o.Code, o.Err)
		}
		if !cmdtest.Sentence.MatchString(o.Err) {
			t.Errorf("%s: stderr is not one sentence: %.500q", name, o.Err)
		}
		if _, err := os.Lstat("/ran"); err == nil {
			t.Fatalf("%s: the tool wrote to the root of the host", name)
		}
	}
	// A link to a directory that is the caller's to name is that directory.
	if o := h.Jail("run", "--commit", "--workspace", link("work-link", h.Work), "--", "touch",
		"ran"); o.Code != 0 {
		t.Errorf("by a link: %+v", o)
	}
	if _, err := os.Stat(filepath.Join(h.Work, "ran")); err != nil {
		t.Error(err)
	}
	for _, id := range h.Kept() {
		h.Discard(id)
	}
}

// A policy is what it was when the run started, whatever becomes of its file (T-086).
func TestPolicyFileChanges(t *testing.T) {
	h := cmdtest.New(t)
	file := filepath.Join(h.Root, "own.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const tight = "policy = 1\nname = \"own\"\ninclude = [\"base\"]\n[tools]\nmodules = [\"**\"]\n" +
		"[workspace]\naccess = \"read\"\n[limits]\nwall = \"10m\"\npids = 20\n"
	write(tight)
	live := h.Live("victim", "--policy", file)
	before := cmdtest.Verification(h, "victim", 0)
	for name, change := range map[string]func(){
		"rewritten": func() { write(strings.Replace(tight, "pids = 20", "pids = 4000", 1)) },
		"cut off":   func() { write("") },
		"replaced": func() {
			if err := os.Rename(filepath.Join(h.Root, "other.toml"), file); err != nil {
				t.Fatal(err)
			}
		},
		"deleted": func() { _ = os.Remove(file) },
	} {
		if err := os.WriteFile(filepath.Join(h.Root, "other.toml"), []byte("policy = 1\n"),
			0o644); err != nil {
			t.Fatal(err)
		}
		change()
		after := cmdtest.Verification(h, "victim", 0)
		if want, got := pidsLimit(t, before.Findings),
			pidsLimit(t, after.Findings); want != "20 tasks" || got != want {
			t.Errorf("%s: the limit of tasks is %s, was %s", name, got, want)
		}
		live.Says("still here")
	}
	live.In.Close()
	live.Wait()
	if o := h.Jail("run", "--policy", file, "--", "true"); o.Code == 0 {
		t.Error("a policy that is gone is no policy, and the run started")
	}
}

func pidsLimit(t *testing.T, findings any) string {
	t.Helper()
	text, err := json.Marshal(findings)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`"what":"pids","answer":"ok","want":"([^"]*)"`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("nothing was found out about the limit of tasks: %s", text)
	}
	return string(m[1])
}

// poison are variables that make innocent programs do something else.
var poison = strings.Fields(`LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT BASH_ENV ENV PROMPT_COMMAND GIT_DIR GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_CONFIG_COUNT GIT_PAGER
	NODE_OPTIONS PYTHONSTARTUP PYTHONPATH PYTHONHOME PERL5OPT PERL5LIB RUBYOPT RUBYLIB JAVA_TOOL_OPTIONS HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy PAGER EDITOR VISUAL
	LESSOPEN MANPAGER SHELLOPTS IFS CDPATH GLOBIGNORE GOFLAGS GOTRACEBACK CARGO_HOME RUSTC_WRAPPER DBUS_SESSION_BUS_ADDRESS SSH_AUTH_SOCK DOCKER_HOST DISPLAY
	WAYLAND_DISPLAY XDG_RUNTIME_DIR KUBECONFIG AWS_SECRET_ACCESS_KEY`)

// Nothing of the caller's environment reaches the tool but what the policy names (T-075, T-087).
func TestPoisonedEnvironment(t *testing.T) {
	h := cmdtest.New(t)
	clean := h.Jail("run", "--", h.Probe, "env")
	cmd := h.Command("run", "--", h.Probe, "env")
	for _, name := range poison {
		// These would change what the test itself starts.
		if name != "LD_PRELOAD" && name != "LD_AUDIT" {
			cmd.Env = append(cmd.Env, name+"=poison")
		}
	}
	o := h.Run(cmd)
	if o.Code != 0 || o.Out != clean.Out || strings.Contains(o.Out, "poison") {
		t.Errorf("exit code %d\n%s\nwant\n%s%s", o.Code, o.Out, clean.Out, o.Err)
	}
	// The control: what is asked for is seen.
	if o := h.Jail("run", "--env", "PAGER=poison", "--", h.Probe, "env"); !strings.Contains(o.Out,
		"PAGER=poison") {
		t.Errorf("%+v", o)
	}
}

// No policy can decide by the text of a command, since no such list holds (T-088): there is no key
// for it.
func TestNoCommandText(t *testing.T) {
	words := regexp.MustCompile(`command|args|argv|pattern|regex|shell|match|exec`)
	keys := syntax.Keys()
	if len(keys) < 20 {
		t.Fatalf("only %d keys", len(keys))
	}
	for _, k := range keys {
		if words.MatchString(k.Path) {
			t.Errorf("key %s: %s", k.Path, k.About)
		}
	}
}

// No option of any command takes a wall away (T-089).
func TestNoWayOut(t *testing.T) {
	text, err := os.ReadFile(cmdtest.Tree("cmd", "jail", "testdata", "help.txt"))
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`--[a-z][a-z-]*`).FindAllString(string(text), -1)
	if len(flags) < 20 {
		t.Fatalf("only %d options: %v", len(flags), flags)
	}
	bad := regexp.MustCompile(
		`unsafe|insecure|disable|no-sandbox|no-jail|privileged|skip|bypass|ignore|unconfined|dangerous|trust|yolo|without`)
	for _, f := range slices.Compact(slices.Sorted(slices.Values(flags))) {
		if bad.MatchString(f) {
			t.Errorf("option %s", f)
		}
	}
}

// Every program is whole: none loads a library or an interpreter, so nothing in a jail's tree is
// ever loaded into a process of the host (T-006).
func TestStaticPrograms(t *testing.T) {
	cmdtest.NeedBuilt(t)
	for _, name := range []string{"jail", "jail-full", "jaild", "jail-shim", "jail-init"} {
		f, err := elf.Open(filepath.Join(cmdtest.Built, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		libraries, err := f.ImportedLibraries()
		if err != nil || len(libraries) > 0 {
			t.Errorf("%s loads %v, %v", name, libraries, err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s has an interpreter", name)
			}
		}
	}
}

// Executed without a single argument, which some programs take for one, every program says so or
// ends (T-036).
func TestNoArguments(t *testing.T) {
	cmdtest.NeedBuilt(t)
	for _, name := range []string{"jail", "jail-full", "jail-shim", "jail-init"} {
		cmd := exec.Command(filepath.Join(cmdtest.Built, name))
		cmd.Args = []string{}
		cmd.Env = []string{"JAIL_STATE=" + t.TempDir()}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		out, err := cmd.CombinedOutput()
		s := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if s.Signaled() || strings.Contains(string(out), "goroutine ") ||
			strings.Contains(string(out), "panic") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if name != "jail" && name != "jail-full" && s.ExitStatus() == 0 {
			t.Errorf("%s takes that for success", name)
		}
	}
}

// Files of procfs that are others than the kernel's are not written to and not believed (T-011):
// nothing starts.
func TestFalseProc(t *testing.T) {
	without := cmdtest.Must(cmdtest.WithoutProgram())(t)
	for _, dir := range []string{"/proc", "/proc/self"} {
		h := cmdtest.New(t)
		o := h.Run(h.Program(without, "-tmpfs", dir+"=", "--", filepath.Join(h.Bin, "jail"), "run",
			"--commit", "--", "touch", "ran"))
		if o.Code == 0 {
			t.Errorf("%s: it ran", dir)
		}
		if _, err := os.Stat(filepath.Join(h.Work, "ran")); err == nil {
			t.Errorf("%s: the tool ran", dir)
		}
	}
}
