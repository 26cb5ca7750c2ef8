package agents

import (
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/jail-sandbox/jail/supervisor/agents/builtin"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
)

// Settings of watching.
const (
	// mostWatched is how many directories of agents are watched. Changes of other agents are
	// noticed when they wake.
	mostWatched = 4096
	// quiet is how long the files of an agent must be unchanged before they are read.
	quiet = 200 * time.Millisecond
)

// makeFolder creates the folder of agents, accessible only for its user. Missing parents are
// readable for all: the parent of root's folder is /etc/jail, where each user's jail looks for
// profiles.
func makeFolder(folder string) error {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	return os.MkdirAll(folder, 0o700)
}

// Watch starts to register changes in the folder of agents, until Close.
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

// follow scans the folder, and then registers agents whose files change.
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
			// Events were lost: scan the whole folder.
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
			// If the directory is gone meanwhile, another event says so.
			_ = w.Add(known.Dir)
		}
		return nil
	}); err != nil {
		a.o.Log.Warn("agents are not watched", "error", err)
	}
}

// changed registers the files of one agent.
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
