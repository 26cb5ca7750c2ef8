package agents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/agents/builtin"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// ErrWrong is wrapped by errors about invalid files of an agent.
var ErrWrong = errors.New("the agent cannot run")

// stateDir returns the directory with the database of an instance.
func (a *Agents) stateDir(instance string) string { return filepath.Join(a.o.State, instance) }

// Add checks the agent in dir and copies it into the folder of agents. It replaces an agent of the
// same name; state and inbox are kept.
func (a *Agents) Add(ctx context.Context, dir string) (store.Agent, error) {
	m, err := loadNew(ctx, a, dir)
	if err != nil {
		return store.Agent{}, err
	}
	to := filepath.Join(a.o.Folder, m.Name)
	if from, err := filepath.EvalSymlinks(m.Dir); err != nil || from != to {
		if err := copyAgent(m, to); err != nil {
			return store.Agent{}, fmt.Errorf("agent %q: %w", m.Name, err)
		}
	}
	return a.register(ctx, m.Name)
}

// loadNew reads and checks the agent in dir, which is to be added.
func loadNew(ctx context.Context, a *Agents, dir string) (*manifest.Agent, error) {
	m, err := manifest.Load(dir, manifest.Options{})
	if err != nil {
		return nil, wrong(err)
	}
	if err := reserved(m.Name); err != nil {
		return nil, err
	}
	return m, nothingMissing(ctx, a, m)
}

// nothingMissing returns an error if jaild cannot find the agent's program or profile. It returns
// nil if jaild does not answer; then the first event fails instead.
func nothingMissing(ctx context.Context, a *Agents, m *manifest.Agent) error {
	state, err := os.MkdirTemp(a.o.State, loadPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)
	channel := m.Channels[0]
	_, err = a.o.Jails.Limits(ctx, Launch{Instance: m.Instance(channel), Channel: channel,
		AgentID: a.Store.AgentID(m.Name), Dir: m.Dir, State: state, Manifest: *m.Manifest})
	missing, ok := errors.AsType[*problem.Error](err)
	if !ok || missing.Code != problem.NotFound {
		return nil
	}
	hint := missing.Hint
	if bundle, _, ok := strings.Cut(m.Module, "/"); ok && m.Script() {
		pull := "jail tool pull installs the bundle " + bundle + " from a registry"
		hint = strings.TrimPrefix(hint+"; "+pull, "; ")
	}
	return problem.New(problem.NotFound, "agent %q: %w", m.Name, missing).WithHint(hint)
}

func wrong(err error) error { return fmt.Errorf("%w: %w", ErrWrong, err) }

// copyAgent copies the files of an agent to a temporary directory, which then replaces to.
func copyAgent(m *manifest.Agent, to string) error {
	if err := makeFolder(filepath.Dir(to)); err != nil {
		return err
	}
	beside, err := os.MkdirTemp(filepath.Dir(to), ".adding-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(beside)
	from, err := os.OpenRoot(m.Dir)
	if err != nil {
		return err
	}
	defer from.Close()
	made := filepath.Join(beside, "new")
	for _, name := range m.Files {
		if err := copyFile(from, name, filepath.Join(made, name), manifest.MaxBytes, 0o755); err != nil {
			return err
		}
	}
	// rename(2) cannot replace a directory that is not empty, so move it away first.
	if err := os.Rename(to, filepath.Join(beside, "old")); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(made, to); err != nil {
		return errors.Join(err, os.Rename(filepath.Join(beside, "old"), to))
	}
	return nil
}

// copyFile durably copies a regular file of at most most bytes. The copy has this mode, without the
// execute bits if the file lacks them. Opening a file of another type does not block.
func copyFile(from *os.Root, name, to string, most int64, mode fs.FileMode) error {
	in, err := from.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", in.Name())
	case info.Size() > most:
		return fmt.Errorf("%s has more than %d bytes", in.Name(), most)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode&(info.Mode().Perm()|0o666))
	if err != nil {
		return err
	}
	_, err = io.CopyN(out, in, info.Size())
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// register reads the agent's files in the folder and registers the agent or its changes. A running
// instance uses the changes after its current event.
func (a *Agents) register(ctx context.Context, name string) (_ store.Agent, err error) {
	defer func() { a.problems.note(name, err) }()
	if err := reserved(name); err != nil {
		return store.Agent{}, err
	}
	dir := filepath.Join(a.o.Folder, name)
	stamp := stampOf(dir)
	m, err := manifest.Load(dir, manifest.Options{Host: a.o.Host})
	if err != nil {
		return store.Agent{}, wrong(err)
	}
	if m.Name != name {
		return store.Agent{}, wrong(fmt.Errorf("%s: the name is %q, and the directory %q: "+
			"they must be the same", m.Source, m.Name, name))
	}
	before, err := a.Store.Agent(ctx, name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return store.Agent{}, err
	}
	step := audit.AgentInstalled
	if err == nil {
		step = audit.AgentReloaded
	}
	var members []store.Member
	for _, channel := range m.Channels {
		members = append(members, store.Member{Channel: channel, Handle: m.Handle,
			Heartbeat: m.Wake.Heartbeat, Roster: m.Wake.Roster})
	}
	known := store.Agent{Name: name, Dir: dir, Stamp: stamp, Digest: m.Digest}
	woken, err := a.Store.Put(known, members)
	if err != nil {
		return store.Agent{}, err
	}
	a.wake(woken...)
	nudge(a.alarms)
	if before.Digest != known.Digest {
		for _, w := range m.Warnings {
			a.o.Log.Warn(w.Error())
		}
		return known, a.eachOf(ctx, name, func(i store.Instance) error {
			a.record(i, audit.AgentStep{Step: step, Runtime: runtimeOf(*m.Manifest)})
			a.turns.replace(i.ID, "its files have changed")
			err := a.revive(i)
			a.wake(i.ID)
			return err
		})
	}
	return known, nil
}

// stampOf returns a text that changes when the name, size, time or mode of a file in dir does. It
// covers at most 4*manifest.MaxFiles files.
func stampOf(dir string) string {
	var b strings.Builder
	n := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if n++; err != nil || n > 4*manifest.MaxFiles {
			return errors.Join(err, fs.SkipAll)
		}
		fmt.Fprintf(&b, "%s %d %d %v\n", path, info.Size(), info.ModTime().UnixNano(), info.Mode())
		return nil
	})
	if err != nil {
		b.WriteString(err.Error())
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:16])
}

// manifest returns the current manifest of an agent on a channel, and the directory of its files.
// Built-in agents come first. If the files of an agent have changed, it is registered again.
func (a *Agents) manifest(name, channel string) (manifest.Manifest, string, error) {
	if b, ok := builtin.Find(name); ok {
		all := builtinsOf(a.o.State)
		places, err := all.places(name)
		return b.Manifest(places, channel), all.dir(name), err
	}
	known, err := a.Store.Agent(a.ctx, name)
	if err != nil {
		return manifest.Manifest{}, "", err
	}
	if known.Stamp != stampOf(known.Dir) {
		if _, err := a.register(a.ctx, name); err != nil {
			return manifest.Manifest{}, "", err
		}
	}
	for _, file := range []string{manifest.File, manifest.FileJSON} {
		path := filepath.Join(known.Dir, file)
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return manifest.Manifest{}, "", err
		}
		m, err := manifest.Parse(path, text)
		if err != nil {
			return manifest.Manifest{}, "", wrong(err)
		}
		return *m, known.Dir, nil
	}
	return manifest.Manifest{}, "", wrong(fmt.Errorf("%s: there is no %s", known.Dir, manifest.File))
}

// Delete ends an agent and deletes it with its facets, files, inbox and state.
func (a *Agents) Delete(ctx context.Context, name string) error {
	all, err := a.Of(ctx, name)
	if err != nil {
		return err
	}
	for _, i := range all {
		a.record(i, audit.AgentStep{Step: audit.AgentRemoved})
	}
	// An agent with invalid files has no tools.
	m, _ := a.Manifest(name)
	files := builtinsOf(a.o.State).dir(name)
	if _, ok := builtin.Find(name); !ok {
		a.problems.note(name, nil)
		files = filepath.Join(a.o.Folder, name)
	}
	// Remove the files first, since they would register the agent again.
	if err := os.RemoveAll(files); err != nil {
		return err
	}
	all, woken, err := a.Store.Delete(name)
	if err != nil {
		return err
	}
	a.wake(woken...)
	if err := (facets{a}).remove(ctx, all); err != nil || m.Tools.Workspace == "" {
		return err
	}
	for _, i := range all {
		if i.Parent != 0 {
			continue
		}
		if err := a.o.Jails.EndTools(ctx, i.Name); err != nil {
			// The session sleeps, and its owner sees it in the list of sessions.
			a.o.Log.Warn("the session of an agent that is deleted is not ended", "session", i.Name,
				"error", err)
		}
	}
	return nil
}

// remove ends condemned instances and removes them with their files. If it is interrupted, the next
// start of jail-agentd finishes it.
func (f facets) remove(ctx context.Context, all []store.Instance) error {
	a := f.a
	for _, i := range all {
		a.turns.end(i.ID)
	}
	for _, i := range all {
		if err := a.turns.gone(ctx, i.ID); err != nil {
			return err
		}
		if err := os.RemoveAll(a.stateDir(i.Name)); err != nil {
			return err
		}
	}
	// The removal must be durable before Forget.
	if err := atomicfile.SyncDir(a.o.State); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := store.ChildrenOf(a.Store).Forget(all); err != nil {
		return err
	}
	for _, i := range all {
		// The parent may wait for an answer.
		a.pulse.beat(i.ID, Anyone)
	}
	return nil
}

// finishDeletions finishes deletions that the end of jail-agentd interrupted.
func (f facets) finishDeletions() error {
	a := f.a
	all, err := store.ChildrenOf(a.Store).Condemned(a.ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	return f.remove(a.ctx, all)
}

// scanned is how many agents of the folder are registered in parallel.
const scanned = 16

// Scan registers new and changed agents of the folder and handles missing ones. It returns an error
// for each agent that cannot be registered, by name.
func (a *Agents) Scan(ctx context.Context) map[string]error {
	problems := map[string]error{}
	entries, err := os.ReadDir(a.o.Folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		problems[""] = err
		return problems
	}
	there := make(map[string]bool, len(entries))
	for _, e := range entries {
		if e.IsDir() && manifest.CheckName(e.Name()) == nil {
			there[e.Name()] = true
		}
	}
	var gone []string
	if err := a.Store.Agents(ctx, func(known store.Agent) error {
		if _, ok := builtin.Find(known.Name); ok {
			return nil
		}
		if !there[known.Name] {
			gone = append(gone, known.Name)
		} else if known.Stamp == stampOf(known.Dir) {
			delete(there, known.Name)
		}
		return nil
	}); err != nil {
		problems[""] = err
		return problems
	}
	// Parallel registrations share commits of the database.
	var mu sync.Mutex
	var work sync.WaitGroup
	free := make(chan struct{}, scanned)
	for name := range there {
		free <- struct{}{}
		work.Go(func() {
			defer func() { <-free }()
			if _, err := a.register(ctx, name); err != nil {
				mu.Lock()
				defer mu.Unlock()
				problems[name] = err
			}
		})
	}
	work.Wait()
	for _, name := range gone {
		if err := a.missing(ctx, name); err != nil {
			problems[name] = err
		}
	}
	return problems
}

// missing marks the instances of an agent whose directory is gone as Failed. Their state is kept
// until the agent is deleted, since the directory may come back.
func (a *Agents) missing(ctx context.Context, name string) error {
	return a.eachOf(ctx, name, func(i store.Instance) error {
		a.turns.tell(i.ID, signal{sleep: "its files are gone"})
		if i.State == store.Failed {
			return nil
		}
		err := a.Store.SetState(i.ID, store.Failed, "its files are gone: jail agent delete "+name+
			" forgets it")
		// Somebody may wait for an answer.
		a.pulse.beat(i.ID, Anyone)
		return err
	})
}

// Manifest returns the manifest of an agent, for a built-in agent that of its first channel.
func (a *Agents) Manifest(name string) (manifest.Manifest, error) {
	channel := ""
	if all, err := a.Of(a.ctx, name); err == nil && len(all) > 0 {
		channel = all[0].Channel
	}
	m, _, err := a.manifest(name, channel)
	return m, err
}

// Problems returns the errors of agents of the folder that cannot be registered, by name.
func (a *Agents) Problems() map[string]string { return a.problems.all() }

// problems are the errors of agents that cannot be registered, as texts by agent name.
type problems struct{ of sync.Map }

func (p *problems) all() map[string]string {
	all := map[string]string{}
	p.of.Range(func(name, why any) bool {
		all[name.(string)] = why.(string)
		return true
	})
	return all
}

// note stores the error of an agent, or removes it if err is nil.
func (p *problems) note(name string, err error) {
	if err == nil {
		p.of.Delete(name)
		return
	}
	p.of.Store(name, err.Error())
}
