package supervisor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// What waits for its turn to be compiled does not hold up the end of the daemon: it is the next one's.
func TestCompileWaitsNoLongerThanTheDaemon(t *testing.T) {
	cache, err := openModuleCache(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &Supervisor{cache: cache, compiling: newQueue(compileBounds(Bounds{Runs: 1}))}
		s.ending, s.end = context.WithCancel(t.Context())
		leave, err := s.Enter()
		if err != nil {
			t.Fatal(err)
		}
		mustEnter(t, s.compiling, 0, 1, 0)
		told := make(chan error, 1)
		go func() {
			defer leave()
			told <- s.compiled(t.Context(), &job{cached: &cacheHold{}})
		}()
		synctest.Wait()
		s.end()
		synctest.Wait()
		var e *Error
		select {
		case err := <-told:
			if !errors.As(err, &e) || e.Code != CodeEnding {
				t.Errorf("what waited: %v", err)
			}
		default:
			t.Fatal("it waits on")
		}
		if !s.gate.TryLock() {
			t.Fatal("something still begins")
		}
		s.gate.Unlock()
		if _, err := s.Enter(); !errors.As(err, &e) || e.Code != CodeEnding {
			t.Errorf("what comes: %v", err)
		}
	})
}
