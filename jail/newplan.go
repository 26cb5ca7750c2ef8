package jail

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

// Paths inside every jail.
const (
	// InitPath is the program jail-init.
	InitPath = "/run/jail/init"
	// MachineDir holds the files that show the machine. They are mounted where programs look for
	// them.
	MachineDir = "/run/jail/machine"
	// CacheDir holds the compiled modules, each in a directory named by its number from 0;
	// read-only.
	CacheDir = "/run/jail/cache"
	// AgentDir holds the database of an agent. No guest sees it. Like laterWorkspace it may be
	// mounted after the jail has restricted itself, so the Landlock rule is on agentParent, which
	// holds nothing else.
	AgentDir    = agentParent + "/state"
	agentParent = "/run/jail/agent"
	// FilesDir is a tmpfs to which process 1 writes the files of an order. The guest sees them at
	// another path.
	FilesDir = "/run/jail/files"
	// laterDir holds only laterWorkspace.
	laterDir = "/run/jail/ws"
	// laterWorkspace is the mount point of a shadow that may be attached after the jail has
	// restricted itself. The Landlock rule is on its parent directory: the kernel walks from the
	// root of a mount up to the mount point's parent (landlock(7)), so the rule holds for the later
	// mount.
	laterWorkspace = laterDir + "/workspace"
	rootDir        = "/"
	devDir         = "/dev" // device nodes
)

// Host ids that jails use. systemd's table of uid ranges (UIDS-GIDS) reserves them for nothing.
const (
	FirstBase = 0x70000000
	BaseSize  = 1 << 16
	// Number of ranges of BaseSize ids; the last id is 0x7ffcffff.
	Bases = 4093
)

const (
	// The id of unmapped owners, which the tool never has, inside or outside.
	nobody = 65534
	// The tool's uid and gid if neither a workspace nor an agent's directory determines them.
	guestID = 1000
	// What the WebAssembly engine itself needs.
	minMemory = 32 << 20
	minPIDs   = 12      // threads of the engine
	minFiles  = 16      // descriptors of the engine
	minIO     = 4096    // bytes a second
	cpuPeriod = 100_000 // microseconds
	// oom_score_adj: killed before ordinary processes of the host
	oomScore = 500
	// the size of /tmp is the memory limit divided by this
	tmpShare = 4
	// Maximum size of /tmp in bytes, also without a memory limit.
	maxTmp   = 1 << 30
	tmpFiles = 4096 // inodes of /tmp
	// Size in bytes of FilesDir, each file rounded up to pages.
	filesSize = 4 << 20
	// more than any limit that a file can give
	maxCgroup = 1 << 50
	// Descriptors of the engine, in addition to the tool's limit.
	initFiles = 24

	// Pending signals, and timers, each of which reserves one.
	maxSignals        = 256
	maxInotify        = 64    // instances
	maxInotifyWatches = 65536 // of all of them
)

// newUserCounts returns the limits of /proc/sys/user for a jail's user namespace. They allow the
// namespaces that the jail is made of and no further ones.
func newUserCounts() []UserCount {
	return []UserCount{{"cgroup_namespaces", 1}, {"fanotify_groups", 0}, {"fanotify_marks", 0},
		{"inotify_instances", maxInotify}, {"inotify_watches", maxInotifyWatches},
		{"ipc_namespaces", 1}, {"mnt_namespaces", 1}, {"net_namespaces", 1}, {"pid_namespaces", 1},
		{"time_namespaces", 0}, {"user_namespaces", 0}, {"uts_namespaces", 1}}
}

// A Request holds the inputs of a plan besides the policy: what was looked up on the host with the
// caller's rights.
type Request struct {
	ID ID
	// First id of the jail's range of host ids.
	Base uint32
	// The user whose daemon this is; nil for root's. If set, Base is ignored.
	User *User
	// Cgroup above all jails, such as "/jail".
	Slice     string
	Workspace *Source // nil without one
	// Agent is the directory of an agent's database; nil if the run is no agent.
	Agent *State
	// Later says that the shadow of the workspace may be attached after the jail has restricted
	// itself. The tool must not depend on the path of the mount then, see [SeenPath].
	Later bool
	// Files says that files come with the order.
	Files bool
	// directories of the host, each holding one compiled module and nothing else
	Caches []string
	// Image is the image whose root the jail has; nil without one.
	Image *Image
	// Programs are the files and directories, by their paths in the jail, that the policy lets run
	// in mounts of which it does not let everything run, and the loaders that they need.
	Programs []string
	Command  Command
	// Absent are the sources of mounts of settings (policy.Mount.Setting) that the host lacks.
	Absent []string
	// Runtime is the program of the outer layer that the policy asks for; nil if it asks for none.
	Runtime *Runtime
	// Told says that the daemon reads the kernel's records of what Landlock refuses.
	Told bool
	// ProcFixed says that the kernel cannot set subset=pid on a mounted proc. Then a jail has no
	// files of the machine in /proc, since a narrowed proc does not have the mount points.
	ProcFixed bool
}

// A Source is a directory of the host, its path in the jail, and its owner, whose ids the tool has.
type Source struct {
	Path     string
	UID, GID uint32
	// A clean absolute path in the jail; empty means policy.WorkspaceDir.
	Target string
}

// A State is a directory of the host for an agent's database, to which only the agent's tool
// writes, and the maximum size of the database in bytes.
type State struct {
	Source
	Size int64
}

// owner returns the directory whose owner's ids the tool has, or nil if there is none.
func (r Request) owner() *Source {
	switch {
	case r.Workspace != nil:
		return r.Workspace
	case r.Agent != nil:
		return &r.Agent.Source
	}
	return nil
}

// A User is an ordinary user of the host, who has no other ids than these for a jail.
type User struct{ UID, GID uint32 }

// ErrPlan is wrapped by errors that say why a policy cannot be made into a plan.
var ErrPlan = errors.New("no plan")

// NewPlan returns the plan of one run. An error wraps ErrPlan. NewPlan is pure: it looks at nothing
// but its arguments. Only policy.Resolve makes an Effective policy, so no plan skips the ceiling.
func NewPlan(eff policy.Effective, r Request) (Plan, error) {
	pol := eff.Policy()
	for _, check := range checks {
		if err := check(pol, r); err != nil {
			return Plan{}, fmt.Errorf("%w: %w", ErrPlan, err)
		}
	}
	p := Plan{
		Version:         planVersion,
		ID:              r.ID,
		Policy:          eff.Digest(),
		Layers:          newLayers(eff),
		Cgroup:          newCgroup(pol.Limits, r),
		Namespaces:      []Namespace{"user", "mount", "pid", "net", "ipc", "uts", "cgroup"},
		IDs:             newIDs(r),
		Hostname:        "jail",
		Mounts:          newMounts(pol, r),
		Devices:         newDevices(r.Command),
		Files:           newFiles(pol, r),
		Capabilities:    []string{},
		NoNewPrivileges: true,
		OuterFilter:     seccomp.NewOuterFilter(withNeeds(pol, r, outerGroups(r.Command))...),
		InnerFilter:     seccomp.NewFilter(withNeeds(pol, r, innerGroups(r.Command))...),
		Rlimits:         newRlimits(pol.Limits, r),
		UserCounts:      newUserCounts(),
		Limits: Limits{Wall: pol.Limits.Wall, CPUTime: pol.Limits.CPUTime,
			Output: pol.Limits.Output},
		Command: r.Command,
	}
	if r.Workspace != nil {
		p.Workspace = newWorkspace(pol, r)
	}
	if pol.Audit.Files != policy.FilesNone {
		p.FileEvents = pol.Audit.Files.String()
	}
	p.Landlock = newLandlock(pol, r, p)
	p.Fetch = newFetch(pol, r.Command.Runner)
	addCeiling(&p, eff, r)
	if p.Landlock.Told = r.Told; p.Ceiling != nil {
		p.Ceiling.Landlock.Told = r.Told
	}
	if err := addOuter(&p, pol, r); err != nil {
		return Plan{}, fmt.Errorf("%w: %w", ErrPlan, err)
	}
	return p, nil
}

func newLayers(eff policy.Effective) []Layer {
	layers := []Layer{}
	for _, l := range eff.Layers() {
		layers = append(layers, Layer{l.Name, l.Source})
	}
	return layers
}

// newFetch returns the fetch proxy of the plan, or nil if the policy has no fetch rule.
func newFetch(pol policy.Policy, runner string) *Fetch {
	if len(pol.Fetch.Allow) == 0 {
		return nil
	}
	f := &Fetch{Limits: pol.Fetch.Within(), Mode: pol.Fetch.Mode.String(),
		TLS: policy.TLSOpaque.String()}
	if runner == RunnerNative {
		f.TLS = policy.TLSIntercept.String()
	}
	for _, r := range pol.Fetch.Allow {
		f.Allow = append(f.Allow, r.String())
	}
	for _, r := range pol.Fetch.Deny {
		f.Deny = append(f.Deny, r.String())
	}
	return f
}

// withNeeds returns groups with the seccomp groups that the run needs besides those of its program.
func withNeeds(pol policy.Policy, r Request, groups []string) []string {
	n := needsOf(pol)
	n.native, n.agent = r.Command.Runner == RunnerNative, r.Agent != nil
	layer, err := pol.Outer.Choose()
	n.inside = err == nil && layer == policy.OuterRunsc
	if r.Command.Runner == RunnerShell || r.Command.Runner == RunnerCompile {
		n.runner = r.Command.Runner
	}
	return slices.Concat(groups, n.groups())
}

// needs says for which features a filter needs further groups, besides those of the program.
type needs struct {
	native, fetches, inside, agent, loopback bool
	// runner names the group of a runner that needs more than the engine; else "".
	runner string
}

// needsOf returns the needs that follow from the policy alone.
func needsOf(pol policy.Policy) needs {
	return needs{fetches: len(pol.Fetch.Allow) > 0,
		loopback: pol.Syscalls.Has(policy.GroupLoopback)}
}

func (n needs) groups() (groups []string) {
	for _, g := range []struct {
		name   string
		needed bool
	}{
		{"fetch", n.fetches},
		{"inside", n.inside},
		{"mux", n.inside && n.fetches},
		{n.runner, n.runner != ""},
		{"agent", n.agent},
		{"narrow", n.native && n.agent},
		{"loopback", n.native && (n.fetches || n.agent || n.loopback)},
		{"links", n.native && n.loopback},
	} {
		if g.needed {
			groups = append(groups, g.name)
		}
	}
	return groups
}

func newCgroup(l policy.Limits, r Request) Cgroup {
	leaf := leafName(r.ID, r.Base)
	if r.User != nil {
		leaf = string(r.ID) + ".0"
	}
	c := Cgroup{Path: path.Join(r.Slice, leaf), Memory: bound(l.Memory, -1), PIDs: bound(l.PIDs, 0),
		OOMScore: oomScore, IORead: bound(l.IORead, 0), IOWrite: bound(l.IOWrite, 0)}
	if l.CPUs != policy.Unlimited {
		c.CPUPeriod = cpuPeriod
		c.CPUQuota = max(l.CPUs*cpuPeriod/1000, 1000)
	}
	return c
}

// bound returns the limit, at most maxCgroup, or unlimited if there is none.
func bound(limit, unlimited int64) int64 {
	if limit == policy.Unlimited {
		return unlimited
	}
	return min(limit, maxCgroup)
}

// newIDs gives the tool the ids of the workspace's owner inside. On the host it has ids that no
// user has; id-mapped layers keep the owner of the workspace's files.
//
// A user's jail has one id, the user's, mapped to 0: the kernel lets a user map no other
// (user_namespaces(7)), and the process that sets up the jail must be 0 for a moment. Id 0 gives no
// rights: a jail has no capabilities, and no program gives it one.
func newIDs(r Request) IDs {
	if r.User != nil {
		return IDs{Base: r.User.UID, GroupBase: r.User.GID, Size: 1, User: true, Owner: r.User.UID}
	}
	ids := IDs{Base: r.Base, Size: BaseSize - 1, UID: guestID, GID: guestID, Owner: r.Base}
	owner := r.owner()
	if owner == nil {
		return ids
	}
	ids.UID, ids.GID = owner.UID, owner.GID
	for _, id := range []uint32{ids.UID, ids.GID} {
		if id >= ids.Size && len(ids.Extra) == 0 {
			ids.Extra = []IDMap{{Inside: id, Host: r.Base + BaseSize - 1}}
		}
	}
	return ids
}

func newMounts(pol policy.Policy, r Request) []Mount {
	// Unlimited is larger than any limit, so min works for it too.
	tmp := min(pol.Limits.Memory, maxTmp*tmpShare) / tmpShare
	mounts := imageMounts(r.Image, tmp)
	mounts = append(mounts, Mount{Kind: MountProc, Target: "/proc"})
	for _, m := range pol.Mounts {
		if m.Access == policy.Cache {
			mounts = append(mounts, Mount{Kind: MountCache, Name: m.Name, Target: m.Target,
				Write: true, Size: m.Size,
				Exec: r.Command.Runner == RunnerNative && AllMayRun(pol, m.Target)})
			continue
		}
		if leftOut(pol, r, m) {
			continue
		}
		if m.Source == "" {
			mounts = append(mounts, newTmpfs(pol, r.Command, m.Target, tmp))
			continue
		}
		mounts = append(mounts, Mount{Kind: MountBind, Source: m.Source, Target: m.Target,
			Write: m.Access&policy.Write != 0, Exec: m.Access&policy.Exec != 0})
	}
	for i, dir := range r.Caches {
		mounts = append(mounts,
			Mount{Kind: MountBind, Source: dir, Target: path.Join(CacheDir, strconv.Itoa(i))})
	}
	if r.Agent != nil {
		mounts = append(mounts, Mount{Kind: MountState, Source: r.Agent.Path, Target: AgentDir,
			Write: true})
	}
	if r.Files {
		mounts = append(mounts, newTmpfs(pol, r.Command, FilesDir, filesSize))
	}
	if r.Command.Runner == RunnerNative {
		mounts = append(mounts, nativeMounts(tmp, pol, r)...)
	}
	return mounts
}

func newWorkspace(pol policy.Policy, r Request) *Workspace {
	s := r.Workspace
	w := &Workspace{Source: s.Path, Target: s.target(),
		Shadow: pol.Workspace.Access == policy.WorkspaceShadow,
		Exec:   r.Command.Runner == RunnerNative && AllMayRun(pol, policy.WorkspaceDir)}
	if w.Shadow {
		w.Bytes, w.Files = pol.Limits.Workspace, pol.Limits.WorkspaceFiles
	}
	if w.Shadow && r.Later {
		if w.Target != policy.WorkspaceDir {
			w.Seen = w.Target
		}
		w.Target = laterWorkspace
	}
	return w
}

func (s *Source) target() string { return cmp.Or(s.Target, policy.WorkspaceDir) }

// SeenTarget returns the path by which the tool knows the workspace.
func (w *Workspace) SeenTarget() string { return cmp.Or(w.Seen, SeenPath(w.Target)) }

// PolicyPath converts a path of the jail to the path that policies use: the workspace is at
// policy.WorkspaceDir there, wherever it is mounted.
func (p Plan) PolicyPath(name string) string {
	if p.Workspace != nil {
		if rel, ok := paths.Rel(p.Workspace.Target, name); ok {
			return paths.Join(policy.WorkspaceDir, rel)
		}
	}
	return SeenPath(name)
}

// MayComeLater reports whether the shadow may be attached to a jail that has restricted itself.
func (w *Workspace) MayComeLater() bool { return w.Shadow && w.Target == laterWorkspace }

// ruleDir returns the directory for the Landlock rule of the mount.
func (m Mount) ruleDir() string {
	if m.Kind == MountState {
		return agentParent
	}
	return m.Target
}

// ruleDir returns the directory for the Landlock rule of the workspace.
func (w *Workspace) ruleDir() string {
	if w.MayComeLater() {
		return laterDir
	}
	return w.Target
}

// SeenPath returns the path by which the tool knows a path of its jail. It differs only for the
// workspace of a jail whose shadow may come later.
func SeenPath(name string) string {
	if name == laterDir {
		return policy.WorkspaceDir
	}
	if rel, ok := paths.Rel(laterWorkspace, name); ok {
		return paths.Join(policy.WorkspaceDir, rel)
	}
	return name
}

// maxLocked is RLIMIT_MEMLOCK of programs of the host, in bytes. gpg locks its keys.
const maxLocked = 64 << 10

func newRlimits(l policy.Limits, r Request) []Rlimit {
	if r.Agent != nil {
		// The database and its log are separate files, each of at most this size.
		l.FileSize = min(l.FileSize, r.Agent.Size)
	}
	locked := uint64(0)
	if r.Command.Runner == RunnerNative {
		locked = maxLocked
	}
	// Without these limits "nice" and "rtprio" would be the daemon's: no tool may raise its
	// priority.
	limits := []Rlimit{{"core", 0}, {"memlock", locked}, {"msgqueue", 0}, {"nice", 0}, {"rtprio", 0},
		{"sigpending", maxSignals}}
	if l.OpenFiles != policy.Unlimited {
		limits = append(limits, Rlimit{"nofile", uint64(l.OpenFiles) + initFiles})
	}
	if l.FileSize != policy.Unlimited {
		limits = append(limits, Rlimit{"fsize", uint64(l.FileSize)})
	}
	if l.CPUTime != policy.Unlimited {
		limits = append(limits, Rlimit{"cpu", cpuSeconds(l.CPUTime)})
	}
	return limits
}

// cpuSeconds returns RLIMIT_CPU for a limit on cpu_time, a backstop in case the daemon, which
// measures exactly, cannot measure. RLIMIT_CPU counts whole ticks, more or less than was used, so
// twice the limit ensures that no run ends too early.
func cpuSeconds(limit time.Duration) uint64 { return 2 * uint64((limit+time.Second-1)/time.Second) }

// initDomain returns a domain that only allows to execute jail-init.
func initDomain() Landlock {
	return Landlock{MinABI: 1, Scoped: true, Rules: []LandlockRule{{Path: InitPath, Exec: true}}}
}

// newLandlock returns the domain of the plan. It grants on each mount the rights that the mount
// has, and nothing on the rest of the tree, which only holds mount points.
func newLandlock(pol policy.Policy, r Request, p Plan) Landlock {
	if p.Command.Runner == RunnerNative {
		return nativeLandlock(pol, r, p)
	}
	l := initDomain()
	if p.Workspace != nil {
		l.Rules = append(l.Rules, LandlockRule{Path: p.Workspace.ruleDir(),
			Write: p.Workspace.Shadow})
	}
	for _, m := range p.Mounts {
		l.Rules = append(l.Rules, LandlockRule{Path: m.ruleDir(), Write: m.Write, Exec: m.Exec})
	}
	if p.Command.Runner != RunnerCompile {
		l.Rules = append(l.Rules, LandlockRule{Path: devDir, Write: true})
	}
	return l
}

// checks are run by NewPlan before it makes a plan. Each returns an error for one kind of problem.
var checks = []func(policy.Policy, Request) error{
	checkLimits, checkSyscalls, checkMounts, checkTarget, checkWorkspace, checkNative, checkImage,
	checkIDs, checkSlice,
}

func checkLimits(pol policy.Policy, _ Request) error {
	least := []struct {
		name  string
		least int64
		why   string
	}{
		{"wall", int64(time.Millisecond), "no run is that short"},
		{"cpu_time", int64(time.Millisecond), "no run is that short"},
		{"cpus", 10, "a jail needs a hundredth of a CPU to start"},
		{"memory", minMemory, "the engine itself needs 32MiB"},
		{"pids", minPIDs, "the engine itself has up to 12 threads"},
		{"open_files", minFiles, "the engine itself holds up to 16"},
		{"io_read", minIO, "a page in a second is the least that a disk is asked for"},
		{"io_write", minIO, "a page in a second is the least that a disk is asked for"},
	}
	for _, l := range least {
		value, unit, ok := pol.Limits.Get(l.name)
		if !ok || value < l.least {
			return fmt.Errorf("limit %s is %s: %s", l.name, unit.Format(value), l.why)
		}
	}
	return nil
}

func checkSyscalls(pol policy.Policy, r Request) error {
	if r.Command.Runner == RunnerNative {
		if !pol.Syscalls.Has(policy.GroupNative) {
			return errors.New(
				`syscalls.groups does not grant "native", without which no program of the host can run`)
		}
		return nil
	}
	if !pol.Syscalls.Has(policy.GroupWASI) {
		return errors.New(
			`syscalls.groups does not grant "wasi", without which no WebAssembly tool can run`)
	}
	return nil
}

// ownDirs are the directories in which only the jail itself mounts.
var ownDirs = []string{"/proc", "/dev", "/run", "/sys"}

func checkMounts(pol policy.Policy, r Request) error {
	for i, m := range pol.Mounts {
		if m.Target == "" {
			return fmt.Errorf("mount of %s: no target; only a ceiling may leave it open", m.Source)
		}
		if err := checkCache(m, r); err != nil {
			return err
		}
		for _, own := range append(slices.Clone(ownDirs), policy.WorkspaceDir) {
			if paths.Within(own, m.Target) || paths.Within(m.Target, own) {
				return fmt.Errorf("mount at %s: %s is the jail's own", m.Target, own)
			}
		}
		for _, other := range pol.Mounts[:i] {
			if paths.Within(other.Target, m.Target) || paths.Within(m.Target, other.Target) {
				return fmt.Errorf("mounts at %s and %s: one is inside the other", other.Target,
					m.Target)
			}
		}
	}
	return nil
}

// checkCache returns an error for a cache without a name or a size, and for any cache in a user's
// jail: only root can mount a file system of a limited size.
func checkCache(m policy.Mount, r Request) error {
	switch {
	case m.Access != policy.Cache:
		return nil
	case m.Name == "":
		return fmt.Errorf("mount at %s: a cache without a name; only a ceiling may leave it open",
			m.Target)
	case m.Size > policy.MaxCache:
		return fmt.Errorf("mount at %s: cache %s has no size; only a ceiling may leave it open",
			m.Target, m.Name)
	case r.User != nil:
		return fmt.Errorf(
			"mount at %s: cache %s needs a file system of a bounded size, which only root can mount: "+
				"use the daemon of the host, or a profile without caches", m.Target, m.Name)
	}
	return nil
}

func checkWorkspace(pol policy.Policy, r Request) error {
	switch {
	case r.Workspace == nil:
		return nil
	case pol.Workspace.Access == policy.WorkspaceNone:
		return errors.New(`workspace.access is "none"; use --no-workspace`)
	case pol.Workspace.Access == policy.WorkspaceShadow && pol.Limits.Workspace == policy.Unlimited:
		return errors.New("limit workspace is not set: a shadow must have a size")
	case pol.Workspace.Access == policy.WorkspaceShadow &&
		pol.Limits.WorkspaceFiles == policy.Unlimited:
		return errors.New("limit workspace_files is not set: a shadow must have a number of files")
	}
	return nil
}

// checkTarget returns an error if the workspace's target would hide other mounts or files of the
// jail, or lies in them.
func checkTarget(pol policy.Policy, r Request) error {
	if r.Workspace == nil || r.Workspace.target() == policy.WorkspaceDir {
		return nil
	}
	target := r.Workspace.target()
	if !path.IsAbs(target) || path.Clean(target) != target {
		return fmt.Errorf("workspace %q is not a clean absolute path", target)
	}
	const instead = `; workspace.target = "/workspace" mounts it there`
	for _, own := range ownDirs {
		if paths.Within(own, target) || paths.Within(target, own) {
			return fmt.Errorf("workspace at %s: %s is the jail's own%s", target, own, instead)
		}
	}
	for _, m := range pol.Mounts {
		switch {
		case paths.Within(target, m.Target):
			return fmt.Errorf("workspace at %s: it would hide the mount %s%s", target, m.Target,
				instead)
		case m.Source != "" && paths.Within(m.Target, target):
			return fmt.Errorf("workspace at %s: it lies in the mount %s%s", target, m.Target,
				instead)
		}
	}
	for _, f := range newFiles(pol, r) {
		if paths.Within(target, f.Path) {
			return fmt.Errorf("workspace at %s: it would hide the jail's own file %s%s", target,
				f.Path, instead)
		}
	}
	return nil
}

func checkIDs(_ policy.Policy, r Request) error {
	if r.User != nil {
		if r.User.UID == 0 || r.User.UID == nobody || r.User.UID == math.MaxUint32 {
			return fmt.Errorf("uid %d is no ordinary user's", r.User.UID)
		}
		return nil
	}
	if r.Base < FirstBase || r.Base >= FirstBase+Bases*BaseSize || r.Base%BaseSize != 0 {
		return fmt.Errorf("host id range %d is not one that jails use", r.Base)
	}
	if w := r.owner(); w != nil {
		for _, id := range []uint32{w.UID, w.GID} {
			if id == nobody || id == math.MaxUint32 {
				return fmt.Errorf("directory %s belongs to id %d, which stands for nobody", w.Path,
					id)
			}
		}
		if w.UID != w.GID && w.UID >= BaseSize-1 && w.GID >= BaseSize-1 {
			return fmt.Errorf(
				"directory %s: owner %d and group %d both lie above %d; only one of them can be "+
					"mapped", w.Path, w.UID, w.GID, BaseSize-2)
		}
	}
	return nil
}

func checkSlice(_ policy.Policy, r Request) error {
	if !path.IsAbs(r.Slice) || path.Clean(r.Slice) != r.Slice {
		return fmt.Errorf("control group %q is not a clean absolute path", r.Slice)
	}
	return nil
}
