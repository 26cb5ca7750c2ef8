package workspace

import (
	"io"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// TestShowMemory shows a million new files. It takes minutes, and runs where JAIL_TEST_LONG is set;
// JAIL_TEST_FILES is another number of them.
func TestShowMemory(t *testing.T) {
	if os.Getenv("JAIL_TEST_LONG") == "" {
		t.Skip("takes minutes: JAIL_TEST_LONG=1 runs it")
	}
	n := 1000000
	if text := os.Getenv("JAIL_TEST_FILES"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		must(t, err)
	}
	f := newFixture(t)
	w := f.prepareAs("r1", Caller{}, 8<<30, int64(n)+1000)
	if a := f.run(w, order{Script: `seq -f f%.0f ` + strconv.Itoa(n) +
		` | xargs -n 2000 sh -c 'for f; do echo $f >$f; done' sh`}); a.Script != "" {
		t.Fatalf("%s %s", a.Script, a.Out)
	}
	must(t, w.Freeze())
	var peak atomic.Uint64
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.Sys-m.HeapReleased))
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	start, count := time.Now(), 0
	_, err := w.Show(t.Context(), ShowOptions{Patch: io.Discard},
		func(Change) error { count++; return nil })
	close(stop)
	<-done
	must(t, err)
	t.Logf("%d changes in %v, at most %d MiB", count, time.Since(start).Round(time.Millisecond),
		peak.Load()>>20)
	if count != n || peak.Load() > 256<<20 {
		t.Errorf("%d changes of %d, %d bytes of memory", count, n, peak.Load())
	}
}
