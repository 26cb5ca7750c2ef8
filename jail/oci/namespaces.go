package oci

import (
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/policy"
)

// joinable are the kinds of namespaces that the containers of a pod share.
var joinable = []specs.LinuxNamespaceType{specs.NetworkNamespace, specs.IPCNamespace,
	specs.UTSNamespace}

// needed are the kinds of namespaces that every container has. One that config.json leaves out
// would be the host's.
var needed = []specs.LinuxNamespaceType{specs.MountNamespace, specs.PIDNamespace,
	specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace}

// namespaces refuses the host's namespaces, and those of others that neither the operator nor the
// ceiling lets containers share.
func (g *granter) namespaces() error {
	l := g.plan.Spec.Linux
	has := map[specs.LinuxNamespaceType]bool{}
	for _, ns := range l.Namespaces {
		if has[ns.Type] {
			return fmt.Errorf("namespace %s is in config.json twice", ns.Type)
		}
		has[ns.Type] = true
		switch {
		case ns.Type == specs.TimeNamespace:
			return errors.New("namespace time of config.json is not supported")
		case ns.Path == "":
		case !slices.Contains(joinable, ns.Type):
			return fmt.Errorf("namespace %s of config.json: a container has one of its own, and "+
				"joins none by path (%s)", ns.Type, ns.Path)
		case !slices.Contains(g.node.Join, string(ns.Type)):
			return fmt.Errorf("namespace %s of config.json: join of the operator's oci.toml does "+
				"not have it (%s)", ns.Type, ns.Path)
		case ns.Type == specs.NetworkNamespace:
			if err := g.foreignNetwork(); err != nil {
				return err
			}
		}
	}
	for _, kind := range needed {
		if !has[kind] {
			return fmt.Errorf("namespace %s is missing in config.json: the container would have "+
				"the host's", kind)
		}
	}
	if !has[specs.CgroupNamespace] {
		l.Namespaces = append(slices.Clone(l.Namespaces),
			specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	if !has[specs.UserNamespace] {
		if len(l.UIDMappings)+len(l.GIDMappings) > 0 {
			return errors.New("config.json maps ids and has no namespace user")
		}
		g.warn("the container has the user ids of the host: its user 0 is root there, without " +
			"capabilities")
	}
	return nil
}

// foreignNetwork refuses a network that the engine made where the ceiling bounds what may be
// fetched: the fetch proxy does not see what goes over it.
func (g *granter) foreignNetwork() error {
	ceiling, _ := g.eff.Ceiling()
	if !policy.Top().Fetch.LessEq(ceiling.Fetch) {
		return errors.New("namespace network of config.json: the ceiling bounds what may be " +
			"fetched, which jail cannot hold in a network that the engine made")
	}
	g.warn("the container is in a network that its engine made: jail's fetch proxy does not see " +
		"what goes over it")
	return nil
}

func (g *granter) warn(text string) { g.plan.Warnings = append(g.plan.Warnings, text) }
