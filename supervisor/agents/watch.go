package agents

import (
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/jail-sandbox/jail/supervisor/agents/builtin"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
)

// Bounds of watching.
const (
	// mostWatched directories of agents are watched. Of more agents, those that are asleep are
	// looked at when they wake.
	mostWatched = 4096
	// quiet is how long the files of an agent must be left alone before they are read.
	quiet = 200 * time.Millisecond
)

// makeFolder makes the folder of agents, for its user alone. What is above it is for others, too: that
// of root's agents is /etc/jail, in which each user's jail looks for profiles.
func makeFolder(folder string) error {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	return os.MkdirAll(folder, 0o700)
}

// Watch takes up changes in the folder of agents until Close.
func (a *Agents) Watch() error {
	if err := makeFolder(a.o.Folder); err != nil {
		return err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err := w.Add(a.o.Folder); err != nil {
		w.Close()
		return err
	}
	a.work.Go(func() {
		defer w.Close()
		a.follow(w)
	})
	return nil
}

// follow scans the folder once, and what changes in it after that.
func (a *Agents) follow(w *fsnotify.Watcher) {
	a.report(a.Scan(a.ctx))
	a.watchAll(w)
	changed := map[string]bool{}
	settle := time.NewTimer(0)
	settle.Stop()
	for {
		select {
		case e := <-w.Events:
			name, err := filepath.Rel(a.o.Folder, e.Name)
			if err != nil || name == "." || name[0] == '.' {
				continue
			}
			if dir := filepath.Dir(name); dir != "." {
				name = dir
			}
			changed[name] = true
			settle.Reset(quiet)
		case <-settle.C:
			for name := range changed {
				a.changed(w, name)
			}
			clear(changed)
		case err := <-w.Errors:
			// Events were lost.
			a.o.Log.Warn("the folder of agents is read anew", "error", err)
			a.report(a.Scan(a.ctx))
			a.watchAll(w)
		case <-a.ctx.Done():
			return
		}
	}
}

func (a *Agents) report(problems map[string]error) {
	for name, err := range problems {
		a.o.Log.Warn("an agent is not registered", "agent", name, "error", err)
	}
}

func (a *Agents) watchAll(w *fsnotify.Watcher) {
	n := 0
	if err := a.Store.Agents(a.ctx, func(known store.Agent) error {
		if _, ok := builtin.Find(known.Name); ok {
			return nil
		}
		if n++; n <= mostWatched {
			// One that is gone meanwhile has an event of its own.
			_ = w.Add(known.Dir)
		}
		return nil
	}); err != nil {
		a.o.Log.Warn("agents are not watched", "error", err)
	}
}

// changed takes up the files of one agent.
func (a *Agents) changed(w *fsnotify.Watcher, name string) {
	dir := filepath.Join(a.o.Folder, name)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		if a.problems.note(name, nil); reserved(name) != nil {
			return
		}
		if err := a.missing(a.ctx, name); err == nil {
			a.o.Log.Info("the files of an agent are gone", "agent", name)
		}
		return
	}
	if len(w.WatchList()) < mostWatched {
		_ = w.Add(dir)
	}
	if known, err := a.Store.Agent(a.ctx, name); err == nil && known.Stamp == stampOf(dir) {
		return
	}
	if _, err := a.register(a.ctx, name); err != nil {
		a.report(map[string]error{name: err})
	}
}
