package view

import (
	"fmt"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// AddDevice lets the guest open the character device at the path p of the jail, by the same path.
// number is the device that has to be there (makedev(3)).
func (v *View) AddDevice(p string, number uint64) error {
	n, err := v.plant(p)
	if err != nil {
		return err
	}
	n.device = &sys.Stat{Mode: sys.SIFCHR, Rdev: number}
	fd, e := n.openDevice(sys.OPath | sys.ONofollow)
	if e != 0 {
		return fmt.Errorf("device %s: %w", p, e)
	}
	defer sys.Close(fd)
	if err := sys.Fstat(fd, n.device); err != nil {
		return fmt.Errorf("device %s: %w", p, err)
	}
	return nil
}

// openDevice opens the jail's node. Each open looks at its number.
func (n *node) openDevice(flags uint64) (int, Errno) {
	fd, err := sys.Openat2(sys.AtFDCWD, n.path(), flags, 0, sys.ResolveNoSymlinks)
	if err != nil {
		return -1, sys.ErrnoOf(err)
	}
	var st sys.Stat
	err = sys.Fstat(fd, &st)
	if err == nil && st.Mode&sys.SIFMT == sys.SIFCHR && st.Rdev == n.device.Rdev {
		return fd, 0
	}
	_ = sys.Close(fd)
	return -1, firstError(sys.ErrnoOf(err), sys.ENXIO)
}

// openedDevice opens a device for the guest. It ignores flags for files, such as truncation. Reads
// wait, as those of a program of the host do. The times of the node cannot be changed.
func (d *Dir) openedDevice(n *node, p string, how How) (Opened, Errno) {
	switch {
	case how.Create && how.Exclusive:
		return Opened{}, sys.EEXIST
	case how.Directory:
		return Opened{}, sys.ENOTDIR
	}
	fd, e := n.openDevice(How{Read: how.Read, Write: how.Write}.flags() &^ sys.ONonblock)
	if e == sys.ENXIO {
		return Opened{}, d.refuse(sys.EACCES, how.verb(), p, ruleSpecial)
	}
	return Opened{FD: fd, Stat: *n.device, ReadOnly: true}, e
}
