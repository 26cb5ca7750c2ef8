package jail

import (
	"fmt"
	"path"
	"reflect"
	"slices"
)

// A jail can be made before it is requested, since nearly all kernel settings of a run equal those
// of the next one. The settings that differ are the identity of the jail (its name, its cgroup and
// its range of host ids), which a prewarmed jail has from the start, and those that only the host
// reads.

// Elsewhere returns p for another jail with the same kernel settings, which has a name, a cgroup
// and a range of ids of its own.
func (p Plan) Elsewhere(id ID, base uint32) Plan {
	leaf := leafName(id, base)
	slice := path.Dir(p.Cgroup.Path)
	if p.Ceiling != nil && p.Ceiling.Cgroup != nil {
		slice = path.Dir(p.Ceiling.Cgroup.Path)
		c, g := *p.Ceiling, *p.Ceiling.Cgroup
		g.Path = path.Join(slice, leaf+CeilingGroup)
		c.Cgroup, p.Ceiling = &g, &c
		slice = g.Path
	}
	p.ID, p.Cgroup.Path = id, path.Join(slice, leaf)
	p.IDs.Base, p.IDs.Owner, p.IDs.Extra = base, base, slices.Clone(p.IDs.Extra)
	for i := range p.IDs.Extra {
		p.IDs.Extra[i].Host = base + BaseSize - 1
	}
	return p
}

// leafName returns the name of a jail's cgroup. The base makes it unique: an ID can be requested
// twice, also of two daemons, but the range of ids belongs to one live jail.
func leafName(id ID, base uint32) string {
	return fmt.Sprintf("%s.%d", id, (base-FirstBase)/BaseSize)
}

// Standing returns the part of the plan that the kernel gets before the run is asked for, without
// the jail's ID, ids and paths. Two plans with the same Standing can be carried out by the same
// prewarmed jail. It leaves out what the host's side alone looks at (policy, layers, fetches, what
// is watched), the invocation, and which directories the workspace
// and the state of an agent are: both are attached to the jail later.
func (p Plan) Standing() Plan {
	p = p.Elsewhere("", FirstBase)
	p.Policy, p.Layers, p.Fetch, p.Limits, p.FileEvents = "", nil, nil, Limits{}, ""
	p.Command = Command{Runner: p.Command.Runner, Terminal: p.Command.Terminal}
	if p.Workspace != nil {
		w := *p.Workspace
		w.Source, w.Bytes, w.Files = "", 0, 0
		p.Workspace = &w
	}
	p.Mounts = slices.Clone(p.Mounts)
	for i := range p.Mounts {
		if p.Mounts[i].Kind == MountState {
			p.Mounts[i].Source = ""
		}
	}
	if p.Ceiling != nil {
		c := *p.Ceiling
		c.Policy = ""
		p.Ceiling = &c
	}
	return p
}

// In returns the plan of this run for the existing jail that was made by the plan standing. It
// reports false if the kernel settings of the two plans differ.
func (p Plan) In(standing Plan) (Plan, bool) {
	if !reflect.DeepEqual(p.Standing(), standing.Standing()) {
		return Plan{}, false
	}
	return p.Elsewhere(standing.ID, standing.IDs.Base).named(p.ID), true
}

// named returns p with the ID of the run. The kernel does not know the ID.
func (p Plan) named(id ID) Plan {
	p.ID = id
	return p
}
