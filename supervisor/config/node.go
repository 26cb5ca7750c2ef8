package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/problem"
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
	text, err := profiles.ReadTrusted(path)
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if problem.IsShort(err) {
		return n, problem.New(problem.Failed, "settings of containers: %w", err)
	}
	if err == nil {
		n, err = parseNode(path, text)
	}
	if err != nil {
		return n, problem.New(problem.Usage, "settings of containers: %w", err).
			WithHint("docs/oci.md has the keys of oci.toml")
	}
	return n, nil
}

func parseNode(path string, text []byte) (n oci.Node, err error) {
	values, err := syntax.Plain(path, text)
	if err != nil {
		return n, err
	}
	plain, err := json.Marshal(values)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(plain))
		d.DisallowUnknownFields()
		err = d.Decode(&n)
	}
	if err == nil {
		err = oci.CheckNode(n)
	}
	if err != nil {
		return n, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "json: "))
	}
	return n, nil
}
