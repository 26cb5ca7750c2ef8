package asuser

import (
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// unnamed is what the kernel calls owners that a user namespace has no name for
// (proc_sys_kernel(5), overflowuid).
const unnamed = 65534

// Rules reports whether an owner of files is one whose files this daemon obeys: root, and for a
// user's daemon also the user. In the namespaces of a user's daemon root has no name, and neither
// has anybody else; who owns the directories that it obeys was checked before it entered them
// (profiles.CheckOwners).
func Rules(uid uint32) bool {
	return uid == 0 || sys.Rootless() && (int(uid) == os.Geteuid() || uid == unnamed)
}
