// Package daemonlog is the daemon's log about itself: what failed in the background, where no
// caller waits for an error. What happens to runs is in the audit log.
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
	// failing has the last error of each task that failed at its last try.
	failing map[string]string
}

// New returns a Log that writes lines of text to w: "level=WARN msg=... error=...". With timed,
// each begins with the time, which the journal of systemd knows without.
func New(w io.Writer, timed bool) *Log {
	opts := &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if !timed && len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	return &Log{out: slog.New(slog.NewTextHandler(w, opts)), failing: map[string]string{}}
}

// Check is for a task that is tried again and again. It logs err unless the last try of task failed
// with the same error, and that task works again after it failed.
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

// Failed logs that a task failed which is not tried again, for the run, session or shadow id; err
// may be nil.
func (l *Log) Failed(task, id string, err error) {
	if l != nil && err != nil {
		l.out.Warn(task, "id", id, "error", err)
	}
}
