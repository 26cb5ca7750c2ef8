package view

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// A device is there for the guest by its name and by absolute links, as a character device that can
// be read and written and not be changed. Nothing else of its directory is there, and no node that
// lies in a mount can be opened, whatever its number.
func TestDevice(t *testing.T) {
	dir := files(t, map[string]string{"f": "f", "zero": "-> /dev/zero", "below": "-> /dev/zero/x",
		"tty": "-> /dev/tty"})
	if err := syscall.Mknod(filepath.Join(dir, "node"), syscall.S_IFCHR|0o666,
		int(sys.Device(1, 5))); err != nil {
		t.Fatal(err)
	}
	v, denied := newView(t, mountAt(t, "/workspace", dir, true))
	for name, minor := range map[string]uint32{"null": 3, "zero": 5} {
		if err := v.AddDevice("/dev/"+name, sys.Device(1, minor)); err != nil {
			t.Fatal(err)
		}
	}
	d := root(t, v)
	zeros := strings.Repeat("\x00", 4096)
	for _, c := range []struct {
		p, want string
		errno   Errno
	}{
		{"dev/zero", zeros, 0}, {"dev/null", "", 0}, {"workspace/zero", zeros, 0},
		{"dev/../dev/zero", zeros, 0}, {"workspace/../dev/zero", zeros, 0},
		{"dev/zero/", "", syscall.ENOTDIR}, {"dev/zero/.", "", syscall.ENOTDIR},
		{"dev/zero/..", "", syscall.ENOTDIR}, {"dev/zero/x", "", syscall.ENOTDIR},
		{"workspace/zero/", "", syscall.ENOTDIR}, {"workspace/zero/..", "", syscall.ENOTDIR},
		{"workspace/zero/x", "", syscall.ENOTDIR}, {"workspace/below", "", syscall.ENOTDIR},
		{"dev", "", syscall.EISDIR}, {"dev/full", "", syscall.EACCES}, {"dev/tty", "", syscall.EACCES},
		{"workspace/tty", "", syscall.EACCES}, {"workspace/node", "", syscall.EACCES},
	} {
		if got, e := text(d, c.p); got != c.want || e != c.errno {
			t.Errorf("%s: %.20q %v, want %.20q %v", c.p, got, e, c.want, c.errno)
		}
	}
	if got := strings.Join(*denied, "\n"); !strings.Contains(got, "read /dev/full: "+ruleOutside) ||
		!strings.Contains(got, "read /workspace/node: "+ruleSpecial) {
		t.Errorf("refused:\n%s", got)
	}
	o, e := d.Open("dev/null", How{Write: true, Create: true, Truncate: true, Append: true})
	if e != 0 || o.Stat.Mode&syscall.S_IFMT != syscall.S_IFCHR || !o.ReadOnly {
		t.Fatalf("%v: %+v", e, o)
	}
	if n, err := sys.Writev(o.FD, [][]byte{[]byte("text")}); n != 4 || err != nil {
		t.Errorf("%d bytes written: %v", n, err)
	}
	if _, err := sys.Readv(o.FD, [][]byte{make([]byte, 1)}); sys.ErrnoOf(err) != syscall.EBADF {
		t.Errorf("opened to write, it is read: %v", err)
	}
	if st, e := d.Stat("dev/null", true); e != 0 || st.Ino != o.Stat.Ino || st.Rdev != sys.Device(1,
		3) {
		t.Errorf("%v: %+v", e, st)
	}
	_ = sys.Close(o.FD)
	var kinds []uint8
	dev := sub(t, d, "dev")
	dev.Entries(2, func(e Entry) bool {
		kinds = append(kinds, e.Type)
		return true
	})
	if got := names(t,
		dev); got != ". .. null zero" || string(kinds) != string([]uint8{typeDevice, typeDevice}) {
		t.Errorf("listed: %s, types %v", got, kinds)
	}
	if got, e := text(dev, "zero"); got != zeros || e != 0 {
		t.Errorf("from its directory: %v", e)
	}
}

// What changes a name or a node of the view is refused for a device.
func TestDeviceStays(t *testing.T) {
	dir := files(t, map[string]string{"f": "f"})
	v, _ := newView(t, mountAt(t, "/workspace", dir, true))
	if err := v.AddDevice("/dev/null", sys.Device(1, 3)); err != nil {
		t.Fatal(err)
	}
	d := root(t, v)
	_, exclusive := d.Open("dev/null", How{Write: true, Create: true, Exclusive: true})
	_, directory := d.Open("dev/null", How{Read: true, Directory: true})
	_, created := d.Open("dev/new", How{Write: true, Create: true})
	_, link := d.Readlink("dev/null", make([]byte, 1))
	for what, c := range map[string]struct{ got, want Errno }{
		"exclusive": {exclusive, syscall.EEXIST}, "directory": {directory, syscall.ENOTDIR},
		"create": {created, syscall.EACCES}, "readlink": {link, syscall.EINVAL},
		"unlink": {d.Unlink("dev/null"), syscall.EBUSY}, "rmdir": {d.Rmdir("dev/null"), syscall.EBUSY},
		"mkdir":   {d.Mkdir("dev/null"), syscall.EEXIST},
		"rename":  {d.Rename("dev/null", d, "workspace/n"), syscall.EBUSY},
		"replace": {d.Rename("workspace/f", d, "dev/null"), syscall.EBUSY},
		"link":    {d.Link("dev/null", d, "workspace/n"), syscall.EBUSY},
		"symlink": {d.Symlink("f", "dev/null"), syscall.EEXIST},
		"times":   {d.SetTimes("dev/null", true, &[2]sys.Timespec{}), syscall.EACCES},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
	if e := func() Errno { _, e := v.Preopen("/dev/null"); return e }(); e != syscall.ENOTDIR {
		t.Errorf("as a working directory: %v", e)
	}
}

// AddDevice refuses what is not the device that it should be.
func TestNoDevice(t *testing.T) {
	dir := files(t, map[string]string{"f": "f", "l": "-> /dev/null"})
	v, _ := newView(t, mountAt(t, "/workspace", files(t, nil), true))
	for p, number := range map[string]uint64{"/dev/null": sys.Device(1, 5),
		dir + "/f": sys.Device(1, 3), dir + "/l": sys.Device(1, 3), dir + "/none": sys.Device(1,
			3)} {
		if err := v.AddDevice(p, number); err == nil {
			t.Errorf("%s is taken for device %x", p, number)
		}
	}
	if err := v.AddDevice("/workspace/null", sys.Device(1, 3)); err == nil {
		t.Error("a device lies in a mount")
	}
}
