package probe

import (
	"fmt"
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// leastRoom is what the shadow of one run may take by the limits that profiles have, in bytes.
const leastRoom = 512 << 20

// RoomName is the name of what Room finds. It is no layer: the room that a run needs depends on its own limits.
const RoomName = "free room"

// Room asks for the free room of the file system that dir is on.
func Room(dir string) Finding {
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
		return no(name, fmt.Sprintf("make room on it, or take less with --limit workspace=%dMiB", max(free>>21, 1)),
			"%d MiB on the file system of %s, and a shadow may take %d", free>>20, dir, leastRoom>>20)
	}
	return yes(name, "%d MiB on the file system of %s", free>>20, dir)
}
