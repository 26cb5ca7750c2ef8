package prepare

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

// A view is what a program would find at the paths of a jail, of the mounts that its policy makes.
// What it opens is the host's.
type view struct {
	mounts    []viewed
	workspace target
}

// viewed is a mount of a view.
type viewed struct {
	target, source string
	exec           bool
	// image says that it is the root of an image, which the daemon alone can enter.
	image bool
	// named says that the policy names the source, as the caller may have written it.
	named bool
}

// with calls f with the rights that the mount is looked at with. The caller's are those of this
// thread alone, so that another goroutine has the daemon's.
func (x viewed) with(f func()) {
	if !x.image {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// A place is where a path of the jail leads.
type place struct {
	host  string
	mount string // its target
	exec  bool
	in    viewed
}

func (f *finder) view() *view {
	v, pol := &view{workspace: targetOf(f.policy, f.source)}, f.policy.Policy()
	if f.source != nil {
		m := viewed{target: policy.WorkspaceDir, source: fdPath(f.source),
			exec: jail.AllMayRun(pol, policy.WorkspaceDir)}
		v.mounts = append(v.mounts, m)
		// Patterns of the policy name the first one in any case.
		if m.target = string(v.workspace); m.target != policy.WorkspaceDir {
			v.mounts = append(v.mounts, m)
		}
	}
	if f.image != nil {
		v.mounts = append(v.mounts, viewed{target: "/", source: f.image.held.Root, exec: true, image: true})
	}
	for _, m := range pol.Mounts {
		if f.image != nil && jail.OfHost(m) {
			continue
		}
		if m.Source != "" && m.Target != "" {
			v.mounts = append(v.mounts, viewed{target: m.Target, source: m.Source,
				exec: m.Access&policy.Exec != 0, named: true})
		}
	}
	return v
}

// at returns the mount that holds a path, and the path below it. ok is false where no mount does.
func (v *view) at(p string) (m viewed, rel string, ok bool) {
	for _, x := range v.mounts {
		below, holds := paths.Rel(x.target, p)
		if holds && (!ok || len(x.target) > len(m.target)) {
			m, rel, ok = x, below, true
		}
	}
	return m, rel, ok
}

// leads reports whether a path is a directory only because a mount lies below it.
func (v *view) leads(p string) bool {
	return slices.ContainsFunc(v.mounts, func(x viewed) bool { return paths.Within(p, x.target) })
}

const maxLinks = 40 // as the kernel

// A strayError is returned for a link that leads to a path which the jail does not show.
type strayError struct{ to string }

func (e *strayError) Error() string { return "a link to " + e.to + ", which is not in the jail" }
func (e *strayError) Unwrap() error { return fs.ErrNotExist }

// find resolves an absolute path of the jail, link by link: a link leads where it would lead in the
// jail.
func (v *view) find(p string) (place, error) {
	fail := func(err error) (place, error) {
		return place{}, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	current, rest, found, links := "/", strings.Split(p, "/"), place{}, 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		if current = path.Join(current, name); name == ".." {
			continue
		}
		m, rel, ok := v.at(current)
		if !ok {
			if found = (place{}); !v.leads(current) && links > 0 {
				return fail(&strayError{path.Join(append([]string{current}, rest...)...)})
			} else if !v.leads(current) {
				return fail(fs.ErrNotExist)
			}
			continue
		}
		look := os.Lstat
		if rel == "" {
			// what is mounted is what its source leads to
			look = os.Stat
		}
		found = place{path.Join(m.source, rel), m.target, m.exec, m}
		if rel == "" {
			found.host = m.source
		}
		var info fs.FileInfo
		var to string
		var err error
		m.with(func() {
			if m.named {
				err = asuser.CheckNamed(m.source)
			}
			if err != nil {
				return
			}
			if info, err = look(found.host); err == nil && info.Mode()&os.ModeSymlink != 0 {
				to, err = os.Readlink(found.host)
			}
		})
		if err != nil {
			return fail(causeOf(err))
		}
		if info.Mode()&os.ModeSymlink == 0 {
			continue
		}
		if links++; links > maxLinks {
			return fail(syscall.ELOOP)
		}
		if current = path.Dir(current); path.IsAbs(to) {
			current = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	if found.host == "" {
		return fail(syscall.EISDIR)
	}
	return found, nil
}

// open opens what is at a path of the jail, for reading. It waits for nobody.
func (v *view) open(p string) (place, *os.File, error) {
	at, err := v.find(p)
	if err != nil {
		return at, nil, err
	}
	var f *os.File
	at.in.with(func() {
		if at.in.named {
			f, err = asuser.Named(at.host)
			return
		}
		f, err = os.OpenFile(at.host, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	})
	if err != nil {
		return at, nil, &fs.PathError{Op: "open", Path: p, Err: causeOf(err)}
	}
	return at, f, nil
}

func causeOf(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
