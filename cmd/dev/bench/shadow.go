package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/workspace"
)

const (
	shadowPart = "workspace"
	// files of a tree in each of its directories
	perDir = 200

	manyChanges = 10_000
)

// shadowPolicy has room and time for many changes, each of which is a command of a script.
const shadowPolicy = `policy = 1
name = "patient"
include = ["default"]

[limits]
wall = "30m"
cpu_time = "30m"
workspace_files = 20000
`

// A shadowCase is a tree of so many files, of which so many are changed.
type shadowCase struct{ files, changes int }

// shadowCases are those that are measured: ten changes in ever larger trees, and then many changes.
func shadowCases(most int) (all []shadowCase) {
	for n := 1000; n <= most; n *= 10 {
		all = append(all, shadowCase{n, 10})
	}
	if most >= manyChanges {
		all = append(all, shadowCase{min(most, 100_000), manyChanges})
	}
	return all
}

// shadows measures what looking at, committing and reverting changes costs, beside programs that do
// the same job without a shadow.
func shadows(ctx context.Context, bin string, most int, stdout, stderr io.Writer) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("only root can start jails")
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	out := &table{head: []string{"files", "changes", "prepare", "fork", "diff", "commit",
		"revert", "`cp -a`", "`git add`", "`git diff`", "`git stash`", "`rsync -a`"}}
	for _, c := range shadowCases(most) {
		fmt.Fprintf(stderr, "bench: %d changes in %d files\n", c.changes, c.files)
		row, err := shadowRow(ctx, bin, c)
		if err != nil {
			return err
		}
		out.add(row...)
	}
	fmt.Fprintf(stdout,
		"\nA shadow: what it costs to prepare one, to make a branch of it, to see, commit and revert changes, each once, in milliseconds. Beside it what a copy of the directory "+
			"costs, what git needs to take the changes in, to show and to put away, and rsync to carry them over.\n\n")
	return out.write(stdout)
}

func shadowRow(ctx context.Context, bin string, c shadowCase) (row []string, err error) {
	tmp, err := os.MkdirTemp("", "jail-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	s := &shadowBed{ctx: ctx, tmp: tmp, tree: filepath.Join(tmp, "tree"), c: c}
	row = []string{strconv.Itoa(c.files), strconv.Itoa(c.changes)}
	for _, step := range []func() ([]time.Duration, error){func() ([]time.Duration,
		error) {
		return s.ours(bin)
	}, s.theirs} {
		took, err := step()
		if err != nil {
			return nil, err
		}
		for _, d := range took {
			row = append(row, millis(d))
		}
	}
	return row, nil
}

type shadowBed struct {
	ctx       context.Context
	tmp, tree string
	c         shadowCase
}

func (s *shadowBed) plant() error {
	for i := range s.c.files {
		dir := filepath.Join(s.tree, fmt.Sprintf("d%d", i/perDir))
		if i%perDir == 0 {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), []byte("some text\n"),
			0o644); err != nil {
			return err
		}
	}
	// Else the first fsync of who is measured pays for the planting.
	syscall.Sync()
	return nil
}

// ours prepares a shadow, has a tool change it, and looks at it, commits it and reverts it.
func (s *shadowBed) ours(bin string) (took []time.Duration, err error) {
	if err := s.plant(); err != nil {
		return nil, err
	}
	id, err := s.change(bin)
	if err != nil {
		return nil, err
	}
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	prepared, err := prepare(store, s.tree)(s.ctx)
	if err != nil {
		return nil, err
	}
	forked, err := s.fork(store, id)
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	w, err := store.Get(id)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	took = append(took, prepared, forked)
	seen := 0
	for _, step := range []func() error{
		func() error {
			_, err := w.Show(s.ctx, workspace.ShowOptions{Patch: io.Discard},
				func(workspace.Change) error { seen++; return nil })
			return err
		},
		func() error {
			_, err := w.Commit(s.ctx,
				workspace.CommitOptions{Keep: workspace.Retention{For: time.Hour, Bytes: 1 << 30}})
			return err
		},
		func() error { _, err := w.Revert(s.ctx, workspace.RevertOptions{}); return err },
	} {
		start := time.Now()
		if err := step(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	if seen != s.c.changes {
		return nil, fmt.Errorf("%d changes were seen, want %d", seen, s.c.changes)
	}
	return took, nil
}

// state is the state directory of the bed's daemon.
func (s *shadowBed) state() string { return filepath.Join(s.tmp, "jail") }

// store opens the shadows.
func (s *shadowBed) store() (*workspace.Store, error) {
	return workspace.Open(filepath.Join(s.state(), "state", "workspaces"))
}

// change has a tool change the directory in a new shadow, and returns the id of that.
func (s *shadowBed) change(bin string) (string, error) {
	var script strings.Builder
	for i := range s.c.changes {
		fmt.Fprintf(&script, "echo more >>d%d/%d\n", i/perDir, i)
	}
	file := filepath.Join(s.tmp, "script")
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		return "", err
	}
	rules := filepath.Join(s.tmp, "patient.toml")
	if err := os.WriteFile(rules, []byte(shadowPolicy), 0o600); err != nil {
		return "", err
	}
	// An id of the form that jail makes is that of the shadow, and no alias of it.
	id := string(jail.NewID())
	run := exec.CommandContext(s.ctx, filepath.Join(bin, "jail"), "sh", "--quiet", "--id", id,
		"--workspace", s.tree, "--policy", rules, file)
	run.Env = append(os.Environ(), "JAIL_STATE="+s.state())
	if out, err := run.CombinedOutput(); err != nil {
		return "", fmt.Errorf("jail sh: %w: %.1000s", err, bytes.TrimSpace(out))
	}
	return id, nil
}

// fork makes a branch of the shadow, and throws it away.
func (s *shadowBed) fork(store *workspace.Store, parent string) (time.Duration, error) {
	id := string(jail.NewID())
	start := time.Now()
	_, err := workspace.BranchesOf(store).Fork(s.ctx, parent, id, workspace.Caller{})
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	b, err := store.Get(id)
	if err != nil {
		return 0, err
	}
	return took, b.Discard()
}

// theirs does the same with a copy, with git and with rsync.
func (s *shadowBed) theirs() (took []time.Duration, err error) {
	copied := filepath.Join(s.tmp, "copy")
	git := []string{"git", "-C", copied, "-c", "user.name=bench", "-c",
		"user.email=bench@localhost", "-c", "gc.auto=0", "-c", "maintenance.auto=false"}
	with := func(args ...string) []string { return append(append([]string{}, git...), args...) }
	change := func() error {
		for i := range s.c.changes {
			if err := os.WriteFile(filepath.Join(copied, fmt.Sprintf("d%d", i/perDir),
				strconv.Itoa(i)), []byte("some text\nmore\n"), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	for _, step := range []struct {
		args   []string
		first  func() error
		silent bool // not a figure
	}{
		{args: []string{"cp", "-a", s.tree, copied}},
		{args: with("init", "-q"), silent: true},
		{args: with("add", "-A"), silent: true},
		{args: with("commit", "-qm", "base"), silent: true},
		{args: with("add", "-A"), first: change},
		{args: with("diff", "--cached")},
		{args: with("stash", "-q")},
		{args: []string{"rsync", "-a", "--delete", "--exclude=.git", copied + "/", s.tree + "/"},
			first: change},
	} {
		if step.first != nil {
			if err := step.first(); err != nil {
				return nil, err
			}
		}
		start := time.Now()
		if out, err := exec.CommandContext(s.ctx, step.args[0],
			step.args[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%v: %w: %.1000s", step.args, err, out)
		}
		if !step.silent {
			took = append(took, time.Since(start))
		}
	}
	return took, nil
}
