package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// stage writes the new content of step i below its temporary name, with the owner and mode that it is to have, and remembers
// its inode. Nothing that is there is ever written to: a file may have other names, outside.
func (c *commit) stage(i int) error {
	s := &c.journal.Steps[i]
	if s.Op != opCreate && s.Op != opReplace {
		return nil
	}
	own, asDaemon, err := c.owner(*s)
	if err != nil {
		return err
	}
	var made *os.File
	asItWas := false // the inode itself comes back, with its owner
	switch s.New.Type {
	case Dir:
		made, err = c.stageName(i, *s, func(near *os.File) error { return sys.MkdirAt(near, c.temp(i), 0o700) })
	case Link:
		made, err = c.stageName(i, *s, func(near *os.File) error { return sys.SymlinkAt(string(s.New.Target), near, c.temp(i)) })
	default:
		if c.past != nil {
			made, asItWas, err = c.stageKept(i, *s)
		} else {
			made, err = c.stageFile(i, *s)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.Path, err)
	}
	defer made.Close()
	if !asItWas {
		if err := c.own(made, own, asDaemon); err != nil {
			return err
		}
	}
	st, err := sys.Fstat(made)
	s.Staged = st.Ino
	return err
}

type owner struct{ uid, gid uint32 }

// owner says whose the new content is to be: the one's whose content it replaces, else the workspace's owner. The daemon gives it away
// only where the caller could have written into the old file itself, which would have left the owner alone.
func (c *commit) owner(s step) (o owner, asDaemon bool, err error) {
	if s.Old != nil {
		o = owner{s.Old.UID, s.Old.GID}
		if s.Old.Type != File || s.Old.UID == c.as.UID || c.as.UID == 0 {
			return o, s.Old.Type == File, nil
		}
		err = c.at(s.Path, func(dir *os.File, name string) error {
			if !sys.MayWrite(dir, name) {
				return &fs.PathError{Op: "commit", Path: s.Path.String(), Err: syscall.EACCES}
			}
			return nil
		})
		return o, true, err
	}
	o = owner{c.w.meta.UID, c.w.meta.GID}
	near, err := c.find(s.Near, ".")
	if err == nil && near != nil && near.Mode&syscall.S_ISGID != 0 {
		o.gid = near.GID
	}
	return o, false, err
}

func (c *commit) own(f *os.File, o owner, asDaemon bool) error {
	st, err := sys.Fstat(f)
	if err != nil || st.UID == o.uid && st.GID == o.gid {
		return err
	}
	set := func() error {
		if err := sys.Chown(f, o.uid, o.gid); err != nil || typeOf(st) != File {
			return err
		}
		return sys.Chmod(f, st.Perm()) // chown takes bits away
	}
	if asDaemon {
		return set()
	}
	c.as.do(set) // a caller who may not give it away keeps it
	return nil
}

func (c *commit) stageName(i int, s step, make func(near *os.File) error) (f *os.File, err error) {
	err = c.in(s.Near, func(near *os.File) error {
		if err := make(near); err != nil {
			return err
		}
		f, err = sys.OpenPath(near, c.temp(i))
		return err
	})
	return f, err
}

func (c *commit) stageFile(i int, s step) (made *os.File, err error) {
	var content *os.File
	text, rewritten := c.texts[s.Path]
	if !rewritten {
		dir, name := split(string(s.Path))
		upperDir, err := openDir(c.upper, dir)
		if err != nil {
			return nil, err
		}
		defer upperDir.Close()
		if content, err = openRegular(upperDir, name); err != nil {
			return nil, err
		}
		defer content.Close()
	}
	err = c.in(s.Near, func(near *os.File) error {
		if made, err = sys.OpenBeneath(near, c.temp(i), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
		if err := c.keepAttributes(made, s); err != nil {
			return err
		}
		if rewritten {
			_, err := made.WriteString(text)
			return errors.Join(err, sys.Chmod(made, s.Mode))
		}
		err = writeContent(made, content, s)
		if err == nil && s.SameContent {
			err = sys.SetMtime(made, s.Old.Mtime)
		}
		return err
	})
	if err == nil {
		err = c.checkContent(made, s)
	}
	if err != nil && made != nil {
		made.Close()
		made = nil
	}
	return made, err
}

func writeContent(made, content *os.File, s step) error {
	if err := made.Truncate(s.New.Size); err != nil {
		return err
	}
	if err := copyData(made, content); err != nil {
		return err
	}
	return sys.Chmod(made, s.Mode)
}

// checkContent makes sure that what was written is what was reviewed.
func (c *commit) checkContent(made *os.File, s step) error {
	sum, _, err := hashFile(made, s.New.Size, c.ctx.Err, nil)
	if err == nil && sum != s.New.SHA256 {
		err = ErrDigest
	}
	return err
}

// keepAttributes gives what replaces a file those of its attributes that are kept, as far as the caller may read them. The mode is set after that,
// so that an access control list does not widen it.
func (c *commit) keepAttributes(made *os.File, s step) error {
	if s.Old == nil || s.Old.Type != File {
		return nil
	}
	dir, name := split(string(s.Path))
	d, err := openDir(c.real, dir)
	if err != nil {
		return err
	}
	defer d.Close()
	old, err := openRegular(d, name)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer old.Close()
	return copyAttributes(made, old)
}
