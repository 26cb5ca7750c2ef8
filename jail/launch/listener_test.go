package launch_test

import (
	"os"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

// TestFlood: many threads that are refused at once, interrupted by the signals of their own
// runtime, are counted exactly, each call once, and each gets its answer. JAIL_TEST_REFUSALS is how
// many calls each of 8 threads makes (T-056, T-409).
func TestFlood(t *testing.T) {
	const threads = 8
	each := 200
	if text := os.Getenv("JAIL_TEST_REFUSALS"); text != "" {
		var err error
		if each, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	j := jailtest.New(t).Start(t)
	if r := j.One("=refused", i(threads), i(int64(each))); r.Ret != 0 || r.Errno != "" {
		t.Errorf("%d calls had another answer (%v)", r.Ret, r)
	}
	if _, err := j.Try(do("=exit", i(0))); err == nil {
		t.Fatal("it lives on")
	}
	if _, err := j.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := j.Refused(); len(got) != 1 || got[0].What != "mount" ||
		got[0].Count != int64(threads*each) {
		t.Errorf("told of %+v, want %d mounts", got, threads*each)
	}
}

// TestListenerStops: threads that wait for an answer which does not come can be killed (T-056).
func TestListenerStops(t *testing.T) {
	j := jailtest.New(t).Start(t)
	j.One("getpid") // its restrictions stand
	shim := parent(t, j.PID)
	if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resumed := false
	resume := func() {
		if !resumed {
			resumed = true
			if err := syscall.Kill(shim, syscall.SIGCONT); err != nil {
				t.Error(err)
			}
		}
	}
	defer resume()
	if err := j.Invoke([]victim.Call{do("=refused", i(16), i(1000))}); err != nil {
		t.Fatal(err)
	}
	if err := j.Kill(); err != nil {
		t.Fatal(err)
	}
	var none []victim.Result
	// Its socket closes with the last of its threads.
	if err := j.Report(&none); err == nil {
		t.Errorf("it answered: %v", none)
	}
	resume()
	if status, err := j.Wait(); err != nil ||
		status != (control.Exited{Signal: int(syscall.SIGKILL)}) {
		t.Errorf("ended with %+v, %v", status, err)
	}
}

// TestListenerDies: without anyone who answers there is no jail.
func TestListenerDies(t *testing.T) {
	s := jailtest.New(t)
	j := s.Start(t)
	j.One("getpid")
	if err := j.Invoke([]victim.Call{do("=refused", i(8), i(1<<30))}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(parent(t, j.PID), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var none []victim.Result
	if err := j.Report(&none); err == nil {
		t.Errorf("it answered: %v", none)
	}
	if _, err := j.Wait(); err == nil {
		t.Error("the end of a shim that was killed is no error")
	}
	j.End()
	// Nobody else is left to.
	removeGroup(t, s)
}

// TestOwnFilter: a tool that could load filters of its own could hide nothing and allow nothing by
// them (T-057).
func TestOwnFilter(t *testing.T) {
	s := jailtest.New(t)
	allow(&s.Plan.InnerFilter, []string{"seccomp"})
	j := s.Start(t)
	// One instruction: allow. The pointer in struct sock_fprog has to be known inside, so the probe
	// does it.
	if r := j.One("=filter", i(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)); r.Errno != "EBUSY" {
		t.Errorf("a listener of its own: %v", r)
	}
	if r := j.One("=filter", i(0)); r.Errno != "" {
		t.Errorf("a filter that allows everything: %v; this test would see nothing", r)
	}
	if r := j.One("mount", i(0), i(0), i(0), i(0), i(0)); r.Errno != "EPERM" {
		t.Errorf("mount under it: %v", r)
	}
	_, _ = j.Try(do("=exit", i(0)))
	if _, err := j.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := j.Refused(); len(got) != 1 || got[0].What != "mount" || got[0].Count != 1 {
		t.Errorf("told of %+v", got)
	}
	// And with the real filter it cannot.
	j = jailtest.New(t).Start(t)
	for _, call := range []victim.Call{do("seccomp", i(unix.SECCOMP_SET_MODE_FILTER), i(0), i(0)),
		do("prctl", i(unix.PR_SET_SECCOMP), i(2), i(0)), do("prctl", i(unix.PR_SET_SECCOMP), i(1),
			i(0))} {
		if r := j.Do(call)[0]; r.Errno != "EPERM" {
			t.Errorf("%s: %v", call.Name, r)
		}
	}
}
