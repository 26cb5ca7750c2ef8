package filewatch

import (
	"sync"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/fileevents"
	"github.com/jail-sandbox/jail/policy/learn"
	"github.com/jail-sandbox/jail/policy/paths"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// maxObserved is how many files a Learner remembers. More are counted as lost.
const maxObserved = 20000

// A Learner collects the file accesses of a jail.
type Learner struct {
	watcher *fileevents.Watcher

	mu    sync.Mutex
	files map[string]*learn.File
	seen  learn.Observed
}

// Learn starts to collect the files used in the jail whose first process is pid on the host, with
// the paths that policies use. It must be called before the tool starts, or it misses events. An
// error says why the kernel does not report file events.
func Learn(pid int, plan jail.Plan) (*Learner, error) {
	l := &Learner{files: map[string]*learn.File{}}
	var err error
	if l.watcher, err = fileevents.Watch(pid, named(plan, l.take)); err != nil {
		return nil, err
	}
	return l, nil
}

// skipped reports whether jail itself opens that file in every jail.
func skipped(path string) bool {
	return paths.Within(jail.CacheDir, path) || paths.Within("/run/jail", path)
}

func (l *Learner) take(e fileevents.Event) {
	if skipped(e.Path) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !learn.Sayable(e.Path) {
		l.seen.Unnamed++
		return
	}
	f := l.files[e.Path]
	if f == nil {
		if len(l.files) >= maxObserved {
			l.seen.Lost++
			return
		}
		f = &learn.File{Path: e.Path}
		l.files[e.Path] = f
	}
	if e.Opened {
		f.Opened++
	}
	if e.Executed {
		f.Executed++
	}
	f.Written = f.Written || e.Written
	f.Dir = f.Dir || e.Dir
	f.Program = f.Program || e.Program || e.Executed
}

// Close ends the learner. It returns the collected accesses, sorted, and the imports of the module.
// It returns nil if l is nil or was closed.
func (l *Learner) Close(imports []string) (*learn.Observed, error) {
	if l == nil || l.watcher == nil {
		return nil, nil
	}
	lost, err := l.watcher.Close()
	l.watcher = nil
	if err != nil {
		return nil, problem.New(problem.Failed, "%w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen
	seen.Lost += lost
	for _, f := range l.files {
		seen.Files = append(seen.Files, *f)
	}
	seen.Imports = imports
	// Merge sorts.
	seen = seen.Merge(learn.Observed{})
	return &seen, nil
}
