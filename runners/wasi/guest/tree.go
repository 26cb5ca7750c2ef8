package guest

import (
	"cmp"
	"fmt"
	"io/fs"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/internal/sys"
	"github.com/jail-sandbox/jail/runners/wasi/guest/preview1"
	"github.com/jail-sandbox/jail/runners/wasi/guest/view"
)

// tree is the guest's view, and the directories that it has open at its start.
type tree struct {
	view *view.View
	dirs []preview1.Preopen
}

// newTree opens the mounts. A guest without mounts has no directory at all.
func newTree(inv runners.Invocation, fallback runners.Layout, denials *runners.Denials) (*tree, error) {
	v, err := View(inv.Mounts, recorder{denials})
	if err != nil {
		return nil, err
	}
	t := &tree{view: v}
	if len(inv.Mounts) == 0 {
		return t, nil
	}
	if err := t.preopen(inv, cmp.Or(inv.Layout, fallback)); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// View opens mounts for who looks at them as a guest does, with the same refusals.
func View(mounts []runners.Mount, rec view.Recorder) (*view.View, error) {
	opened, err := openMounts(mounts)
	if err != nil {
		return nil, err
	}
	return view.New(opened, rec)
}

func openMounts(mounts []runners.Mount) ([]view.Mount, error) {
	var out []view.Mount
	fail := func(err error) ([]view.Mount, error) {
		for _, m := range out {
			_ = sys.Close(m.FD) // err is the one that matters
		}
		return nil, err
	}
	for _, m := range mounts {
		h, err := hidden(m.Hide)
		if err != nil {
			return fail(fmt.Errorf("mount %s: %w", m.Path, err))
		}
		fd, err := sys.OpenDir(cmp.Or(m.Source, m.Path))
		if sys.ErrnoOf(err) == sys.ENOTDIR {
			continue // WASI has directories alone to give: a file that a program of the host gets is not in a module's view
		}
		if err != nil {
			return fail(fmt.Errorf("mount %s: %w", m.Path, err))
		}
		out = append(out, view.Mount{Path: m.Path, FD: fd, Write: m.Write, Hidden: h})
	}
	return out, nil
}

// preopen opens what the layout says. In the second one the order is that of
// wasmtime and of what C libraries make of it: among directories that fit a path
// equally well the last is taken, so "." has to be last.
func (t *tree) preopen(inv runners.Invocation, layout runners.Layout) error {
	if layout == runners.LayoutRooted {
		d, e := t.view.Root()
		return t.add("/", d, e)
	}
	if layout == runners.LayoutWorking {
		d, e := t.view.Preopen(cmp.Or(inv.Cwd, "/"))
		return t.add("/", d, e)
	}
	for _, m := range inv.Mounts {
		if !t.view.Mounted(m.Path) {
			continue
		}
		d, e := t.view.Preopen(m.Path)
		if err := t.add(m.Path, d, e); err != nil {
			return err
		}
	}
	if inv.Cwd == "" || inv.Cwd == "/" {
		return nil // the root is no mount, and this layout has no directory for it
	}
	d, e := t.view.Preopen(inv.Cwd)
	return t.add(".", d, e)
}

func (t *tree) add(name string, d *view.Dir, e view.Errno) error {
	if e != 0 {
		return &fs.PathError{Op: "open", Path: name, Err: e}
	}
	t.dirs = append(t.dirs, preview1.Preopen{Name: name, Dir: d})
	return nil
}

func (t *tree) close() {
	for _, d := range t.dirs {
		_ = d.Dir.Close()
	}
	t.view.Close()
}

// recorder puts the refusals of the view among those of the process.
type recorder struct{ denials *runners.Denials }

func (r recorder) Denied(what, rule string) { r.denials.Add(preview1.Layer, what, rule) }

// hidden compiles the patterns of a mount; none hide nothing.
func hidden(patterns []string) (view.Hidden, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	if err := policy.CheckNames(patterns); err != nil {
		return nil, err
	}
	return policy.Hidden(patterns), nil
}
