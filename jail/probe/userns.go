package probe

import (
	"errors"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// ids is the range of host ids of the attempts: the last range that jails get.
var ids = []sys.IDMap{{Inside: 0, Host: lastBase, Size: jail.BaseSize}}

const lastBase = jail.FirstBase + (jail.Bases-1)*jail.BaseSize

// UserNamespace makes a user namespace with the ids of a jail.
func UserNamespace() Finding {
	const name = "user namespaces"
	if forUser() {
		return userNamespaceOfUser(name)
	}
	ns, err := sys.NewUserNS(sys.UserNS{UIDs: ids, GIDs: ids})
	if err != nil {
		return no(name, usernsFix(err), "%s", short(err))
	}
	ns.Close()
	return yes(name, "one was made, with 65536 ids from %d", lastBase)
}

// usernsFix returns what to do, by the errno of each cause that can refuse user namespaces
// (clone(2)).
func usernsFix(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "raise the sysctl user.max_user_namespaces: it is 0, or as many exist"
	case errors.Is(err, syscall.EACCES):
		return "let jaild make them: a security module forbids it, under AppArmor a profile " +
			"without \"userns,\""
	case errors.Is(err, syscall.EINVAL):
		return "boot a kernel with CONFIG_USER_NS"
	}
	return "check the sysctls user.max_user_namespaces and kernel.unprivileged_userns_clone, and " +
		"what a container's filter or AppArmor (kernel.apparmor_restrict_unprivileged_userns) " +
		"forbids"
}
