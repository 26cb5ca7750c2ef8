package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// stager writes the new content of a commit beside its places.
type stager struct{ c *commit }

// stage writes the new content of step i to its temporary name, with its final owner and mode, and
// remembers its inode. It never writes to an existing file, which may have other links outside.
func (t stager) stage(i int) error {
	s := &t.c.journal.Steps[i]
	if s.Op != opCreate && s.Op != opReplace {
		return nil
	}
	if err := t.stagePlace(*s); err != nil {
		return err
	}
	own, asDaemon, err := t.owner(*s)
	if err != nil {
		return err
	}
	var made *os.File
	// asItWas: the inode itself comes back, with its owner.
	asItWas := false
	switch s.New.Type {
	case Dir:
		made, err = t.stageName(i, *s, func(near *os.File) error {
			return sys.MkdirAt(near, t.c.hand.temp(i), 0o700)
		})
	case Link:
		made, err = t.stageName(i, *s, func(near *os.File) error {
			return sys.SymlinkAt(string(s.New.Target), near, t.c.hand.temp(i))
		})
	default:
		if t.c.past != nil {
			made, asItWas, err = t.stageKept(i, *s)
		} else {
			made, err = t.stageFile(i, *s)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.Path, err)
	}
	defer made.Close()
	if !asItWas {
		if err := t.own(made, own, asDaemon); err != nil {
			return err
		}
	}
	st, err := sys.Fstat(made)
	if err != nil {
		return err
	}
	s.Staged, s.Made = st.Ino, inodeOf(st)
	if s.Born, err = sys.Birth(made); err != nil || !s.makesDir() {
		return err
	}
	return t.c.holdFresh(s.Path, made)
}

// stagePlace checks that the directory of the temporary name, and that of the replaced path, are
// where they were.
func (t stager) stagePlace(s step) error {
	if s.Op == opReplace {
		return t.c.hand.inPlace(s.Near, Name(parentOf(string(s.Path))))
	}
	return t.c.hand.inPlace(s.Near)
}

type owner struct{ uid, gid uint32 }

// owner returns the owner of new content: that of the replaced content, else the workspace's owner.
// The daemon changes the owner only if the caller could have written to the old file itself, which
// would have left the owner unchanged.
func (t stager) owner(s step) (o owner, asDaemon bool, err error) {
	if s.Old != nil {
		o = owner{s.Old.UID, s.Old.GID}
		if s.Old.Type != File || s.Old.UID == t.c.hand.as.UID || t.c.hand.as.UID == 0 {
			return o, s.Old.Type == File, nil
		}
		err = t.c.hand.at(s.Path, func(dir *os.File, name string) error {
			if !sys.MayWrite(dir, name) {
				return &fs.PathError{Op: "commit", Path: s.Path.String(), Err: syscall.EACCES}
			}
			return nil
		})
		return o, true, err
	}
	o = owner{t.c.w.meta.UID, t.c.w.meta.GID}
	near, err := t.c.hand.find(s.Near, ".")
	if err == nil && near != nil && near.Mode&syscall.S_ISGID != 0 {
		o.gid = near.GID
	}
	return o, false, err
}

func (t stager) own(f *os.File, o owner, asDaemon bool) error {
	st, err := sys.Fstat(f)
	if err != nil || st.UID == o.uid && st.GID == o.gid {
		return err
	}
	set := func() error {
		if err := sys.Chown(f, o.uid, o.gid); err != nil || typeOf(st) != File {
			return err
		}
		// chown clears bits.
		return sys.Chmod(f, st.Perm())
	}
	if asDaemon {
		return set()
	}
	// A caller without the right to give the file away keeps it.
	t.c.hand.as.do(set)
	return nil
}

func (t stager) stageName(i int, s step, make func(near *os.File) error) (f *os.File, err error) {
	err = t.c.hand.in(s.Near, func(near *os.File) error {
		if err := make(near); err != nil {
			return err
		}
		f, err = sys.OpenPath(near, t.c.hand.temp(i))
		return err
	})
	return f, err
}

func (t stager) stageFile(i int, s step) (made *os.File, err error) {
	var content *os.File
	text, rewritten := t.c.texts[s.Path]
	if !rewritten {
		dir, name, err := t.c.upper.at(s.Path)
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		if content, err = openRegular(dir, name); err != nil {
			return nil, err
		}
		defer content.Close()
	}
	err = t.c.hand.in(s.Near, func(near *os.File) error {
		if made, err = newFile(near, t.c.hand.temp(i)); err != nil {
			return err
		}
		if err := t.keepAttributes(made, s); err != nil {
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
		err = t.checkContent(made, s)
	}
	if err != nil && made != nil {
		made.Close()
		made = nil
	}
	return made, err
}

func writeContent(made, content *os.File, s step) error {
	if err := copyData(made, content, s.New.Size); err != nil {
		return err
	}
	return sys.Chmod(made, s.Mode)
}

// checkContent checks that the written content is the reviewed one.
func (t stager) checkContent(made *os.File, s step) error {
	sum, _, err := hashFile(made, s.New.Size, t.c.ctx.Err, nil)
	if err == nil && sum != s.New.SHA256 {
		err = ErrDigest
	}
	return err
}

// keepAttributes copies the kept attributes of a replaced file, as far as the caller may read them.
// The mode is set afterwards, so that an ACL does not widen it.
func (t stager) keepAttributes(made *os.File, s step) error {
	if s.Old == nil || s.Old.Type != File {
		return nil
	}
	dir, name := split(string(s.Path))
	d, done, err := t.c.hand.dir(Name(dir))
	if err != nil {
		return err
	}
	defer done()
	old, err := openRegular(d, name)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer old.Close()
	return copyXattrs(made, old, kept)
}
