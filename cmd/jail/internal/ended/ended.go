// Package ended has what jail's small front program and the whole program share about the end of a
// run. It imports little, so that the front starts fast.
package ended

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Flag is the only argument with which the front starts the whole program to print the end of a
// run. The program reads an Outcome as JSON from descriptor FD.
const (
	Flag = "--ended"
	FD   = 3
)

// Whole is the name of the whole program. It is in the front's directory, or in libexec/jail of its
// installation.
const Whole = "jail-full"

// ExitSignal plus a signal's number is the exit code of a run that the signal ended.
const ExitSignal = 128

// Signals are the signals that end a run, with their names. SIGTSTP, SIGCONT and SIGPIPE keep their
// default action: while jail is stopped, the run goes on until its output fills the buffers.
var Signals = map[syscall.Signal]string{syscall.SIGINT: "SIGINT", syscall.SIGTERM: "SIGTERM",
	syscall.SIGHUP: "SIGHUP", syscall.SIGQUIT: "SIGQUIT"}

// Forward calls kill with the first signal that this process gets. If kill fails, or at a second
// signal, it calls cancel, which closes the connection and so ends the run. stop ends the
// forwarding and returns the first signal, or 0. It does not wait for kill, since the daemon may
// hang.
func Forward(kill func(syscall.Signal) error, cancel func()) (stop func() syscall.Signal) {
	signals := make(chan os.Signal, 2)
	for s := range Signals {
		// nohup, and shells for background jobs, ignore signals on purpose.
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	var first syscall.Signal
	var waiting sync.WaitGroup
	done := make(chan struct{})
	waiting.Go(func() {
		select {
		case s := <-signals:
			first = s.(syscall.Signal)
		case <-done:
			return
		}
		go func() {
			if kill(first) != nil {
				cancel()
			}
		}()
		select {
		case <-signals:
			cancel()
		case <-done:
		}
	})
	return func() syscall.Signal {
		signal.Stop(signals)
		close(done)
		waiting.Wait()
		return first
	}
}

// NoProc is the error of jail without /proc, in which it finds its own path, and NoProcHint the
// hint.
const (
	NoProc     = "layer proc cannot be set up here: %v"
	NoProcHint = "mount -t proc proc /proc: jail finds its own programs by it"
	// NoProcExit is the exit code of a layer that cannot be enforced.
	NoProcExit = 126
)

// An Outcome is the end of a run that the front started: a result of the daemon, or a failure.
type Outcome[R any] struct {
	Result  R        `json:"result"`
	Failure *Failure `json:"failure,omitempty"`
	Quiet   bool     `json:"quiet,omitempty"`
	// Explain holds the flags of "jail policy explain" for the policy of the run.
	Explain string `json:"explain,omitempty"`
}

// A Failure is an error of jail itself, without a result.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Changes returns the line about the files that a run changed, or about a kept shadow without
// changes; "" if there is neither. workspace is the result's field. failed is set if the run has an
// error of jail itself.
func Changes(id, workspace string, added, modified, deleted int64, failed bool) string {
	if n := added + modified + deleted; added != 0 || modified != 0 || deleted != 0 {
		next := workspace
		if next == "kept" {
			next = "jail diff " + id
		}
		files := "1 file"
		if n != 1 {
			files = fmt.Sprintf("%d files", n)
		}
		return fmt.Sprintf("jail: run %s changed %s (+%d ~%d -%d): %s\n", id, files, added,
			modified, deleted, next)
	}
	if workspace == "kept" && !failed {
		return fmt.Sprintf("jail: run %s changed nothing; its shadow is kept: jail discard %s\n",
			id, id)
	}
	return ""
}
