package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/problem"
)

func openRuns(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "runs"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRunsLiveAsLongAsTheirDaemon(t *testing.T) {
	s := openRuns(t)
	r, err := s.Add(State{ID: "one", Tool: "x", Cgroup: "/jail/one"})
	if err != nil {
		t.Fatal(err)
	}
	live, err := s.Live()
	if err != nil || len(live) != 1 || live[0].ID != "one" {
		t.Fatalf("live %v, %v", live, err)
	}
	if dead, err := s.Dead(); err != nil || len(dead) != 0 {
		t.Fatalf("a live run is taken for dead: %v, %v", dead, err)
	}
	var e *problem.Error
	if _, err := s.Add(State{ID: "one"}); !errors.As(err, &e) || e.Code != problem.Usage {
		t.Fatalf("an id in use: %v", err)
	}
	// As the kernel does when the daemon is killed.
	r.Lock.Close()
	if live, err := s.Live(); err != nil || len(live) != 0 {
		t.Fatalf("a dead run is taken for live: %v, %v", live, err)
	}
	dead, err := s.Dead()
	if err != nil || len(dead) != 1 || dead[0].State.Cgroup != "/jail/one" {
		t.Fatalf("dead %v, %v", dead, err)
	}
	if err := dead[0].Remove(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(s.Dir); err != nil || len(left) != 0 {
		t.Fatalf("left %v, %v", left, err)
	}
}

// A run that has ended is none for anybody, and its id is free, before its directory is gone. A
// daemon that is killed in between leaves the directory to the next.
func TestRetiredRunsAreNobodys(t *testing.T) {
	s := openRuns(t)
	for _, killed := range []bool{false, true} {
		r, err := s.Add(State{ID: "one", Tool: "x"})
		if err != nil {
			t.Fatal(err)
		}
		remove := r.Retire()
		live, err := s.Live()
		if err != nil || len(live) != 0 {
			t.Errorf("live %v, %v", live, err)
		}
		again, err := s.Add(State{ID: "one", Tool: "y"})
		if err != nil {
			t.Fatalf("the id is not free: %v", err)
		}
		if killed {
			r.Lock.Close()
			err = s.Sweep()
		} else {
			err = remove()
		}
		if live, liveErr := s.Live(); err != nil || liveErr != nil || len(live) != 1 ||
			live[0].Tool != "y" {
			t.Errorf("live %v, %v, %v", live, err, liveErr)
		}
		if err := again.Remove(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(s.Dir); err != nil || len(left) != 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
}

// Daemons that start while others make runs must not take those for dead.
func TestNewRunsAreNeverTakenForDead(t *testing.T) {
	s := openRuns(t)
	stop := make(chan struct{})
	var looking sync.WaitGroup
	for range 4 {
		looking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				dead, err := s.Dead()
				err = errors.Join(err, s.Sweep())
				if err != nil || len(dead) > 0 {
					t.Errorf("dead %v, %v", dead, err)
					return
				}
			}
		})
	}
	for i := range 200 {
		r, err := s.Add(State{ID: "run" + string(rune('a'+i%26)), Tool: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	looking.Wait()
}

// TestHalfMadeRunsAreSwept: what is half made goes, however young it is, unless its maker lives.
func TestHalfMadeRunsAreSwept(t *testing.T) {
	s := openRuns(t)
	for _, name := range []string{newPrefix + "left", newPrefix + "making", oldPrefix + "ended",
		"run"} {
		if err := os.Mkdir(filepath.Join(s.Dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	maker := &Dir{Path: filepath.Join(s.Dir, newPrefix+"making")}
	if err := maker.claim(); err != nil {
		t.Fatal(err)
	}
	left := func(want ...string) {
		t.Helper()
		if err := s.Sweep(); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(s.Dir)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if err != nil || !slices.Equal(names, want) {
			t.Fatalf("left %q, %v, want %q", names, err, want)
		}
	}
	left(newPrefix+"making", "run")
	maker.Lock.Close()
	left("run")
}
