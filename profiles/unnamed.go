package profiles

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// nobody is what the kernel calls owners that a user namespace has no name for (proc_sys_kernel(5),
// overflowuid).
const nobody = 65534

// oneID reports whether this process is in a user namespace that has names for its own user alone,
// as a user's daemon is. Root's files are nobody's then, and so are everybody else's: CheckOwners,
// asked before from outside, tells them apart.
var oneID = sync.OnceValue(func() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(text))
	return err == nil && os.Geteuid() != 0 && len(fields) == 3 && fields[2] == "1"
})

func unnamed(uid uint32) bool { return uid == nobody && oneID() }

// CheckOwners refuses a directory that somebody other than root and the caller could change, or put
// another in the place of. One that is not there is no error.
func CheckOwners(dir string) error {
	root, err := openDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return root.Close()
}
