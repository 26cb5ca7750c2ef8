package probe

import (
	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// ids is the range of host ids that the attempts use: the last one that jails are given.
var ids = []sys.IDMap{{Inside: 0, Host: lastBase, Size: jail.BaseSize}}

const lastBase = jail.FirstBase + (jail.Bases-1)*jail.BaseSize

// UserNamespace makes a user namespace with ids of a jail.
func UserNamespace() Finding {
	const name = "user namespaces"
	if f, other := onlyRoot(name); other {
		return f
	}
	ns, err := sys.NewUserNS(ids, ids)
	if err != nil {
		return no(name, "check the sysctls user.max_user_namespaces and kernel.unprivileged_userns_clone", "%s", short(err))
	}
	ns.Close()
	return yes(name, "one was made, with 65536 ids from %d", lastBase)
}
