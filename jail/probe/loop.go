package probe

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

const loopControl = "/dev/loop-control"

// loopDevices attaches a loop device to an in-memory file: the changes of a shadow are in a mounted
// file. It does not rely on /dev/loop-control, which the cgroup of a service can allow while it
// refuses the devices.
func loopDevices() Finding {
	if f, other := onlyRoot(loopName); other {
		return f
	}
	return loopFinding(tryLoop())
}

const loopName = "loop devices"

func loopFinding(err error) Finding {
	atControl := isAt(err, loopControl)
	switch {
	case err == nil:
		return yes(loopName, "%s, and one was attached", loopControl)
	case atControl && errors.Is(err, fs.ErrNotExist):
		return no(loopName, "modprobe loop, or give the container "+loopControl+" and /dev/loop*",
			"there is no %s", loopControl)
	case !atControl && errors.Is(err, syscall.EPERM):
		return no(loopName,
			"modprobe loop, then systemctl restart jaild: a service is refused the devices "+
				"of a driver that was loaded after it started; or allow them in the service's "+
				"DeviceAllow=", "%v", err)
	}
	return no(loopName, "give this process "+loopControl+" and /dev/loop*", "%v", err)
}

func tryLoop() error {
	image, err := sys.ScratchFile("probe")
	if err != nil {
		return err
	}
	defer image.Close()
	if err := image.Truncate(4096); err != nil {
		return err
	}
	device, err := sys.AttachLoop(image, true)
	if err != nil {
		return err
	}
	return device.Close()
}

// isAt reports whether err is about the file at path.
func isAt(err error, path string) bool {
	var at *os.PathError
	return errors.As(err, &at) && at.Path == path
}

// mkfsPaths are the only places of mkfs.ext4 that jail trusts: anybody can change a PATH.
var mkfsPaths = []string{"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", "/usr/bin/mkfs.ext4",
	"/bin/mkfs.ext4"}

// mkfs finds the program that makes the file systems of shadows.
func mkfs() Finding {
	const name = "mkfs.ext4"
	for _, p := range mkfsPaths {
		if _, err := os.Stat(p); err == nil {
			return yes(name, "%s", p)
		}
	}
	return no(name, "install e2fsprogs", "it is nowhere that programs of the system are")
}
