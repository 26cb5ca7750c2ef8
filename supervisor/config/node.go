package config

import (
	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// ReadNode reads what the operator lets OCI containers have, from a TOML file that nobody else can
// write and that need not exist. docs/oci.md has the keys.
//
//	profile  = "container"             # of containers that name none
//	profiles = ["container-strict"]    # that the annotation jail.profile may name
//	join     = ["network", "ipc", "uts"]  # namespaces that the containers of a pod share
//	hooks    = ["/usr/libexec/x"]      # programs of the host that config.json may have run
//
//	[[volume]]
//	source = "/var/lib/kubelet/pods"   # of which containers may have anything mounted
//	access = "write"                   # read, read+exec, write, write+exec
func ReadNode(path string) (n oci.Node, err error) {
	err = read(path, "containers", "docs/oci.md has the keys of oci.toml", func(text []byte) error {
		return syntax.Decode(path, text, &n, func() error { return oci.CheckNode(n) })
	})
	return n, err
}
