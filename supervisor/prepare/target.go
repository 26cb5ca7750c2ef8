package prepare

import (
	"os"
	"slices"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

// A target is the path at which a tool finds the workspace. Policies name files of the workspace
// below [policy.WorkspaceDir] in any case.
type target string

// targetOf returns the target of a workspace: [policy.WorkspaceDir], or the path of the real
// directory, without links, if the policy says so. A directory that lies in a tree of the host that
// the policy mounts, such as /usr, stays at [policy.WorkspaceDir].
func targetOf(eff policy.Effective, source *os.File) target {
	if source == nil || eff.Policy().Workspace.Target != policy.TargetSame {
		return policy.WorkspaceDir
	}
	own, err := os.Readlink(fdPath(source))
	if err != nil || slices.ContainsFunc(eff.Policy().Mounts, func(m policy.Mount) bool {
		return m.Source != "" && paths.Within(m.Target, own)
	}) {
		return policy.WorkspaceDir
	}
	return target(own)
}

// ofModule returns the target for a WebAssembly module. Its view has no mount inside another one,
// so it finds a directory that lies in a mount of the policy, such as /tmp, at
// [policy.WorkspaceDir].
func (t target) ofModule(mounts policy.Mounts) target {
	if slices.ContainsFunc(mounts, func(m policy.Mount) bool {
		return paths.Within(m.Target, string(t))
	}) {
		return policy.WorkspaceDir
	}
	return t
}

// inJail returns the path in the jail of what a policy names.
func (t target) inJail(name string) string { return moved(policy.WorkspaceDir, string(t), name) }

// inPolicy returns the path by which a policy names a file of the jail.
func (t target) inPolicy(name string) string { return moved(string(t), policy.WorkspaceDir, name) }

// moved returns name with the directory to in place of from, if it is below that.
func moved(from, to, name string) string {
	rel, ok := paths.Rel(from, name)
	if !ok {
		return name
	}
	return paths.Join(to, rel)
}
