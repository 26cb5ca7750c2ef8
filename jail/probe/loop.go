package probe

import (
	"errors"
	"io/fs"
	"os"
)

const loopControl = "/dev/loop-control"

// LoopDevices opens what loop devices are made with: the changes of a shadow lie in a file that is mounted.
func LoopDevices() Finding {
	const name = "loop devices"
	f, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close()
		return yes(name, "%s", loopControl)
	case errors.Is(err, fs.ErrNotExist):
		return no(name, "modprobe loop, or give the container "+loopControl+" and /dev/loop*", "there is no %s", loopControl)
	case os.Geteuid() != 0:
		return unknown(name, "only root can try")
	}
	return no(name, "give this process "+loopControl, "%v", err)
}
