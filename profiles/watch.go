package profiles

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Times for noticing changes.
const (
	// without an event, before the files are read
	quiet = 50 * time.Millisecond
	// between two comparisons of files that are changing
	settleStep = 2 * time.Millisecond
	// the longest wait for files that keep changing
	settleMost = 200 * time.Millisecond
)

// Every is how often files are checked without an event, since events can be lost and some file
// systems send none.
const Every = 5 * time.Second

// watch is the goroutine that follows changes of the files.
type watch struct {
	events *fsnotify.Watcher
	stop   chan struct{}
	done   sync.WaitGroup
}

// Watch starts to take over changes, by kernel events and a check at each interval, until Close. An
// error means that there are no events; the checks continue.
func (s *Source) Watch(every time.Duration) error {
	events, err := fsnotify.NewWatcher()
	w := &watch{stop: make(chan struct{})}
	if err == nil {
		w.events = events
		s.follow(w)
	} else {
		err = fmt.Errorf("policy files: no events of the kernel: %w", err)
	}
	s.mu.Lock()
	s.watch = w
	s.mu.Unlock()
	w.done.Go(func() { s.loop(w, every) })
	return err
}

// Close stops Watch, if it was started.
func (s *Source) Close() {
	s.mu.Lock()
	w := s.watch
	s.watch = nil
	s.mu.Unlock()
	if w == nil {
		return
	}
	close(w.stop)
	w.done.Wait()
	if w.events != nil {
		w.events.Close()
	}
}

func (s *Source) loop(w *watch, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var events chan fsnotify.Event
	var errs chan error
	if w.events != nil {
		events, errs = w.events.Events, w.events.Errors
	}
	settled := time.NewTimer(time.Hour)
	settled.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-events:
			settled.Reset(quiet)
			continue
		case <-errs:
			// Events may have been lost, so the directories are read again.
		case <-settled.C:
		case <-tick.C:
		}
		s.check()
		s.follow(w)
	}
}

// follow watches all directories with policy files. One that does not exist yet is found by the
// periodic check.
func (s *Source) follow(w *watch) {
	if w.events == nil {
		return
	}
	dirs := []string{}
	if s.options.Ceiling != "" {
		dirs = append(dirs, filepath.Dir(s.options.Ceiling))
	}
	eachBelow(s.options.Dir, func(path string, info fs.FileInfo) {
		if info.IsDir() {
			dirs = append(dirs, path)
		}
	})
	for _, dir := range dirs {
		// An error leaves the directory to the periodic check. Adding one twice is harmless.
		_ = w.events.Add(dir)
	}
}

// stamps returns a text with the identity and times of each file and directory.
func stamps(o Options) string {
	var b strings.Builder
	if o.Ceiling != "" {
		if info, err := os.Lstat(o.Ceiling); err == nil {
			stamp(&b, o.Ceiling, info)
		}
	}
	eachBelow(o.Dir, func(path string, info fs.FileInfo) { stamp(&b, path, info) })
	return b.String()
}

func stamp(b *strings.Builder, path string, info fs.FileInfo) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		fmt.Fprintf(b, "%s %d %d %o %d %d %v %v\n", path, st.Dev, st.Ino, st.Mode, st.Uid, st.Size,
			st.Mtim, st.Ctim)
	}
}

// settled returns the stamps once two in a row are equal, so that a file is not read while it is
// being written, but waits at most settleMost.
func (o Options) settled() string {
	before := stamps(o)
	for range settleMost / settleStep {
		time.Sleep(settleStep)
		now := stamps(o)
		if now == before {
			return now
		}
		before = now
	}
	return before
}

// eachBelow calls f for dir, its policy files, signatures and subdirectories, in order, to the
// depth of readDir.
func eachBelow(dir string, f func(path string, info fs.FileInfo)) {
	if dir == "" {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			// Errors are reported when the files are read.
			return nil
		}
		rel, _ := filepath.Rel(dir, path)
		if d.IsDir() && strings.Count(rel, string(filepath.Separator)) >= maxDirDepth {
			return fs.SkipDir
		}
		if !d.IsDir() && !strings.HasSuffix(path, ".toml") && !strings.HasSuffix(path,
			signatureSuffix) {
			return nil
		}
		if info, err := d.Info(); err == nil {
			f(path, info)
		}
		return nil
	})
}

// signatureSuffix is the suffix of the signature of a policy file.
const signatureSuffix = ".toml.sig"
