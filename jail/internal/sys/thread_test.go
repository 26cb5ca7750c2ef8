package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOnEndingThread: what is done to a thread is never done to the first one, not even where the
// first one has the goroutine, and the thread ends.
func TestOnEndingThread(t *testing.T) {
	boom := errors.New("boom")
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			var tid int
			if err := OnEndingThread(func() error { tid = unix.Gettid(); return boom }); err != boom {
				t.Errorf("error: %v", err)
			}
			if tid == unix.Getpid() {
				t.Error("on the first thread")
			}
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid))
				if errors.Is(err, os.ErrNotExist) {
					return
				}
				if time.Now().After(deadline) {
					t.Errorf("thread %d is still there: %v", tid, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestFirstThreadEndsNot is the control: a goroutine on the first thread does nothing to that
// thread.
func TestFirstThreadEndsNot(t *testing.T) {
	tried := make(chan bool)
	for range 10_000 {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if unix.Gettid() != unix.Getpid() {
				tried <- false
				return
			}
			ended := make(chan int)
			go endWith(func() { ended <- unix.Gettid() })
			if <-ended == unix.Getpid() {
				t.Error("on the first thread, which is held")
			}
			other := make(chan int, 1)
			endWith(func() { other <- unix.Gettid() })
			if <-other == unix.Getpid() {
				t.Error("on the first thread")
			}
			tried <- true
		}()
		if <-tried {
			return
		}
	}
	t.Log("no goroutine came to the first thread")
}
