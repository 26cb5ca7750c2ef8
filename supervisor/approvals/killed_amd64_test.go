package approvals

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// killedIn names the directory of the child of TestKilled or TestClaimKilled, and killedAs what the
// child does.
const killedIn, killedAs = "JAIL_TEST_KILLED_IN", "JAIL_TEST_KILLED_AS"

// children are what a child does, by the test.
var children = map[string]func(dir string) error{"TestKilled": proposeAndApprove,
	"TestClaimKilled": claimAndReport}

func init() {
	if os.Getenv(killedIn) != "" {
		// The tracer follows the first thread of the process, so the work is done there.
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedIn); dir != "" {
		if err := children[os.Getenv(killedAs)](dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// marker is a system call of which nothing else makes any: from the first one on calls are counted.
const marker = syscall.SYS_ACCT

// proposeAndApprove proposes an action and approves it, and notes in files what it was answered.
func proposeAndApprove(dir string) error {
	d := deskIn(dir)
	_, _, _ = syscall.RawSyscall(marker, 1, 0, 0)
	a, err := d.ProposeCommit(context.Background(), user(alice, "proposer"), held(alice, 1))
	if err != nil {
		return err
	}
	if err := appendTo(filepath.Join(dir, "proposed"), a.ID); err != nil {
		return err
	}
	if _, err = d.approve(user(alice, "cli"), a, ""); err != nil {
		return err
	}
	return appendTo(filepath.Join(dir, "decided"), a.ID)
}

// TestKilled: a daemon is killed at each system call of a proposal and of a decision. What it was
// told of stands, nothing else is there, and the next daemon applies what was approved, once.
func TestKilled(t *testing.T) {
	// A traced process belongs to one thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	states := map[State]int{}
	for n := 1; ; n++ {
		if n > 2000 {
			t.Fatal("the child makes more than 2,000 system calls")
		}
		dir := t.TempDir()
		ended, err := killAt(t.Name(), dir, n)
		if err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		states[afterKill(t, dir, n)]++
		if ended {
			break
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("left behind: %v", states)
	if states[Pending] == 0 || states[Approved] == 0 || states[Applied] == 0 || states["none"] == 0 {
		t.Errorf("the child was not killed everywhere: %v", states)
	}
}

// killAt kills the child at the entry of its system call n. ended says that it made fewer.
func killAt(as, dir string, n int) (ended bool, err error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killedIn+"="+dir, killedAs+"="+as, "GODEBUG=asyncpreemptoff=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	pid, counting, entry, calls := cmd.Process.Pid, false, true, 0
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil {
		return false, err
	}
	if err := syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACESYSGOOD); err != nil {
		return false, err
	}
	for signal := 0; ; {
		if err := syscall.PtraceSyscall(pid, signal); err != nil {
			return false, err
		}
		if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil {
			return false, err
		}
		signal = 0
		switch {
		case ws.Exited() && ws.ExitStatus() == 0:
			return true, nil
		case !ws.Stopped():
			return false, fmt.Errorf("the child ended: %v", ws)
		case ws.StopSignal() != syscall.SIGTRAP|0x80:
			signal = int(ws.StopSignal())
			continue
		}
		if entry = !entry; entry {
			continue
		}
		if !counting {
			var regs syscall.PtraceRegs
			if err := syscall.PtraceGetRegs(pid, &regs); err != nil {
				return false, err
			}
			counting = regs.Orig_rax == marker
			continue
		}
		if calls++; calls == n {
			return false, nil
		}
	}
}

// afterKill holds what a killed daemon left against what it was told, and returns the state of the
// action before the next daemon did anything.
func afterKill(t *testing.T, dir string, n int) State {
	t.Helper()
	left := deskIn(dir)
	if err := os.MkdirAll(left.journal.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := left.journal.catchUp(left.forget, left.take); err != nil {
		t.Fatalf("call %d: %v", n, err)
	}
	was := State("none")
	for _, a := range left.actions {
		was = a.State
	}
	left.journal.close()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(text)
	}
	d := deskIn(dir)
	me := user(alice, "next")
	if err := d.Recover(); err != nil {
		t.Fatalf("call %d: %v", n, err)
	}
	all, err := d.List(me, true)
	if err != nil {
		t.Fatalf("call %d: %v", n, err)
	}
	proposed, decided, log := read("proposed"), read("decided"), read("log")
	applied := d.applied(t)
	switch {
	case len(all) > 1, proposed != "" && len(all) == 0:
		t.Fatalf("call %d: proposed %q, there are %v", n, proposed, all)
	case len(all) == 0:
		if len(applied) > 0 || strings.Contains(log, "approved") {
			t.Errorf("call %d: no action; applied %v, log %s", n, applied, log)
		}
		return was
	case all[0].State == Applied:
		if len(applied) != 1 || !strings.Contains(log, `"state":"approved"`) {
			t.Errorf("call %d: applied %v, log %s", n, applied, log)
		}
	case all[0].State == Pending:
		if len(applied) > 0 || decided != "" || strings.Contains(log, `"state":"approved"`) {
			t.Errorf("call %d: pending; applied %v, decided %q, log %s", n, applied, decided, log)
		}
		if _, err := d.approve(me, all[0], ""); err != nil {
			t.Errorf("call %d: %v", n, err)
		}
	default:
		t.Errorf("call %d: the action is %s", n, all[0].State)
	}
	_, err = d.approve(me, all[0], "")
	wantCode(t, fmt.Sprintf("call %d: approved again", n), err, problem.Conflict)
	if applied := d.applied(t); len(applied) != 1 {
		t.Errorf("call %d: applied %v", n, applied)
	}
	if log := read("log"); !strings.Contains(log, `"state":"applied"`) {
		t.Errorf("call %d: log %s", n, log)
	}
	return was
}

// claimAndReport proposes an action for its parent, approves it, claims it, does it and reports it, and
// notes in files what it was answered and that it did it.
func claimAndReport(dir string) error {
	d := deskIn(dir)
	proposer, claimant := user(alice, "proposer"), user(alice, "claimant")
	proposer.PID = os.Getppid()
	_, _, _ = syscall.RawSyscall(marker, 1, 0, 0)
	a, err := d.Programs().Propose(proposer, ProposeRequest{Type: policy.ActionGate,
		External: External{Gate: gate()},
		Key:      key}, ask(alice))
	if err != nil {
		return err
	}
	if _, err := d.approve(user(alice, "cli"), a, ""); err != nil {
		return err
	}
	if _, err := d.claim(claimant, a.ID); err != nil {
		return err
	}
	if err := appendTo(filepath.Join(dir, "done"), a.ID+"\n"); err != nil {
		return err
	}
	if _, err := d.report(claimant, a.ID, Applied); err != nil {
		return err
	}
	return appendTo(filepath.Join(dir, "reported"), a.ID)
}

// TestClaimKilled (T-551): a daemon and its client are killed at each system call from the proposal of an
// external action to its report. Nothing is done that no claim on record allowed, and what may have
// been done is never given to anybody again.
func TestClaimKilled(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	me, successor := other(t, alice), other(t, alice)
	states := map[State]int{}
	for n := 1; ; n++ {
		if n > 4000 {
			t.Fatal("the child makes more than 4,000 system calls")
		}
		dir := t.TempDir()
		ended, err := killAt(t.Name(), dir, n)
		if err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		states[afterClaim(t, deskIn(dir), n, me, successor)]++
		if ended || t.Failed() {
			break
		}
	}
	t.Logf("left behind: %v", states)
	for _, s := range []State{"none", Pending, Approved, Applying, Applied} {
		if states[s] == 0 && !t.Failed() {
			t.Errorf("the child was never killed where the action is %s: %v", s, states)
		}
	}
}

// afterClaim holds what was killed against what was done, has the next client go on, and returns the
// state of the action as the killed one left it.
func afterClaim(t *testing.T, d *desk, n int, me, successor caller.Caller) State {
	t.Helper()
	if err := d.Recover(); err != nil {
		t.Fatalf("call %d: %v", n, err)
	}
	done := strings.Fields(d.read(t, "done"))
	all, err := d.List(me, true)
	if err != nil || len(all) > 1 || len(all) == 0 && len(done) > 0 {
		t.Fatalf("call %d: there are %v, %v; done %v", n, all, err, done)
	}
	if len(all) == 0 {
		return "none"
	}
	a, log := all[0], d.read(t, "log")
	was := a.State
	if len(done) > 0 && (was != Applying && was != Applied ||
		!strings.Contains(log, `"state":"applying"`)) {
		t.Errorf("call %d: it was done; it is %s, log %s", n, was, log)
	}
	if d.read(t, "reported") != "" && was != Applied {
		t.Errorf("call %d: it was reported; it is %s", n, was)
	}
	if was == Pending {
		if a, err = d.approve(me, a, ""); err != nil {
			t.Errorf("call %d: %v", n, err)
		}
	}
	_, err = d.claim(successor, a.ID)
	switch {
	case was == Pending || was == Approved:
		if err != nil || len(done) > 0 {
			t.Errorf("call %d: %s: %v, done %v", n, was, err, done)
		}
		_, err = d.report(successor, a.ID, Applied)
	case was == Applying:
		wantCode(t, fmt.Sprintf("call %d: a second claim", n), err, problem.Conflict)
		if !a.Claim.Lost {
			t.Errorf("call %d: the claim is not shown as lost", n)
		}
		_, err = d.Programs().Settle(me, a.ID, SettleRequest{SHA256: a.SHA256, State: Applied})
	default:
		wantCode(t, fmt.Sprintf("call %d: a claim of what is over", n), err, problem.Conflict)
		err = nil
	}
	if a, getErr := d.Get(me, a.ID); err != nil || getErr != nil || a.State != Applied {
		t.Errorf("call %d: in the end: %+v, %v", n, a, errors.Join(err, getErr))
	}
	return was
}
