// Package daemonlog is the daemon's log about itself: failures in the background that no caller
// sees. The audit log is about runs.
package daemonlog

import (
	"io"
	"log/slog"
	"sync"
)

// A Log logs each failure once. A nil Log logs nothing. Its methods may be called from several
// goroutines.
type Log struct {
	out *slog.Logger

	mu sync.Mutex
	// failing has the last error of each task whose last try failed.
	failing map[string]string
}

// New returns a Log that writes lines of text to w: "level=WARN msg=... error=...". If timed is
// true, each line begins with the time; the journal of systemd adds its own.
func New(w io.Writer, timed bool) *Log {
	opts := &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if !timed && len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	return &Log{out: slog.New(slog.NewTextHandler(w, opts)), failing: map[string]string{}}
}

// Check logs the result of a task that is repeated: err, unless the last try failed with the same
// error, or that the task works again. l and err may be nil.
func (l *Log) Check(task string, err error) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last, failed := l.failing[task]
	switch {
	case err == nil && failed:
		delete(l.failing, task)
		l.out.Info(task + ": works again")
	case err != nil && (!failed || last != err.Error()):
		l.failing[task] = err.Error()
		l.out.Warn(task, "error", err)
	}
}

// Failed logs the error of a task that is not repeated, for the run, session or shadow id. l and
// err may be nil.
func (l *Log) Failed(task, id string, err error) {
	if l != nil && err != nil {
		l.out.Warn(task, "id", id, "error", err)
	}
}
