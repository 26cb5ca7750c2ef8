package launch_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/launch"
)

// TestCancelStart cancels starts at random moments. When the launcher has returned, nothing of the
// jail is left: no process, no control group, and nothing in the directory of the run that would be
// in the way of the next start. Mounts are counted once, after the test. JAIL_TEST_LONG makes four
// times as many starts.
func TestCancelStart(t *testing.T) {
	cancelStarts(t, short(50, 200), func(int) {})
}

// TestCancelStuckStart does the same with starts that cannot end by themselves, because what the
// shim has started is stopped before the start is cancelled. So a cancelled start does not wait
// until the jail is set up.
func TestCancelStuckStart(t *testing.T) {
	stopped := 0
	cancelStarts(t, short(25, 100), func(shim int) {
		for _, pid := range childrenOf(shim) {
			if syscall.Kill(pid, syscall.SIGSTOP) == nil {
				stopped++
			}
		}
	})
	if stopped == 0 {
		t.Error("no process was stopped")
	}
}

// cancelStarts starts a jail so many times and cancels the start at a random moment in the length
// of the last one that was not cancelled. before is called before that, with the number of the
// shim.
func cancelStarts(t *testing.T, times int, before func(shim int)) {
	s := jailtest.New(t)
	// Processes that a shim leaves behind are then this process's.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	if left := childrenOf(os.Getpid()); len(left) > 0 {
		t.Fatalf("processes of this one: %v", left)
	}
	begun := time.Now()
	first := s.Start(t)
	whole := time.Since(begun)
	first.End()
	cancelled := 0
	for range times {
		begun := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		s.Context = ctx
		done := make(chan struct{})
		timer := time.AfterFunc(rand.N(whole), func() {
			defer close(done)
			for _, shim := range childrenOf(os.Getpid()) {
				before(shim)
			}
			cancel()
		})
		j, err := s.TryStart(t)
		if !timer.Stop() {
			<-done
		}
		cancel()
		if err == nil {
			// The first one, of which nothing was in memory, takes much longer.
			whole = time.Since(begun)
			j.End()
		} else if cancelled++; !errors.Is(err, context.Canceled) || errors.Is(err, launch.ErrLate) {
			t.Fatal(err)
		}
		if left := childrenOf(os.Getpid()); len(left) > 0 {
			t.Fatalf("processes left behind: %v, after %v", left, err)
		}
		for _, pattern := range []string{cgroup.Root, cgroup.Root + "/*"} {
			if left, _ := filepath.Glob(pattern + s.Plan.Cgroup.Path); len(left) > 0 {
				t.Fatalf("control groups left behind: %v, after %v", left, err)
			}
		}
	}
	if cancelled == 0 {
		t.Error("no start was cancelled")
	}
}

// childrenOf returns the children of a process.
func childrenOf(pid int) (all []int) {
	lists, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, list := range lists {
		// The thread may have ended meanwhile.
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}
