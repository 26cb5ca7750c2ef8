package workspace

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// sync writes the changes of the real directory to its disk: the directories, and while staging the
// new content.
func (c *commit) sync() error {
	if len(c.journal.Steps) > syncEach {
		return c.syncAll()
	}
	paths := map[Name]bool{}
	for i, s := range c.journal.Steps {
		paths[s.Near], paths[Name(parentOf(string(s.Path)))] = true, true
		if c.journal.Phase == staging && (s.Op == opCreate || s.Op == opReplace) {
			paths[Name(join(string(s.Near), c.hand.temp(i)))] = true
		}
	}
	var err error
	for path := range paths {
		err = errors.Join(err, c.syncPath(path))
	}
	return err
}

// syncPath syncs a file or directory, as the daemon, if it exists.
func (c *commit) syncPath(path Name) error {
	at, err := c.hand.open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer at.Close()
	st, err := sys.Fstat(at)
	if err != nil || typeOf(st) != File && typeOf(st) != Dir {
		return err
	}
	f, err := sys.Reopen(at, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (c *commit) syncAll() error {
	f, err := sys.Reopen(c.hand.real, os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer f.Close()
	return sys.Syncfs(f)
}
