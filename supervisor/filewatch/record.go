// Package filewatch follows the file accesses of a jail with fanotify(7). A Recorder writes them to
// the audit log if the policy asks for that. A Learner collects them to make a policy from.
package filewatch

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/fileevents"
	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Bounds of what a Recorder collects before it writes. Accesses of the jail wait during the write.
const (
	maxFiles = 4096
	// maxBytes bounds the total length of the collected paths.
	maxBytes   = 4 << 20
	writeEvery = 2 * time.Second
)

// A fileKey identifies all uses of one kind of one file.
type fileKey struct{ path, kind string }

// A Recorder writes to the audit log which files the processes of one jail open and change. It
// prevents nothing. Events that the kernel drops are recorded as a gap.
type Recorder struct {
	append  func([]audit.Event) error
	fail    func()
	watcher *fileevents.Watcher
	stop    chan struct{}
	ticker  sync.WaitGroup

	mu    sync.Mutex
	files map[fileKey]*audit.File
	// order are the keys of files, the oldest first.
	order []fileKey
	bytes int
	// lost is how many dropped events were recorded as a gap already.
	lost int64
	// err is the first error of append. Nothing is collected after it.
	err error
}

// Record starts to record the file accesses in the jail whose first process is pid on the host. It
// must be called before the tool starts, or it misses events. If append returns an error, the
// recorder calls fail, which must end the run.
func Record(pid int, plan jail.Plan, files policy.FileAudit, append func([]audit.Event) error,
	fail func()) (*Recorder, error) {
	w := &Recorder{append: append, fail: fail, stop: make(chan struct{}),
		files: map[fileKey]*audit.File{}}
	what := fileevents.What{Opens: files == policy.FilesOpens, Writes: true, Memory: true}
	var err error
	if w.watcher, err = fileevents.Start(pid, what, named(plan, w.take)); err != nil {
		why := "audit.files = \"" + files.String() + "\" needs the kernel to tell of files: " +
			err.Error()
		if errors.Is(err, syscall.EMFILE) {
			// The limit is not about jaild's descriptors, so problem.From must not see EMFILE as
			// the cause.
			return nil, problem.MissingLayer("file events", why,
				"so many runs are watched at one time as /proc/sys/fs/fanotify/max_user_groups "+
					"allows: raise it, or run less at once", nil)
		}
		return nil, problem.MissingLayer("file events", why,
			"take audit.files out of the policy, or use a daemon that root started", err)
	}
	w.ticker.Go(w.tick)
	return w, nil
}

// named wraps take so that events have the paths that policies use.
func named(plan jail.Plan, take func(fileevents.Event)) func(fileevents.Event) {
	return func(e fileevents.Event) {
		e.Path = plan.PolicyPath(e.Path)
		take(e)
	}
}

// ownFile reports whether jail itself opens that file in every jail.
func ownFile(path string) bool {
	return path == guest.Self || strings.HasPrefix(path, jail.CacheDir+"/")
}

func (w *Recorder) take(e fileevents.Event) {
	kind := "open"
	switch {
	case e.Executed:
		kind = "exec"
	case e.Written:
		kind = "write"
	}
	if ownFile(e.Path) {
		return
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	key := fileKey{e.Path, kind}
	f := w.files[key]
	if f == nil {
		p := fileevents.ProcessOf(e.PID)
		f = &audit.File{Path: e.Path, Kind: kind, Program: p.Program, PID: p.PID, First: now}
		w.files[key] = f
		w.order = append(w.order, key)
		w.bytes += len(e.Path)
	}
	f.Count++
	f.Last = now
	if len(w.files) >= maxFiles || w.bytes >= maxBytes {
		w.flush()
	}
}

// flush records what was collected. w.mu is held, so processes that open files wait meanwhile.
func (w *Recorder) flush() {
	var events []audit.Event
	for _, key := range w.order {
		events = append(events, *w.files[key])
	}
	if lost := w.watcher.Lost(); lost > w.lost {
		w.lost = lost
		events = append(events,
			audit.Gap{Reason: "the kernel's queue of file events was full", Count: -1})
	}
	clear(w.files)
	w.order, w.bytes = w.order[:0], 0
	if len(events) == 0 || w.err != nil {
		return
	}
	if w.err = w.append(events); w.err != nil {
		w.fail()
	}
}

func (w *Recorder) tick() {
	for range tick.Each(w.stop, writeEvery) {
		w.mu.Lock()
		w.flush()
		w.mu.Unlock()
	}
}

// Close records the rest and ends the recorder. The jail must have ended, or be about to be killed.
// Close does nothing if w is nil or closed.
func (w *Recorder) Close() error {
	if w == nil || w.watcher == nil {
		return nil
	}
	close(w.stop)
	w.ticker.Wait()
	_, err := w.watcher.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flush()
	w.watcher = nil
	switch {
	case w.err != nil:
		return w.err
	case err != nil:
		return problem.New(problem.Failed, "%w", err)
	}
	return nil
}
