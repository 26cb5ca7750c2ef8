// Package oci turns the config.json of an OCI container into a Plan: the requests of config.json
// that a policy grants, and jail's own layers around the container's process. It only computes.
// jaild makes a Plan, so that the host's ceiling holds whatever a container engine asks for, and
// package runc starts the container.
package oci

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/policy"
)

// ProfileAnnotation is the annotation of config.json that names the profile of a container.
const ProfileAnnotation = "jail.profile"

// planVersion is the version of the Plan's JSON form.
const planVersion = 1

// A Node holds the operator's settings for the containers of a host (oci.toml).
type Node struct {
	// Profile is the profile of containers that name none.
	Profile string `json:"profile"`
	// Profiles are further profiles that a container may name.
	Profiles []string `json:"profiles"`
	// Join lists the kinds of namespaces that containers may join by path: network, ipc, uts.
	Join []string `json:"join"`
	// Hooks lists the paths of host programs that config.json may use as hooks.
	Hooks []string `json:"hooks"`
	// Volumes are host directories that containers may mount at any path.
	Volumes []Volume `json:"volume"`
}

// A Volume grants rights on a tree of the host.
type Volume struct {
	// Absolute path of the host.
	Source string `json:"source"`
	// A word of policy.RightsWords that needs a source.
	Access string `json:"access"`
}

// CheckNode returns an error for invalid settings: unknown namespaces or rights, or relative paths.
func CheckNode(n Node) error {
	for _, kind := range n.Join {
		if !slices.Contains(joinable, specs.LinuxNamespaceType(kind)) {
			return fmt.Errorf("join: %q is no kind of namespace that containers may share: %v", kind,
				joinable)
		}
	}
	for _, h := range n.Hooks {
		if !cleanPath(h) {
			return fmt.Errorf("hooks: %q is no absolute path of a program", h)
		}
	}
	for _, v := range n.Volumes {
		if !cleanPath(v.Source) {
			return fmt.Errorf("volume: source %q is no absolute path", v.Source)
		}
		if _, err := rightsOf(v); err != nil {
			return err
		}
	}
	return nil
}

func rightsOf(v Volume) (policy.Rights, error) {
	for _, r := range []policy.Rights{policy.Read, policy.Read | policy.Exec,
		policy.Read | policy.Write, policy.AllRights &^ (policy.Tmpfs | policy.Cache)} {
		if r.String() == v.Access {
			return r, nil
		}
	}
	return 0, fmt.Errorf("volume %s: access %q: want read, read+exec, write or write+exec", v.Source,
		v.Access)
}

// A Request is a container engine's request for a container.
type Request struct {
	// Container is the id that the engine gave the container.
	Container string `json:"container"`
	// Bundle is the directory of config.json.
	Bundle string `json:"bundle"`
	// Spec is config.json. The sources of its binds are real paths: no component is a link.
	Spec specs.Spec `json:"spec"`
	// Root are the directories and files in the root of the image, without links.
	Root []string `json:"root"`
	// Module says that the program of the image is a WebAssembly module.
	Module bool `json:"module"`
}

// A Plan is everything that the kernel enforces for one container. A container has all of it, or it
// does not start.
type Plan struct {
	Version int     `json:"version"`
	ID      jail.ID `json:"id"`
	// Container and Bundle are as in the request.
	Container string `json:"container"`
	Bundle    string `json:"bundle"`
	// Digest of the effective policy.
	Policy string `json:"policy"`
	// Layers are the policies whose intersection the effective policy is, the most trusted first.
	Layers []jail.Layer `json:"layers"`
	// Spec is config.json, reduced to what is granted.
	Spec specs.Spec `json:"spec"`
	// Module says that every process of the container runs a WebAssembly module.
	Module bool `json:"module,omitempty"`
	// Devices are the device nodes that can be opened, by their names in /dev.
	Devices []string `json:"devices"`
	// OuterFilter is loaded by libcontainer if config.json has no filter.
	OuterFilter seccomp.Filter `json:"outer_filter"`
	Landlock    jail.Landlock  `json:"landlock"`
	// InnerFilter is loaded in addition, before the first instruction of the image's program.
	InnerFilter seccomp.Filter `json:"inner_filter"`
	// Ceiling has the layers of the host's ceiling; absent if the host has none.
	Ceiling *jail.Ceiling `json:"ceiling,omitempty"`
	// Rlimits are the policy's limits for every process.
	Rlimits []jail.Rlimit `json:"rlimits"`
	// Wall is the maximum lifetime of the container; 0 is no limit.
	Wall time.Duration `json:"wall"`
	// Dropped names what config.json asks for and the container does not get.
	Dropped []string `json:"dropped"`
	// Warnings lists what weakens the isolation of the container, one sentence each.
	Warnings []string `json:"warnings"`
}

// NewPlan returns the plan of a container, or an error that names what config.json asks for and
// may not have.
func NewPlan(id jail.ID, eff policy.Effective, n Node, r Request) (Plan, error) {
	p := Plan{Version: planVersion, ID: id, Container: r.Container, Bundle: r.Bundle,
		Policy: eff.Digest(), Spec: r.Spec, Module: r.Module, Devices: slices.Clone(deviceNames)}
	for _, l := range eff.Layers() {
		p.Layers = append(p.Layers, jail.Layer{Name: l.Name, Source: l.Source})
	}
	if p.Spec.Linux == nil {
		return p, errors.New("config.json has no section linux")
	}
	if p.Spec.Process == nil {
		return p, errors.New("config.json has no process")
	}
	// Copies, so that the changes below do not affect the request.
	linux, process := *p.Spec.Linux, *p.Spec.Process
	p.Spec.Linux, p.Spec.Process = &linux, &process
	g := &granter{eff: eff, pol: eff.Policy(), node: n, plan: &p}
	for _, check := range checks {
		if err := check(g); err != nil {
			return p, err
		}
	}
	dropped, err := p.NarrowProcess(p.Spec.Process)
	if err != nil {
		return p, err
	}
	p.Dropped = append(p.Dropped, dropped...)
	p.Landlock = g.landlock(r.Root)
	g.filters()
	g.ceiling()
	return p, nil
}

// A granter decides one request. Each check reduces the spec of the plan to what is granted, or
// returns an error.
type granter struct {
	eff  policy.Effective
	pol  policy.Policy
	node Node
	plan *Plan
	// binds are the mounts of the plan that show a tree of the host.
	binds []jail.Mount
}

// checks are run by NewPlan, in this order.
var checks = []func(*granter) error{
	(*granter).handler, (*granter).programs, (*granter).unsupported, (*granter).annotations, (*granter).hooks,
	(*granter).namespaces, (*granter).mounts, (*granter).devices, (*granter).paths,
	(*granter).resources, (*granter).limits,
}

// programs returns an error unless the policy lets all programs of the image run, or all modules.
func (g *granter) programs() error {
	if g.plan.Module {
		every := policy.Globs{policy.Below("/")}
		if !g.pol.Syscalls.Has(policy.GroupWASI) || !every.LessEq(g.pol.Tools.Modules) {
			return errors.New("the policy lets no module of an image run: an image holds modules of any " +
				`path, which needs tools.modules = ["/**"] and syscalls.groups with "wasi", in the ` +
				"profile and in the ceiling")
		}
		return nil
	}
	if !g.pol.Syscalls.Has(policy.GroupNative) || !jail.AllMayRun(g.pol, "/") {
		return errors.New("the policy lets no container run: an image holds programs of any path, " +
			`which needs tools.native = ["/**"] and syscalls.groups with "native", in the profile ` +
			"and in the ceiling")
	}
	return nil
}

// unsupported returns an error for fields of config.json that jail does not implement.
func (g *granter) unsupported() error {
	s := g.plan.Spec
	l := s.Linux
	for _, x := range []struct {
		name string
		has  bool
	}{
		{"solaris", s.Solaris != nil}, {"windows", s.Windows != nil}, {"vm", s.VM != nil},
		{"zos", s.ZOS != nil}, {"freebsd", s.FreeBSD != nil},
		{"linux.intelRdt", l.IntelRdt != nil}, {"linux.memoryPolicy", l.MemoryPolicy != nil},
		{"linux.timeOffsets", len(l.TimeOffsets) > 0},
		{"linux.netDevices", len(l.NetDevices) > 0},
		{"linux.personality", l.Personality != nil},
		{"linux.seccomp.listenerPath", l.Seccomp != nil && l.Seccomp.ListenerPath != ""},
		{"process.scheduler", s.Process.Scheduler != nil},
		{"process.ioPriority", s.Process.IOPriority != nil},
		{"process.execCPUAffinity", s.Process.ExecCPUAffinity != nil},
	} {
		if x.has {
			return fmt.Errorf("%s of config.json is not supported", x.name)
		}
	}
	if s.Root == nil || s.Root.Path == "" {
		return errors.New("root.path of config.json is missing")
	}
	return nil
}

// moduleAnnotations are the annotations by which engines request a WebAssembly engine, with crun's
// values for them. true means that every program is a module, false that the runtime finds out.
var moduleAnnotations = map[string]map[string]bool{
	"run.oci.handler":           {"wasm": true, "wasm-smart": false},
	"module.wasm.image/variant": {"compat": true, "compat-smart": false},
}

// handler sets plan.Module if an annotation says that every program is a module. Otherwise
// Request.Module, which jail-oci has found out, decides.
func (g *granter) handler() error {
	for name, values := range moduleAnnotations {
		value, asked := g.plan.Spec.Annotations[name]
		always, known := values[value]
		if asked && !known {
			return fmt.Errorf("annotation %s of config.json: %q is not supported: want one of %q", name,
				value, slices.Sorted(maps.Keys(values)))
		}
		g.plan.Module = g.plan.Module || always
	}
	return nil
}

// annotations drops the annotations that would change the cgroup.
func (g *granter) annotations() error {
	kept := map[string]string{}
	for k, v := range g.plan.Spec.Annotations {
		// It would set a property of the systemd unit of the cgroup.
		if strings.HasPrefix(k, "org.systemd.property.") {
			g.drop("annotation %s", k)
			continue
		}
		kept[k] = v
	}
	g.plan.Spec.Annotations = kept
	return nil
}

// hooks returns an error for a hook whose program is not in node.Hooks.
func (g *granter) hooks() error {
	h := g.plan.Spec.Hooks
	if h == nil {
		return nil
	}
	for _, list := range []struct {
		name  string
		hooks []specs.Hook
	}{
		//nolint:staticcheck // Engines still use it.
		{"prestart", h.Prestart}, {"createRuntime", h.CreateRuntime},
		{"createContainer", h.CreateContainer}, {"startContainer", h.StartContainer},
		{"poststart", h.Poststart}, {"poststop", h.Poststop},
	} {
		for _, hook := range list.hooks {
			if !slices.Contains(g.node.Hooks, hook.Path) {
				return fmt.Errorf("hook %s of config.json: program %q is not in hooks of the "+
					"operator's oci.toml", list.name, hook.Path)
			}
		}
	}
	return nil
}

// drop adds an entry to plan.Dropped.
func (g *granter) drop(format string, args ...any) {
	g.plan.Dropped = append(g.plan.Dropped, fmt.Sprintf(format, args...))
}

// filters sets the seccomp filters of the plan.
func (g *granter) filters() {
	if g.plan.Module {
		g.plan.InnerFilter = seccomp.NewFilter(seccomp.WASIGroups...)
		g.plan.OuterFilter = seccomp.NewOuterFilter(seccomp.InitGroups...)
		return
	}
	groups := slices.Clone(seccomp.NativeGroups)
	if g.pol.Syscalls.Has(policy.GroupLoopback) {
		groups = append(groups, "loopback", "links")
	}
	g.plan.InnerFilter = seccomp.NewFilter(groups...)
	g.plan.OuterFilter = seccomp.NewOuterFilter(append(slices.Clone(seccomp.InitGroups),
		groups...)...)
}

// limits sets the policy's wall time and rlimits. It warns about the limits that do not hold for
// containers.
func (g *granter) limits() error {
	l := g.pol.Limits
	if l.IORead != policy.Unlimited || l.IOWrite != policy.Unlimited {
		return errors.New("limits.io_read and io_write do not hold for containers: leave them out of " +
			"the profile and of the ceiling")
	}
	if l.Wall != policy.Unlimited {
		g.plan.Wall = l.Wall
	}
	g.warn("limits.output and limits.cpu_time do not hold: the streams of a container are its " +
		"engine's, and so is its control group")
	add := func(name string, value int64) {
		if value != policy.Unlimited {
			g.plan.Rlimits = append(g.plan.Rlimits, jail.Rlimit{Name: name, Value: uint64(value)})
		}
	}
	add("nofile", l.OpenFiles)
	add("fsize", l.FileSize)
	// A core dump could be piped to a host program; with a limit of 1 the kernel does not
	// (core(5)).
	add("core", 1)
	return nil
}

// NarrowProcess removes all capabilities from process and sets no_new_privs. It returns the names
// of what it dropped, or an error for a process that cannot be started.
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

// rlimitNames maps the runtime-spec's names of rlimits to jail's.
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

// ProcessRlimits returns the rlimits of a process of the container: its own, at most the plan's.
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

// joinable are the kinds of namespaces that the containers of a pod can share.
var joinable = []specs.LinuxNamespaceType{specs.NetworkNamespace, specs.IPCNamespace,
	specs.UTSNamespace}

// needed are the kinds of namespaces that config.json must have. A missing one would be the host's.
var needed = []specs.LinuxNamespaceType{specs.MountNamespace, specs.PIDNamespace,
	specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace}

// namespaces returns an error if the container would share a namespace with the host, or join one
// that the operator or the ceiling does not allow.
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

// foreignNetwork returns an error for a network of the engine if the ceiling restricts fetches,
// since the fetch proxy does not see its traffic.
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
