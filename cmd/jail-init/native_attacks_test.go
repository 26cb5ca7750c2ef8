package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/landlock"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/runners"
)

// attackPolicy lets one directory of programs run and nothing else; /store is the host's and
// writable.
const attackPolicy = `policy = 1
name = "attacks"
[[mount]]
target = "/tmp"
access = "tmpfs"
[[mount]]
source = %q
target = "/prog"
access = "read+exec"
[[mount]]
source = %q
target = "/store"
access = "write"
[limits]
wall = "1m"
cpu_time = "20s"
cpus = 1.0
memory = "256MiB"
pids = 64
open_files = 256
output = "1MiB"
workspace = "16MiB"
workspace_files = 100
file_size = "16MiB"
[tools]
native = ["/prog/**"]
[syscalls]
groups = ["native"]
`

// attackProgram is testdata/native/attack.c, built, and once more with the set-user-id bit of
// somebody else.
var attackProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp(shared.dir, "attack-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "attack")
	if out, err := exec.Command("gcc", "-O1", "-static", "-o", path,
		filepath.Join("testdata", "native", "attack.c")).CombinedOutput(); err != nil {
		return "", fmt.Errorf("gcc: %w\n%s", err, out)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	setID := filepath.Join(dir, "setid")
	if err := os.WriteFile(setID, text, 0o755); err != nil {
		return "", err
	}
	if err := os.Chown(setID, 2000, 2000); err != nil {
		return "", err
	}
	if err := os.Chmod(setID, 0o755|os.ModeSetuid|os.ModeSetgid); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
})

// An outcome of an attack: its exit code, 0 where it worked.
type attackOutcome struct {
	code  int
	said  string
	store string // on the host
}

// attack runs attacks, one after the other, with the plan of programs of the host, changed.
func (b *bed) attack(t *testing.T, names []string, terminal bool,
	change func(*jailtest.Setup)) attackOutcome {
	t.Helper()
	dir, err := attackProgram()
	if err != nil {
		t.Fatal(err)
	}
	s := jailtest.New(t)
	s.Launcher.Init = b.init
	file, err := syntax.Parse(syntax.Profile, "attacks.toml",
		fmt.Appendf(nil, attackPolicy, dir, s.Store), nil)
	if err != nil {
		t.Fatal(err)
	}
	eff, err := policy.Resolve(policy.Layer{Name: "attacks", Policy: file.Policy})
	if err != nil {
		t.Fatal(err)
	}
	command := jail.Command{Runner: jail.RunnerNative, Cwd: "/", Terminal: terminal}
	s.Plan, err = jail.NewPlan(eff, jail.Request{ID: s.Plan.ID, Base: s.Plan.IDs.Base,
		Slice: jailtest.Slice(), Command: command})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(s)
	}
	j := s.Start(t)
	order := runners.Order{Native: &runners.Native{Program: "/prog/attack"},
		Invocation: runners.Invocation{Args: append(runners.Texts{"attack"}, names...), Cwd: "/"}}
	if terminal {
		order.Native.Terminal = &runners.Terminal{Rows: 24, Columns: 80}
	}
	if err := j.Invoke(order); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(time.Minute, func() { _ = j.Kill() })
	defer watchdog.Stop()
	var answer runners.Answer
	// A jail that was killed has none.
	_ = j.Report(&answer)
	status, err := j.Wait()
	if err != nil {
		t.Fatal(err)
	}
	j.End()
	o := attackOutcome{code: status.Code, said: j.Stderr() + answer.Failure, store: s.Store}
	if status.Signal != 0 {
		o.code = 128 + status.Signal
	}
	return o
}

// allowing takes calls into both filters, with any arguments.
func allowing(calls ...string) func(*jailtest.Setup) {
	return func(s *jailtest.Setup) {
		for _, f := range []*seccomp.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
			for _, call := range calls {
				without(f, call)
				f.Allow = append(f.Allow, call)
				for _, absent := range []*[]string{&f.ENOSYS, &f.ENOTSUP, &f.EINVAL} {
					*absent = slices.DeleteFunc(slices.Clone(*absent),
						func(n string) bool { return n == call })
				}
			}
			slices.Sort(f.Allow)
		}
	}
}

// running lets programs run below a mount.
func running(target string) func(*jailtest.Setup) {
	return func(s *jailtest.Setup) {
		for n := range s.Plan.Mounts {
			if s.Plan.Mounts[n].Target == target {
				s.Plan.Mounts[n].Exec = true
			}
		}
		for n := range s.Plan.Landlock.Rules {
			if s.Plan.Landlock.Rules[n].Path == target {
				s.Plan.Landlock.Rules[n].Exec = true
			}
		}
	}
}

// TestNativeAttacks: what a program of the host that has gone over to the enemy tries from inside.
// The control beside each is the same attack where it must work: on the program's own, or with the
// wall taken out of the plan. What it could try from the place of process 1 is tried by TestWalls
// of jail/launch on the same stack; these are about what only programs of the host may do.
//
// T-021, T-030, T-033, T-036, T-038, T-044, T-060, T-063, T-072, T-073, T-074.
func TestNativeAttacks(t *testing.T) {
	const eperm, enoent, eacces = int(syscall.EPERM), int(syscall.ENOENT), int(syscall.EACCES)
	const einval = int(syscall.EINVAL)
	attacks := []struct {
		name    string
		want    int
		control string
	}{
		{"trace_init", eperm, "trace_child"},
		{"trace_child", eperm, "trace_child"},
		{"init_memory", eperm, "own_environ"},
		{"init_environ", eperm, "own_environ"},
		{"init_root", eperm, "own_root"},
		{"memory_file", eperm, "memory_file"},
		{"copy_tmp", eacces, "copy_tmp"},
		{"copy_store", eacces, "copy_store"},
		{"map_store", eperm, "map_store"},
		{"new_user", eperm, "new_user"},
		{"new_user_clone", eperm, "new_user_clone"},
		{"netlink", eperm, "netlink"},
		{"datagram", eperm, "datagram"},
		{"vsock", eperm, "netlink"},
		{"bind_store", eacces, "connect_own"},
		{"device_node", eperm, "fifo"},
		{"shadow_file", enoent, "own_environ"},
		{"splice_program", einval, "splice_program"},
		{"splice_pipes", einval, "splice_pipes"},
		{"tee_pipes", einval, "tee_pipes"},
		{"gift_page", einval, "gift_page"},
		{"take_capability", eperm, "take_capability"},
		{"keep_capability", eperm, "keep_capability"},
		{"become_root", eperm, "become_root"},
		{"become_root_group", eperm, "become_root_group"},
	}
	var names, controls []string
	for _, a := range attacks {
		names, controls = append(names, a.name), append(controls, a.control)
	}
	b := newBed(t)
	whole := b.attack(t, names, false, nil)
	weak := b.attack(t, controls, false, func(s *jailtest.Setup) {
		allowing("ptrace", "memfd_create", "unshare", "clone", "socket", "splice", "tee",
			"vmsplice")(s)
		running("/tmp")(s)
		running("/store")(s)
		s.Plan.UserCounts = nil
		s.Plan.Capabilities = []string{"CAP_CHOWN", "CAP_SETUID", "CAP_SETGID"}
	})
	for _, a := range attacks {
		if !strings.Contains("\n"+whole.said, fmt.Sprintf("\n%s %d\n", a.name, a.want)) {
			t.Errorf("%s does not end with %d: %s", a.name, a.want, whole.said)
		}
		if !strings.Contains("\n"+weak.said, fmt.Sprintf("\n%s 0\n", a.control)) {
			t.Errorf("%s: its control %s does not work: %s", a.name, a.control, weak.said)
		}
	}
}

// Nothing is typed into a terminal by what runs on it, not even into the jail's own, with -t or
// without. A program finds no terminal of the host, and no more than a devpts of the jail's own
// gives it. T-021.
func TestNativeTerminalAttacks(t *testing.T) {
	b := newBed(t)
	for _, name := range []string{"push_terminal", "push_terminal_wide", "console_terminal"} {
		if o := b.attack(t, []string{name}, true, nil); o.code != int(syscall.EPERM) {
			t.Errorf("%s: ended with %d\n%s", name, o.code, o.said)
		}
	}
	for name, want := range map[string]syscall.Errno{"own_terminal": 0,
		"push_own_terminal": syscall.EPERM, "push_own_terminal_wide": syscall.EPERM,
		"console_own_terminal": syscall.EPERM, "discipline_own_terminal": syscall.EPERM,
		"host_terminal": syscall.ENOENT, "no_terminal": syscall.ENXIO,
		"many_terminals": syscall.ENOSPC} {
		if o := b.attack(t, []string{name}, false, nil); o.code != int(want) {
			t.Errorf("%s: ended with %d\n%s", name, o.code, o.said)
		}
	}
	if !legacyTIOCSTI() {
		t.Log("this kernel takes TIOCSTI from nobody (dev.tty.legacy_tiocsti=0), so there is no " +
			"control")
		return
	}
	for _, name := range []string{"push_terminal", "push_terminal_wide", "push_own_terminal",
		"push_own_terminal_wide"} {
		if o := b.attack(t, []string{name}, !strings.Contains(name, "own"),
			allowing("ioctl")); o.code != 0 {
			t.Errorf("control %s: ended with %d\n%s", name, o.code, o.said)
		}
	}
}

// A fork bomb meets the limit of the control group. T-401.
func TestNativeForks(t *testing.T) {
	b := newBed(t)
	if o := b.attack(t, []string{"forks"}, false, nil); o.code != int(syscall.EAGAIN) {
		t.Errorf("ended with %d\n%s", o.code, o.said)
	}
	if o := b.attack(t, []string{"forks"}, false,
		func(s *jailtest.Setup) { s.Plan.Cgroup.PIDs = 600 }); o.code != 0 {
		t.Errorf("control: ended with %d\n%s", o.code, o.said)
	}
}

// legacyTIOCSTI reports whether the kernel takes TIOCSTI at all: where the switch is missing it
// does.
func legacyTIOCSTI() bool {
	text, err := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti")
	return err != nil || len(text) > 0 && text[0] == '1'
}

// Process 1 cannot be ended by what it runs, and says afterwards how that ended. T-038, T-414.
func TestNativeKillsAll(t *testing.T) {
	if o := newBed(t).attack(t, []string{"kill_all"}, false, nil); o.code != 200 {
		t.Errorf("ended with %d, want 200: the child was killed, the program and process 1 were "+
			"not\n%s", o.code, o.said)
	}
}

// A set-user-id program runs as who started it. T-036.
func TestNativeSetID(t *testing.T) {
	dir, err := attackProgram()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "setid"))
	if err != nil || info.Mode()&os.ModeSetuid == 0 {
		t.Fatalf("control: %v, %v", info.Mode(), err)
	}
	if o := newBed(t).attack(t, []string{"set_id"}, false, nil); o.code != 202 {
		t.Errorf("ended with %d, want 202: its effective user is its user\n%s", o.code, o.said)
	}
}

// What the program leaves behind ends with it. T-414.
func TestNativeOutlived(t *testing.T) {
	o := newBed(t).attack(t, []string{"outlive"}, false, nil)
	alive := filepath.Join(o.store, "alive")
	first, err := os.Stat(alive)
	if err != nil || o.code != 0 || first.Size() == 0 {
		t.Fatalf("control: the process behind wrote %v (%v), ended with %d\n%s", first, err, o.code,
			o.said)
	}
	if left := attackers(t); len(left) > 0 {
		t.Errorf("the program still runs in %v", left)
	}
}

// attackers returns the processes of the host that execute the program of attacks.
func attackers(t *testing.T) (left []string) {
	t.Helper()
	dir, err := attackProgram()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Stat(filepath.Join(dir, "attack"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, exe := range all {
		// A process may have ended.
		if info, err := os.Stat(exe); err == nil && os.SameFile(info, program) {
			left = append(left, exe)
		}
	}
	return left
}

// Sockets of the host: those with an abstract name cannot be seen; one with a path is reached where
// a mount of the policy shows it, which is what docs/native.md warns of. T-063, T-064, T-075.
func TestNativeHostSockets(t *testing.T) {
	b := newBed(t)
	abstract, err := net.Listen("unix", "@jail-attack-test")
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	const refused = int(syscall.ECONNREFUSED)
	if o := b.attack(t, []string{"connect_abstract"}, false, nil); o.code != refused &&
		o.code != int(syscall.EPERM) {
		t.Errorf("abstract: ended with %d\n%s", o.code, o.said)
	}
	var listeners []net.Listener
	listen := func(s *jailtest.Setup) {
		path := filepath.Join(s.Store, "socket")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	// From version 9 on Landlock keeps a program from sockets with a path that are not the jail's
	// own; before, this is a control of the abstract one.
	abi, err := landlock.ABI()
	if err != nil {
		t.Fatal(err)
	}
	path := 0
	if abi >= 9 {
		path = int(syscall.EACCES)
	}
	if o := b.attack(t, []string{"connect_store"}, false, listen); o.code != path {
		t.Errorf("a socket in a mount: ended with %d, want %d\n%s", o.code, path, o.said)
	}
	bare := func(s *jailtest.Setup) {
		s.Plan.Namespaces = slices.DeleteFunc(s.Plan.Namespaces,
			func(n jail.Namespace) bool { return n == "net" })
		s.Plan.Landlock.Scoped = false
	}
	if o := b.attack(t, []string{"connect_abstract"}, false, bare); o.code != 0 {
		t.Errorf("control: the abstract socket without the network namespace: ended with %d\n%s",
			o.code, o.said)
	}
}
