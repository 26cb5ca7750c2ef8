package supervisor

import (
	"sync"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/fileevents"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/policy/learn"
)

// maxObserved bounds the files that are told of one run; what is more is counted as lost.
const maxObserved = 20000

// observing collects what a run does to files, where its caller asked to learn.
type observing struct {
	watcher *fileevents.Watcher

	mu    sync.Mutex
	files map[string]*learn.File
	seen  learn.Observed
}

// observe starts to watch the jail, before its tool starts. A run that is to be learnt from is watched, or does not start.
func (r *run) observe(proc *launch.Process) (err error) {
	if !r.job.req.Learn || r.job.compile {
		return nil
	}
	o := &observing{files: map[string]*learn.File{}}
	if o.watcher, err = fileevents.Watch(proc.PID, o.take); err != nil {
		return r.s.missingLayer("file events", err.Error(), err)
	}
	r.observing = o
	return nil
}

// skipped are what every jail opens, whatever its tool does.
func skipped(path string) bool {
	return learn.Within(jail.CacheDir, path) || learn.Within("/run/jail", path)
}

func (o *observing) take(e fileevents.Event) {
	if skipped(e.Path) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !learn.Sayable(e.Path) {
		o.seen.Unnamed++
		return
	}
	f := o.files[e.Path]
	if f == nil {
		if len(o.files) >= maxObserved {
			o.seen.Lost++
			return
		}
		f = &learn.File{Path: e.Path}
		o.files[e.Path] = f
	}
	if e.Opened {
		f.Opened++
	}
	if e.Executed {
		f.Executed++
	}
	f.Written, f.Dir, f.Program = f.Written || e.Written, f.Dir || e.Dir, f.Program || e.Program || e.Executed
}

// endObserving takes what was seen into the result. It may be called again.
func (r *run) endObserving() error {
	o := r.observing
	if o == nil {
		return nil
	}
	r.observing = nil
	lost, err := o.watcher.Close()
	if err != nil {
		return failed(err, "", "%v", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.seen
	seen.Lost += lost
	for _, f := range o.files {
		seen.Files = append(seen.Files, *f)
	}
	seen.Imports = r.job.tool.imports
	seen = seen.Merge(learn.Observed{}) // sorted
	r.result.Observed = &seen
	return nil
}
