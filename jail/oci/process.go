package oci

import (
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// NarrowProcess takes from a process of the container what no process of a jail has: capabilities,
// and the way to new privileges. It returns what was dropped, or an error for a process that cannot
// be started.
func (p Plan) NarrowProcess(process *specs.Process) (dropped []string, err error) {
	switch {
	case len(process.Args) == 0 || process.Args[0] == "":
		return nil, errors.New("process.args is empty")
	case !cleanPath(process.Cwd):
		return nil, fmt.Errorf("process.cwd %q is no absolute path", process.Cwd)
	}
	for _, r := range process.Rlimits {
		if _, ok := rlimitNames[r.Type]; !ok {
			return nil, fmt.Errorf("process.rlimits: %q is not supported", r.Type)
		}
	}
	if c := process.Capabilities; c != nil {
		dropped = slices.Concat(c.Bounding, c.Effective, c.Permitted, c.Inheritable, c.Ambient)
		slices.Sort(dropped)
		dropped = slices.Compact(dropped)
		for i, name := range dropped {
			dropped[i] = "capability " + name
		}
	}
	process.Capabilities = &specs.LinuxCapabilities{}
	process.NoNewPrivileges = true
	return dropped, nil
}

// rlimitNames are the names of resources, as jail has them.
var rlimitNames = map[string]string{
	"RLIMIT_AS": "as", "RLIMIT_CORE": "core", "RLIMIT_CPU": "cpu", "RLIMIT_DATA": "data",
	"RLIMIT_FSIZE": "fsize", "RLIMIT_LOCKS": "locks", "RLIMIT_MEMLOCK": "memlock",
	"RLIMIT_MSGQUEUE": "msgqueue", "RLIMIT_NICE": "nice", "RLIMIT_NOFILE": "nofile",
	"RLIMIT_NPROC": "nproc", "RLIMIT_RSS": "rss", "RLIMIT_RTPRIO": "rtprio",
	"RLIMIT_RTTIME": "rttime", "RLIMIT_SIGPENDING": "sigpending", "RLIMIT_STACK": "stack",
}

// An Rlimit bounds a resource of a process (setrlimit(2)).
type Rlimit struct {
	Name string `json:"name"`
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// ProcessRlimits returns the limits of a process of the container: those that it asks for, and no
// more than the plan's.
func (p Plan) ProcessRlimits(process *specs.Process) []Rlimit {
	var all []Rlimit
	for _, r := range process.Rlimits {
		all = append(all, Rlimit{Name: rlimitNames[r.Type], Soft: r.Soft, Hard: r.Hard})
	}
	for _, r := range p.Rlimits {
		i := slices.IndexFunc(all, func(x Rlimit) bool { return x.Name == r.Name })
		if i < 0 {
			all = append(all, Rlimit{Name: r.Name, Soft: r.Value, Hard: r.Value})
			continue
		}
		all[i].Soft, all[i].Hard = min(all[i].Soft, r.Value), min(all[i].Hard, r.Value)
	}
	return all
}
