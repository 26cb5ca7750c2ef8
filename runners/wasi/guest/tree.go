package guest

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"syscall"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/internal/sys"
	"github.com/jail-sandbox/jail/runners/wasi/guest/preview1"
	"github.com/jail-sandbox/jail/runners/wasi/guest/view"
)

// tree is the guest's view and its preopened directories.
type tree struct {
	view *view.View
	dirs []preview1.Preopen
}

// newTree opens the mounts and the preopened directories. A guest without mounts and devices has
// none.
func newTree(inv runners.Invocation, fallback runners.Layout, denials *runners.Denials) (*tree,
	error) {
	v, err := View(inv, recorder{denials})
	if err != nil {
		return nil, err
	}
	t := &tree{view: v}
	if len(inv.Mounts)+len(inv.Devices) == 0 {
		return t, nil
	}
	if err := t.preopen(inv, cmp.Or(inv.Layout, fallback)); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// View returns the file system of an invocation as a guest sees it. rec gets the refusals.
func View(inv runners.Invocation, rec view.Recorder) (*view.View, error) {
	opened, err := openMounts(inv.Mounts)
	if err != nil {
		return nil, err
	}
	v, err := view.New(opened, rec)
	if err != nil {
		return nil, err
	}
	if err := addDevices(v, inv.Devices); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

// deviceDir is where the devices are, in the jail and for the guest.
const deviceDir = "/dev"

// deviceNumbers are the devices that a guest may have (the kernel's devices.txt).
var deviceNumbers = map[string]uint64{"null": sys.Device(1, 3), "zero": sys.Device(1, 5),
	"full": sys.Device(1, 7), "random": sys.Device(1, 8), "urandom": sys.Device(1, 9)}

func addDevices(v *view.View, names []string) error {
	for _, name := range names {
		number, ok := deviceNumbers[name]
		if !ok {
			return fmt.Errorf("device %q: not one that a module may have", name)
		}
		if err := v.AddDevice(path.Join(deviceDir, name), number); err != nil {
			return err
		}
	}
	return nil
}

func openMounts(mounts []runners.Mount) ([]view.Mount, error) {
	var out []view.Mount
	fail := func(err error) ([]view.Mount, error) {
		for _, m := range out {
			// The first error is the cause.
			_ = sys.Close(m.FD)
		}
		return nil, err
	}
	for _, m := range mounts {
		h, err := hidden(m.Hide)
		if err != nil {
			return fail(fmt.Errorf("mount %s: %w", m.Path, err))
		}
		fd, err := sys.OpenDir(cmp.Or(m.Source, m.Path))
		if sys.ErrnoOf(err) == syscall.ENOTDIR {
			// WASI has directories alone to give: a file that a program of the host gets is not in
			// a module's view
			continue
		}
		if err != nil {
			return fail(fmt.Errorf("mount %s: %w", m.Path, err))
		}
		out = append(out, view.Mount{Path: m.Path, FD: fd, Write: m.Write, Hidden: h,
			Whole: m.Whole})
	}
	return out, nil
}

// preopen opens the directories of a layout. In LayoutPreopens the order is wasmtime's: of several
// directories that match a path, C libraries take the last one, so "." has to be last.
func (t *tree) preopen(inv runners.Invocation, layout runners.Layout) error {
	cwd, err := openCwd(t.view, inv.Cwd)
	if err != nil {
		return err
	}
	if layout == runners.LayoutWorking {
		return t.add("/", cwd, 0)
	}
	if layout == runners.LayoutRooted {
		_ = cwd.Close()
		d, e := t.view.Root()
		return t.add("/", d, e)
	}
	for _, m := range inv.Mounts {
		if !t.view.Mounted(m.Path) {
			continue
		}
		d, e := t.view.Preopen(m.Path)
		if err := t.add(m.Path, d, e); err != nil {
			// The first error is the cause.
			_ = cwd.Close()
			return err
		}
	}
	if len(inv.Devices) > 0 {
		d, e := t.view.Preopen(deviceDir)
		if err := t.add(deviceDir, d, e); err != nil {
			// The first error is the cause.
			_ = cwd.Close()
			return err
		}
	}
	if inv.Cwd == "" || inv.Cwd == "/" {
		_ = cwd.Close()
		// The root is no mount, and this layout has no directory for it.
		return nil
	}
	return t.add(".", cwd, 0)
}

// openCwd opens the working directory of an invocation. The error is a *runners.StartError.
func openCwd(v *view.View, dir string) (*view.Dir, error) {
	dir = cmp.Or(dir, "/")
	d, e := v.Preopen(dir)
	if e != 0 {
		return nil, &runners.StartError{Op: runners.OpCwd, Path: dir, Errno: int(e), Err: e}
	}
	return d, nil
}

// CheckCwd returns an error if dir cannot be a working directory in the view, as for a guest.
func CheckCwd(v *view.View, dir string) error {
	d, err := openCwd(v, dir)
	if err == nil {
		_ = d.Close()
	}
	return err
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

// recorder implements view.Recorder and adds refusals to denials.
type recorder struct{ denials *runners.Denials }

func (r recorder) Denied(what, rule string) { r.denials.Add(preview1.Layer, what, rule) }

// hidden compiles the hide patterns of a mount. Without patterns nothing is hidden.
func hidden(patterns []string) (view.Hidden, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	if err := policy.CheckNames(patterns); err != nil {
		return nil, err
	}
	return policy.Hidden(patterns), nil
}
