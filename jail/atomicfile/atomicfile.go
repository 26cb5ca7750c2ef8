// Package atomicfile replaces files whole. It is the only place that does so.
//
// The promise, for every function here: a process that opens the file meanwhile reads the old
// content or the new content, never a part or a mixture. An error leaves the old content; only
// after an error of the last flush of [Durable] either content may be there. The new file has
// exactly the given permissions, whatever the umask. A symbolic link in the file's place is
// replaced, not followed. A crash may leave a temporary file beside it, whose name begins with a
// dot and the file's name.
package atomicfile

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
)

// Durability says what a crash of the host may do to a file that was just written.
type Durability bool

const (
	// Durable: content and name are flushed, so the new content survives a crash of the host from
	// the moment that the function returns nil. It costs two flushes of the disk.
	Durable Durability = true

	// Volatile: nothing is flushed. After a crash of the host the file may have the old content,
	// the new content or none. It is for what such a crash makes void anyway, such as the state of
	// runs.
	Volatile Durability = false
)

// Write replaces the file at path, or makes it, with the permissions perm.
func Write(path string, content []byte, perm fs.FileMode, d Durability) error {
	return in(path, func(root *os.Root, name string) error {
		return WriteIn(root, name, content, perm, d)
	})
}

// WriteJSON is [Write] of v in JSON.
func WriteJSON(path string, v any, perm fs.FileMode, d Durability) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return Write(path, text, perm, d)
}

// ReadJSON reads what WriteJSON wrote into v.
func ReadJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// WriteIn is [Write] for the file name directly in root.
func WriteIn(root *os.Root, name string, content []byte, perm fs.FileMode, d Durability) error {
	t, err := pending(root, name, content, perm)
	if err == nil && d == Durable {
		if err = t.CloseAtomicallyReplace(); err == nil {
			return failed(root, name, SyncIn(root))
		}
	} else if err == nil {
		// renameio flushes always.
		if err = t.Close(); err == nil {
			err = root.Rename(filepath.Base(t.Name()), name)
		}
	}
	if err != nil && t != nil {
		// What is left of the temporary file is nobody's; err says what went wrong.
		_ = t.Cleanup()
	}
	return failed(root, name, err)
}

// Create makes a durable file at path, where there must be none: else the error is [fs.ErrExist],
// and what is there stays. Of several that create the same file at a time, one does.
func Create(path string, content []byte, perm fs.FileMode) error {
	return in(path, func(root *os.Root, name string) error {
		t, err := pending(root, name, content, perm)
		if err == nil {
			err = t.Sync()
		}
		if err == nil {
			err = root.Link(filepath.Base(t.Name()), name)
		}
		if t != nil {
			err = errors.Join(err, t.Cleanup())
		}
		if err == nil {
			err = SyncIn(root)
		}
		return failed(root, name, err)
	})
}

// Symlink makes path a symbolic link to target, in place of a link or file that is there.
func Symlink(target, path string) error { return renameio.Symlink(target, path) }

// SyncDir flushes the names in the directory at path: what was made, renamed or removed in it
// survives a crash of the host.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// SyncIn is [SyncDir] for root itself.
func SyncIn(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// in calls f with the directory of path and the name in it. The directory is not cleaned: the
// kernel resolves "link/.." otherwise than [filepath.Clean].
func in(path string, f func(root *os.Root, name string) error) error {
	i := strings.LastIndexByte(path, '/')
	dir := cmp.Or(path[:i+1], ".")
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(f(root, path[i+1:]), root.Close())
}

// pending returns an open temporary file with content, beside name. It may be there with an error,
// too.
func pending(root *os.Root, name string, content []byte, perm fs.FileMode) (*renameio.PendingFile,
	error) {
	t, err := renameio.NewPendingFile(name, renameio.WithRoot(root),
		renameio.WithStaticPermissions(perm))
	if err == nil {
		_, err = t.Write(content)
	}
	return t, err
}

// failed names the file that was to be replaced, and not the temporary one.
func failed(root *os.Root, name string, err error) error {
	var at *fs.PathError
	var link *os.LinkError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &at):
		err = at.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return &fs.PathError{Op: "replace", Path: filepath.Join(root.Name(), name), Err: err}
}
