package supervisor

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/fileevents"
	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// Bounds of what is collected before it is put on record. The jail waits meanwhile, so that nothing grows.
const (
	maxFiles     = 4096    // records at one time
	maxFileBytes = 4 << 20 // of their paths
	fileEvery    = 2 * time.Second
)

// A fileKey is what one record stands for.
type fileKey struct{ path, kind string }

// fileWatch puts on record what a run does with files.
type fileWatch struct {
	append  func([]audit.Event) error
	fail    func() // ends the run
	watcher *fileevents.Watcher
	stop    chan struct{}
	ticker  sync.WaitGroup

	mu    sync.Mutex
	files map[fileKey]*audit.File
	order []fileKey // as they came
	bytes int
	lost  int64 // of what the kernel dropped, on record
	err   error // of the log; nothing is collected after it
}

// watchFiles begins to, before the tool runs, where the policy asks for it. A run that is to be watched is watched, or does not start.
func (r *run) watchFiles(proc *launch.Process) (err error) {
	files := r.job.eff.Policy().Audit.Files
	if files == policy.FilesNone || r.job.compile {
		return nil
	}
	w := &fileWatch{append: r.recordAll, fail: func() { r.end(cause{gone: true}) }, stop: make(chan struct{}), files: map[fileKey]*audit.File{}}
	what := fileevents.What{Opens: files == policy.FilesOpens, Writes: true, Memory: true}
	if w.watcher, err = fileevents.Start(proc.PID, what, w.take); err != nil {
		fix := "take audit.files out of the policy, or use a daemon that root started"
		if errors.Is(err, syscall.EMFILE) {
			fix = "so many runs are watched at one time as /proc/sys/fs/fanotify/max_user_groups allows: raise it, or run less at once"
		}
		return missingLayer("file events", "audit.files = \""+files.String()+"\" needs the kernel to tell of files: "+err.Error(), fix, err)
	}
	w.ticker.Go(w.tick)
	r.watched = w
	return nil
}

// ownFile reports whether every jail opens that file, whatever its tool does: it is jail's, and not the host's or the tool's.
func ownFile(path string) bool {
	return path == guest.Self || strings.HasPrefix(path, jail.CacheDir+"/")
}

func (w *fileWatch) take(e fileevents.Event) {
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
	if len(w.files) >= maxFiles || w.bytes >= maxFileBytes {
		w.flush()
	}
}

// flush puts on record what was collected. The lock is held: who opens a file meanwhile waits.
func (w *fileWatch) flush() {
	var events []audit.Event
	for _, key := range w.order {
		events = append(events, *w.files[key])
	}
	if lost := w.watcher.Lost(); lost > w.lost {
		w.lost = lost
		events = append(events, audit.Gap{Reason: "the kernel's queue of file events was full", Count: -1})
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

func (w *fileWatch) tick() {
	t := time.NewTicker(fileEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			w.mu.Lock()
			w.flush()
			w.mu.Unlock()
		case <-w.stop:
			return
		}
	}
}

// recordAll is record for many.
func (r *run) recordAll(events []audit.Event) error {
	entries := make([]audit.Entry, len(events))
	for i, e := range events {
		entries[i] = audit.Entry{Run: string(r.job.id), Session: r.job.session(), Actor: r.job.caller.actor(), Policy: r.job.eff.Digest(), Event: e}
	}
	first, last, err := r.s.log.AppendAll(entries)
	if err != nil {
		return failed(err, "make room for the log; nothing runs without it", "audit log: %v", err)
	}
	r.note(first)
	r.note(last)
	return nil
}

// endFiles puts the rest on record. It may be called again.
func (r *run) endFiles() error {
	w := r.watched
	if w == nil {
		return nil
	}
	r.watched = nil
	close(w.stop)
	w.ticker.Wait()
	_, err := w.watcher.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flush()
	switch {
	case w.err != nil:
		return w.err
	case err != nil:
		return failed(err, "", "%v", err)
	}
	return nil
}
