package agents

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/jail/workspace"
)

// maxFile bounds the size of a file that is changed, in bytes.
const maxFile = 16 << 20

// Values of planned.Change.
const (
	unchanged = "none"
	created   = "create"
	changed   = "change"
	removed   = "remove"
)

// planned is the planned change of a file.
type planned struct {
	Path   string `json:"path"`
	Change string `json:"change"`
	Diff   string `json:"diff"`

	base, rel     string
	before, after []byte
	// perm holds the permissions of the file.
	perm fs.FileMode
	note note
}

// A note records what setup wrote into a file, so that --undo can remove it.
type note struct {
	File    string `json:"file"`
	Created bool   `json:"created"`
	// Directory is true if setup created the directory of the file, too.
	Directory bool     `json:"directory,omitempty"`
	Changes   []change `json:"changes"`
}

// A writer plans and makes the changes of jail setup to the configuration files of one coding
// agent. client is the name of the agent. The files are below base, the project or home directory,
// unless an environment variable of the agent names another one. state is the directory of the
// notes for --undo.
type writer struct {
	env               *cli.Env
	home, base, state string
	client            string
	undo              bool
}

// plan reads a file of the client and returns the changes that setup would make, or undo if w.undo
// is true. It writes nothing. user is true if the file is in the user's home directory.
func (w *writer) plan(f file, user bool) (p planned, err error) {
	p = planned{base: w.base, rel: f.path, Change: unchanged, perm: 0o644}
	if user {
		p.perm = 0o600
	}
	if dir := w.env.Getenv(f.home); f.home != "" && user && dir != "" {
		p.base = dir
		if _, name, ok := strings.Cut(f.path, "/"); ok {
			p.rel = name
		}
	}
	if p.Path, err = filepath.Abs(filepath.Join(p.base, p.rel)); err != nil {
		return p, err
	}
	if p.base == w.base && !user {
		p.Path = filepath.Clean(p.rel)
	}
	exists, err := p.read()
	if err != nil {
		return p, err
	}
	if err := w.load(&p); err != nil {
		return p, err
	}
	if w.undo {
		if !exists || len(p.note.Changes) == 0 {
			return p, nil
		}
		empty := false
		if p.after, empty, err = restored(p.rel, p.before, p.note.Changes); err != nil {
			return p, notEdited(p.Path, err)
		}
		if empty && p.note.Created {
			p.Change, p.after = removed, nil
		} else if !bytes.Equal(p.before, p.after) {
			p.Change = changed
		}
	} else {
		var back []change
		if p.after, back, err = edited(p.rel, p.before, f.changes); err != nil {
			return p, notEdited(p.Path, err)
		}
		switch {
		case len(back) == 0:
		case exists:
			p.Change = changed
		default:
			p.Change, p.note.Created = created, true
			if _, err := os.Lstat(filepath.Join(p.base, filepath.Dir(p.rel))); err != nil {
				p.note.Directory = true
			}
		}
		p.note.add(back)
	}
	p.Diff = workspace.Unified(p.Path, string(p.before), string(p.after))
	return p, nil
}

// add adds changes to the note. If a change replaces a value that setup wrote, the original value
// stays in the note.
func (n *note) add(back []change) {
	for _, c := range back {
		i := slices.IndexFunc(n.Changes, func(old change) bool {
			return !c.Item && !old.Item && slices.Equal(c.At, old.At)
		})
		switch {
		case i < 0:
			n.Changes = append(n.Changes, c)
		case c.Before == n.Changes[i].Value || sameJSON(c.Before, n.Changes[i].Value):
			n.Changes[i].Value = c.Value
		default:
			n.Changes[i] = c
		}
	}
}

// path returns the path of the note about a file.
func (w *writer) path(p planned) (string, error) {
	abs, err := filepath.Abs(filepath.Join(p.base, p.rel))
	sum := sha256.Sum256([]byte(abs))
	return filepath.Join(w.state, fmt.Sprintf("%x.json", sum[:16])), err
}

func (w *writer) load(p *planned) error {
	path, err := w.path(*p)
	if err != nil {
		return err
	}
	err = atomicfile.ReadJSON(path, &p.note)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return exit.Failed(err, "remove it, if the configuration is as you want it", "%s: %v", path,
			exit.Cause(err))
	}
	return nil
}

// write makes the planned changes of one file, or returns an error if the file has changed since
// plan. It writes the note for undo first. After a crash between the two, the note has changes that
// the file lacks: undo skips them.
func (w *writer) write(p planned) error {
	path, err := w.path(p)
	if err != nil {
		return err
	}
	if p.Change == unchanged {
		return w.forget(path)
	}
	now := p
	if _, err := now.read(); err != nil {
		return err
	}
	if !bytes.Equal(now.before, p.before) {
		return exit.Failed(errors.New("changed"), "try again", "%s changed meanwhile", p.Path)
	}
	if !w.undo {
		p.note.File = p.Path
		err := os.MkdirAll(w.state, 0o700)
		if err == nil {
			err = atomicfile.WriteJSON(path, p.note, 0o600, atomicfile.Durable)
		}
		if err != nil {
			return exit.Failed(err, "", "%s: %v", path, exit.Cause(err))
		}
	}
	if err := p.replace(); err != nil {
		return exit.Failed(err, "", "%s: %v", p.Path, exit.Cause(err))
	}
	return w.forget(path)
}

// forget removes the note at path after an undo. Otherwise it does nothing.
func (w *writer) forget(path string) error {
	if !w.undo {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return exit.Failed(err, "", "%s: %v", path, exit.Cause(err))
	}
	return nil
}

// within calls f with the directory of the file and the file's name in it. If make is true, it
// creates missing directories; otherwise a missing directory is fs.ErrNotExist.
func (p *planned) within(make bool, f func(dir *os.Root, name string) error) error {
	root, err := os.OpenRoot(p.base)
	if err != nil {
		return err
	}
	defer func() { root.Close() }()
	if err := owned(root, ".", fs.ModeDir); err != nil {
		return err
	}
	parts := strings.Split(filepath.Clean(p.rel), "/")
	for _, name := range parts[:len(parts)-1] {
		if make {
			if err := root.Mkdir(name, p.dirPerm()); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
		if err := owned(root, name, fs.ModeDir); err != nil {
			return err
		}
		next, err := root.OpenRoot(name)
		if err != nil {
			return err
		}
		root.Close()
		root = next
	}
	return f(root, parts[len(parts)-1])
}

func (p *planned) dirPerm() fs.FileMode {
	if p.perm&0o077 == 0 {
		return 0o700
	}
	return 0o755
}

// owned returns an error unless name in root has the file type kind, is not a symbolic link and
// belongs to the effective user. The error for a missing file is fs.ErrNotExist.
func owned(root *os.Root, name string, kind fs.FileMode) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	path := filepath.Join(root.Name(), name)
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link", path)
	case info.Mode().Type() != kind:
		return fmt.Errorf("%s is no regular file or directory", path)
	case !ok || int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", path)
	}
	return nil
}

// read reads the file into p.before, and reports whether it exists.
func (p *planned) read() (exists bool, err error) {
	p.before = nil
	err = p.within(false, func(dir *os.Root, name string) error {
		if err := owned(dir, name, 0); err != nil {
			return err
		}
		f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		p.perm = info.Mode().Perm()
		p.before, err = io.ReadAll(io.LimitReader(f, maxFile+1))
		if err == nil && len(p.before) > maxFile {
			err = fmt.Errorf("it has more than %d bytes", maxFile)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, exit.Usage("change it by hand: docs/agents has the text", "%s: %v", p.Path,
			exit.Cause(err))
	}
	return true, nil
}

// replace writes p.after to the file, or removes the file if p.Change is removed. It also removes
// the directory of the file if setup created the directory and no other file is in it.
func (p *planned) replace() error {
	if p.Change != removed {
		return p.within(true, func(dir *os.Root, name string) error {
			return atomicfile.WriteIn(dir, name, p.after, p.perm, atomicfile.Durable)
		})
	}
	err := p.within(false, func(dir *os.Root, name string) error { return dir.Remove(name) })
	if dir, _ := filepath.Split(p.rel); err == nil && dir != "" && p.note.Directory {
		// This fails if the directory is not empty, and then it stays.
		_ = os.Remove(filepath.Join(p.base, dir))
	}
	return err
}
