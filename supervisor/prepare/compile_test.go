package prepare

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/jail-sandbox/jail/supervisor/admission"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/modules"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// What waits for its turn to be compiled does not hold up the end of the daemon: it is the next
// one's.
func TestCompileWaitsNoLongerThanTheDaemon(t *testing.T) {
	cache, err := modules.Open(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &Preparer{o: Options{Life: lifetime.New()}, modules: toolFiles{cache: cache,
			compiling: admission.New(admission.CompileBounds(config.Bounds{Runs: 1}))}}
		leave, err := s.o.Life.Enter()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.modules.compiling.Enter(t.Context(), 0, "", 1, 0); err != nil {
			t.Fatal(err)
		}
		told := make(chan error, 1)
		go func() {
			defer leave()
			told <- s.compiled(t.Context(), &Job{Host: Host{cached: &modules.Hold{}}}, Tool{})
		}()
		synctest.Wait()
		s.o.Life.End()
		synctest.Wait()
		var e *problem.Error
		select {
		case err := <-told:
			if !errors.As(err, &e) || e.Code != problem.Ending {
				t.Errorf("what waited: %v", err)
			}
		default:
			t.Fatal("it waits on")
		}
		s.o.Life.AwaitEntered()
		if _, err := s.o.Life.Enter(); !errors.As(err, &e) || e.Code != problem.Ending {
			t.Errorf("what comes: %v", err)
		}
	})
}
