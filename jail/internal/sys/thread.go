package sys

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnEndingThread calls f on a thread that ends once f has returned, and returns the error of f. What
// f does to its thread alone, as to enter a namespace (setns(2), unshare(2)), is gone with the
// thread.
//
// It is never the first thread of the process: the runtime keeps that one for as long as the process
// lives, and /proc/self and all who look from outside see its namespaces.
func OnEndingThread(f func() error) error {
	done := make(chan error, 1)
	go endWith(func() { done <- f() })
	return <-done
}

// endWith calls f on a thread that ends with the calling goroutine.
func endWith(f func()) {
	// Never unlocked, but on the first thread.
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	defer runtime.UnlockOSThread()
	// While this goroutine holds the first thread, the other one has another thread.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		endWith(f)
	}()
	<-ended
}
