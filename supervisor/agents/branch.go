package agents

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// branchPrefix is the prefix of directories with copies of states. No instance has such a name.
const branchPrefix = ".branch-"

// maxState bounds each copied file of a state, in bytes.
const maxState = 2 << 30

// stateFiles are the files of a database to copy. SQLite recreates the index of the WAL.
var stateFiles = []string{"state.db", "state.db-wal", "state.db-journal"}

// AddBranch adds a new agent, as Add does. Each of its instances starts with a copy of the state of
// the sleeping instance of; facets are not copied. A crash leaves no agent, or the agent with the
// state.
func (a *Agents) AddBranch(ctx context.Context, dir string, of store.Instance) (store.Agent, error) {
	m, err := loadNew(ctx, a, dir)
	if err != nil {
		return store.Agent{}, err
	}
	if from, _, err := a.manifest(of.Agent, of.Channel); err != nil || from.OnHost() {
		if err == nil {
			err = problem.New(problem.Refused, "agent %s runs on the host: what it knows is in no "+
				"database that can be copied", of.Agent)
		}
		return store.Agent{}, err
	}
	copied, err := a.copyState(ctx, of)
	if err != nil {
		return store.Agent{}, fmt.Errorf("state of %s: %w", of.Name, err)
	}
	defer os.RemoveAll(copied)
	if err := a.Store.Prepare(m.Name, m.Channels, of); err != nil {
		return store.Agent{}, err
	}
	for _, channel := range m.Channels {
		if err := placeState(copied, a.stateDir(m.Instance(channel))); err != nil {
			return store.Agent{}, err
		}
	}
	if err := atomicfile.SyncDir(a.o.State); err != nil {
		return store.Agent{}, err
	}
	return a.Add(ctx, dir)
}

// copyState copies the database of a sleeping instance and returns the directory of the copy.
func (a *Agents) copyState(ctx context.Context, of store.Instance) (_ string, err error) {
	dir, err := os.MkdirTemp(a.o.State, branchPrefix)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	from := a.stateDir(of.Name)
	before := stampOf(from)
	if err := copyFiles(from, dir); err != nil {
		return "", err
	}
	// If the agent woke meanwhile, the copy may be inconsistent.
	now, err := a.Store.Instance(ctx, of.ID)
	if err == nil && (a.turns.state(of.ID) != "" || now.Settled != of.Settled || stampOf(from) != before) {
		err = problem.New(problem.Busy, "agent %s is awake", of.Agent).
			WithHint("jail agent pause " + of.Agent + " lets it sleep; jail agent resume ends that")
	}
	return dir, err
}

// copyFiles copies the files of a database. The agent's jail could write to their directory, so
// symlinks out of it are not followed.
func copyFiles(from, to string) error {
	root, err := os.OpenRoot(from)
	if errors.Is(err, fs.ErrNotExist) {
		// The instance was never awake and has no state.
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range stateFiles {
		err := copyFile(root, name, filepath.Join(to, name), maxState, 0o600)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// placeState copies a state into the directory to of an instance that was never awake.
func placeState(copied, to string) error {
	beside, err := os.MkdirTemp(filepath.Dir(to), branchPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(beside)
	if err := copyFiles(copied, beside); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(beside); err != nil {
		return err
	}
	// Remove the rest of an interrupted copy.
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.Rename(beside, to)
}
