package probe

import (
	"fmt"
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// leastRoom is the size in bytes of the shadow of one run with the limits of the shipped profiles.
const leastRoom = 512 << 20

// RoomName is the name of Room's finding. Room probes no layer: the room that a run needs depends
// on its limits.
const RoomName = "free room"

// room probes the free room of the file system of dir.
func room(dir string) Finding {
	const name = RoomName
	f, err := os.Open(dir)
	if err != nil {
		return unknown(name, "%v", err)
	}
	defer f.Close()
	free, err := sys.FreeBytes(f)
	switch {
	case err != nil:
		return unknown(name, "%v", err)
	case free < leastRoom:
		return no(name, fmt.Sprintf("make room on it, or take less with --limit workspace=%dMiB",
			max(free>>21, 1)),
			"%d MiB on the file system of %s, and a shadow may take %d", free>>20, dir,
			leastRoom>>20)
	}
	return yes(name, "%d MiB on the file system of %s", free>>20, dir)
}
