package launch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/launch"
)

// lateAfter is the patience of these tests, with what never ends by itself.
const lateAfter = 3 * time.Second

// TestLateShim: a jail that does not come to stand is ended.
func TestLateShim(t *testing.T) {
	stuck := filepath.Join(t.TempDir(), "shim")
	if err := os.WriteFile(stuck, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	l := launch.Launcher{Shim: stuck, Init: stuck, Patience: time.Millisecond}
	p, err := l.Start(context.Background(), control.Order{},
		launch.Stdio{In: null, Out: null, Err: null}, launch.Files{})
	if !errors.Is(err, launch.ErrLate) || p != nil {
		t.Errorf("%v, want %v", err, launch.ErrLate)
	}
}

// TestLateInit: a jail whose jail-init does not restrict itself is ended, and its end says why.
func TestLateInit(t *testing.T) {
	s := jailtest.New(t)
	s.Stuck(t)
	s.Launcher.Patience = lateAfter
	j, err := s.TryStart(t)
	// A jail has to start in it, and a busy machine takes longer.
	for errors.Is(err, launch.ErrLate) && s.Launcher.Patience < time.Minute {
		if err := cgroup.Clear(s.Plan.Cgroup.Path, jailtest.Bound(time.Minute)); err != nil {
			t.Fatal(err)
		}
		s.Launcher.Patience *= 2
		fresh(s)
		j, err = s.TryStart(t)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = j.Wait()
	if layer := (*launch.LayerError)(nil); !errors.As(err, &layer) || layer.Layer != "jail-init" ||
		!strings.Contains(layer.Reason, "within") {
		t.Errorf("ended with %v", err)
	}
}

// TestLateAttach: a jail that does not get its workspace is ended.
func TestLateAttach(t *testing.T) {
	s := jailtest.New(t)
	s.Later = true
	giveShadow(t, s)
	s.Launcher.Patience = lateAfter
	s.BeforeAttach = func(p *launch.Process) {
		if err := syscall.Kill(parent(t, p.PID), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.TryStart(t); !errors.Is(err, launch.ErrLate) {
		t.Errorf("%v, want %v", err, launch.ErrLate)
	}
	if err := cgroup.Clear(s.Plan.Cgroup.Path, jailtest.Bound(time.Minute)); err != nil {
		t.Error(err)
	}
}
