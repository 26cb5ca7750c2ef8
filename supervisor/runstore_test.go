package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func openRuns(t *testing.T) *runStore {
	t.Helper()
	s, err := openRunStore(filepath.Join(t.TempDir(), "runs"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRunsLiveAsLongAsTheirDaemon(t *testing.T) {
	s := openRuns(t)
	r, err := s.add(runState{ID: "one", Tool: "x", Cgroup: "/jail/one"})
	if err != nil {
		t.Fatal(err)
	}
	live, err := s.live()
	if err != nil || len(live) != 1 || live[0].ID != "one" {
		t.Fatalf("live %v, %v", live, err)
	}
	if dead, err := s.dead(); err != nil || len(dead) != 0 {
		t.Fatalf("a live run is taken for dead: %v, %v", dead, err)
	}
	var e *Error
	if _, err := s.add(runState{ID: "one"}); !errors.As(err, &e) || e.Code != CodeUsage {
		t.Fatalf("an id in use: %v", err)
	}
	r.lock.Close() // as the kernel does when the daemon is killed
	if live, err := s.live(); err != nil || len(live) != 0 {
		t.Fatalf("a dead run is taken for live: %v, %v", live, err)
	}
	dead, err := s.dead()
	if err != nil || len(dead) != 1 || dead[0].state.Cgroup != "/jail/one" {
		t.Fatalf("dead %v, %v", dead, err)
	}
	if err := dead[0].remove(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) != 0 {
		t.Fatalf("left %v, %v", left, err)
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
				dead, err := s.dead()
				if err != nil || len(dead) > 0 {
					t.Errorf("dead %v, %v", dead, err)
					return
				}
			}
		})
	}
	for i := range 200 {
		r, err := s.add(runState{ID: "run" + string(rune('a'+i%26)), Tool: "x"})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.remove(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	looking.Wait()
}

func TestHalfMadeRunsAreCleared(t *testing.T) {
	s := openRuns(t)
	for name, age := range map[string]time.Duration{newPrefix + "old": time.Hour, newPrefix + "young": 0} {
		path := filepath.Join(s.dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
	}
	if dead, err := s.dead(); err != nil || len(dead) != 0 {
		t.Fatalf("dead %v, %v", dead, err)
	}
	left, err := os.ReadDir(s.dir)
	if err != nil || len(left) != 1 || left[0].Name() != newPrefix+"young" {
		t.Fatalf("left %v, %v", left, err)
	}
}
