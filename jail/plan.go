// Package jail describes what the kernel enforces for one run. Its centre is the Plan: a plain
// value, made by a pure function from an effective policy, that prints as JSON and that its
// sub-packages carry out, so that what is reviewed is what is enforced.
package jail

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/id"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/policy/paths"
)

// planVersion is the version of the Plan's JSON form.
const planVersion = 1

// A Plan is everything that the kernel enforces for one run, layer by layer from the outside to the
// inside. A run has all of it, or it does not start.
type Plan struct {
	Version int `json:"version"`
	ID      ID  `json:"id"`
	// Digest of the effective policy.
	Policy string `json:"policy"`
	// Layers are the policies that it is the meet of, in the order of trust.
	Layers []Layer `json:"layers"`

	Cgroup     Cgroup      `json:"cgroup"`
	Namespaces []Namespace `json:"namespaces"`
	// NetworkOf is the jail of the session, if this one has its network namespace in place of one
	// of its own.
	NetworkOf ID     `json:"network_of,omitempty"`
	IDs       IDs    `json:"ids"`
	Hostname  string `json:"hostname"`
	// In the order in which they are made; the root is a fresh read-only tmpfs, or the image that is
	// the first of them.
	Mounts  []Mount  `json:"mounts"`
	Devices []string `json:"devices"`
	// Of the root itself, read-only where that is a tmpfs.
	Files     []File     `json:"files,omitempty"`
	Workspace *Workspace `json:"workspace,omitempty"`
	// nil: no network at all
	Fetch *Fetch `json:"fetch,omitempty"`

	// In any set: always none.
	Capabilities    []string `json:"capabilities"`
	NoNewPrivileges bool     `json:"no_new_privileges"`
	// From before the first instruction inside.
	OuterFilter seccomp.Filter `json:"outer_filter"`
	Landlock    Landlock       `json:"landlock"`
	Rlimits     []Rlimit       `json:"rlimits"`
	// Bounds on what the kernel counts in the jail's user namespace.
	UserCounts []UserCount `json:"user_counts"`
	// On top of the outer one, from before the tool's first instruction.
	InnerFilter seccomp.Filter `json:"inner_filter"`
	// The host's ceiling as layers of its own around the tool; absent where the host has none.
	Ceiling *Ceiling `json:"ceiling,omitempty"`
	// Outer is the layer around the jail; absent where there is none.
	Outer *Outer `json:"outer,omitempty"`

	Limits Limits `json:"limits"` // watched from outside
	// What is put on record of the files that the run opens or writes: changes, opens, or nothing.
	FileEvents string  `json:"file_events,omitempty"`
	Command    Command `json:"command"`
}

// A Layer says where one of the policies of a run came from.
type Layer struct {
	Name   string `json:"name"`
	Source string `json:"source"`
}

// A Namespace is the name of a kind of namespace, as in namespaces(7).
type Namespace string

// Cgroup is the control group leaf of one jail. It is made for it and never used again: on many
// kernels a cgroup that was killed through cgroup.kill kills whatever is cloned into it later.
type Cgroup struct {
	// Below the root of every hierarchy.
	Path   string `json:"path"`
	Memory int64  `json:"memory"` // bytes, swap included
	// microseconds of CPU time in each period; 0 is none
	CPUQuota  int64  `json:"cpu_quota_us"`
	CPUPeriod uint64 `json:"cpu_period_us"` // microseconds
	PIDs      int64  `json:"pids"`          // tasks: processes and threads
	// bytes a second, from each disk that the run uses; 0 is no bound
	IORead int64 `json:"io_read"`
	// Bytes a second, to each.
	IOWrite int64 `json:"io_write"`
	// The jail goes first when the host runs out of memory.
	OOMScore int `json:"oom_score_adj"`
}

// IDs says who the tool is, inside and on the host. Base is the first of 64 Ki host ids that are
// the jail's own while it lives; id n inside is Base+n outside, so a workspace's files keep their
// owners.
type IDs struct {
	Base uint32 `json:"base"`
	Size uint32 `json:"size"`
	UID  uint32 `json:"uid"` // inside
	GID  uint32 `json:"gid"` // inside
	// Extra maps one owner id above the 64 Ki range, where a workspace has one.
	Extra []IDMap `json:"extra,omitempty"`
	// The jail is an ordinary user's: its only ids are those of the user, base and, of the
	// group, group_base.
	User      bool   `json:"user,omitempty"`
	GroupBase uint32 `json:"group_base,omitempty"`
	// Owner is the user of the host who owns the jail's user namespace. What the kernel counts up
	// the chain of user namespaces it charges to the owner, so no two jails and no user have the
	// same.
	Owner uint32 `json:"owner"`
}

// HostGroup is what group 0 of the jail is on the host.
func (i IDs) HostGroup() uint32 {
	if i.User {
		return i.GroupBase
	}
	return i.Base
}

// Host returns what the tool's user and group are on the host.
func (i IDs) Host() (uid, gid uint32) {
	uid, gid = i.Base+i.UID, i.HostGroup()+i.GID
	for _, e := range i.Extra {
		if e.Inside == i.UID {
			uid = e.Host
		}
		if e.Inside == i.GID {
			gid = e.Host
		}
	}
	return uid, gid
}

// An IDMap maps one id.
type IDMap struct {
	Inside uint32 `json:"inside"`
	Host   uint32 `json:"host"`
}

// Mount kinds.
const (
	MountTmpfs = "tmpfs"
	MountProc  = "proc"
	MountBind  = "bind"
	// MountState is the directory of an agent's database, whose descriptor comes as that of the
	// workspace's real directory. No agent has a workspace.
	MountState = "state"
	// MountCache is the directory of a file system of a bounded size that later runs have, too.
	MountCache = "cache"
	// Terminals of the jail's own; the only mount beside the device nodes that is not nodev.
	MountPTS = "devpts"
	// MountImage is the root file system of an image, below an upper layer of memory that ends with
	// the jail. It is the first mount, at /, and the root in place of a tmpfs.
	MountImage = "image"
	// MountMachine is a file or directory of the jail's own that shows the machine as the limits
	// give it, read-only. Package machine writes it.
	MountMachine = "machine"
)

// MachineInProc reports whether files of the machine lie in the jail's proc, which then is narrowed
// to processes only when they are there.
func (p Plan) MachineInProc() bool { return slices.ContainsFunc(p.Mounts, Mount.InProc) }

// InProc reports whether m is a file of the machine below /proc, which has a rule.
func (m Mount) InProc() bool { return m.Kind == MountMachine && paths.Within("/proc", m.Target) }

// MachineFile is the path in the root of what a mount of the machine shows.
func (m Mount) MachineFile() string {
	return path.Join(MachineDir, strings.TrimPrefix(m.Target, "/proc"))
}

// HasSource reports whether a descriptor comes with the order for the mount.
func (m Mount) HasSource() bool {
	return m.Kind == MountBind || m.Kind == MountCache || m.Kind == MountImage
}

// ImageRoot returns the mount of the image that is the root; nil where the root is a tmpfs.
func (p Plan) ImageRoot() *Mount {
	if len(p.Mounts) > 0 && p.Mounts[0].Kind == MountImage {
		return &p.Mounts[0]
	}
	return nil
}

// A Mount is one mount of the jail's root. Everything is nosuid and nodev.
type Mount struct {
	Kind string `json:"kind"`
	// Of a bind, state or image: a path of the host. Of a cache: its id, which says for whom it is kept.
	Source string `json:"source,omitempty"`
	// Of a cache, as the policy names it; of an image, its digest.
	Name   string `json:"name,omitempty"`
	Target string `json:"target"`
	Write  bool   `json:"write"`
	Exec   bool   `json:"exec"`
	// Bytes, of a tmpfs or cache, or of the upper layer of an image.
	Size  int64 `json:"size,omitempty"`
	Files int64 `json:"files,omitempty"` // inodes, of a tmpfs or an upper layer
}

// HostsAgent reports whether the jail has the database of an agent.
func (p Plan) HostsAgent() bool {
	return slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.Kind == MountState })
}

// GuestLandlock returns the domain of the program of an agent: that of the jail without the directory
// of the database.
func (p Plan) GuestLandlock() Landlock {
	l := p.Landlock
	l.Rules = slices.DeleteFunc(slices.Clone(l.Rules),
		func(r LandlockRule) bool { return r.Path == agentParent })
	return l
}

// A File is made for the jail and holds nothing of the host's.
type File struct {
	Path string `json:"path"`
	Text string `json:"text"`
	// It is a symbolic link to that path.
	Link string `json:"link,omitempty"`
}

// Workspace is the tree that the tool works on.
type Workspace struct {
	Source string `json:"source"`
	Target string `json:"target"`
	// Seen is the path by which the tool knows it, if that is neither Target nor what SeenPath
	// says.
	Seen string `json:"seen,omitempty"`
	// false: the real directory, read-only
	Shadow bool `json:"shadow"`
	// Programs in it may run.
	Exec  bool  `json:"exec,omitempty"`
	Bytes int64 `json:"bytes,omitempty"` // of the upper layer
	Files int64 `json:"files,omitempty"` // of the upper layer
}

// Fetch says that the jail has a socket to the fetch proxy, which hands out connections and is the
// only way out. Without it there is no network at all. What may be asked for is shown here in the
// words of the policy; the proxy has it from the policy itself.
type Fetch struct {
	// In the words of the policy.
	Allow []string `json:"allow"`
	// Always wins.
	Deny   []string `json:"deny,omitempty"`
	Limits string   `json:"limits"`
	Mode   string   `json:"mode"` // enforce or report
	// TLS says who ends the TLS of a tool: "intercept", the proxy with an authority of the run's
	// own, but for hosts whose rule says opaque; or "opaque", since only a tunnel to such a host is
	// granted and the proxy speaks TLS for everything else.
	TLS string `json:"tls"`
}

// Landlock is the domain that jail-init puts itself into. Paths are those inside the jail.
type Landlock struct {
	MinABI int            `json:"min_abi"`
	Rules  []LandlockRule `json:"rules"`
	// Scoped asks for abstract sockets and signals to be kept inside where the kernel can (ABI
	// 6); the network and process namespaces keep them inside everywhere.
	Scoped bool `json:"scoped"`
	// Network leaves TCP alone: for the fetch proxy, and for programs that may use the jail's own
	// loopback as they like.
	Network bool `json:"network,omitempty"`
	// TCP ports that may be listened on and connected to, where network is not set and the
	// kernel can tell (ABI 4).
	Ports []uint16 `json:"ports,omitempty"`
	// Asks the kernel to write what is refused to the host's audit log, where it can (ABI 7);
	// that forbids nothing more.
	Told bool `json:"told,omitempty"`
}

// LandlockTells is the version of Landlock from which on it can tell what it refuses (Linux 6.15).
const LandlockTells = 7

// A LandlockRule grants access below one path.
type LandlockRule struct {
	Path  string `json:"path"`
	Write bool   `json:"write"`
	Exec  bool   `json:"exec"`
	// Device lets what is opened below the path be asked by ioctl(2) what a device is asked; the
	// filters say which requests there are.
	Device bool `json:"device,omitempty"`
	// Pipes lets sockets and pipes with a name be made below the path, and such sockets of other
	// invocations be connected to.
	Pipes bool `json:"pipes,omitempty"`
}

// A UserCount bounds a thing that the kernel counts in the jail's user namespace.
type UserCount struct {
	// The name of a file in /proc/sys/user, without max_ (namespaces(7), inotify(7)).
	Name  string `json:"name"`
	Value int64  `json:"value"`
}

// An Rlimit bounds a resource of each process (setrlimit(2)); soft and hard limit are the same.
type Rlimit struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// Limits are those that the daemon watches, in nanoseconds and bytes.
type Limits struct {
	// Nanoseconds.
	Wall time.Duration `json:"wall"`
	// Nanoseconds.
	CPUTime time.Duration `json:"cpu_time"`
	Output  int64         `json:"output"` // stdout and stderr together
}

// Runners of commands.
const (
	RunnerWASI = "wasi" // one module
	// a script whose every command is a module
	RunnerShell = "shell"
	// A module, which does not run.
	RunnerCompile = "compile"
	// A program of the host, and those that it starts.
	RunnerNative = "native"
)

// Command is what runs inside, for reading: bytes of an argument that are no text are shown
// escaped. The exact bytes travel in the invocation.
type Command struct {
	// wasi: one module. shell: a script whose every command is a module. native: a program of
	// the host.
	Runner string `json:"runner"`
	// As it was found: core-utils/grep, /path/x.wasm.
	Tool string `json:"tool"`
	// Of the module, "sha256:" and hex.
	Digest string `json:"digest"`
	// Args[0] is the command's name
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Cwd  string   `json:"cwd"`
	// The tool has a terminal of the jail's own on its streams.
	Terminal bool `json:"terminal,omitempty"`
	// Script lists the commands of a shell script, in its order.
	Script []ScriptCommand `json:"script,omitempty"`
}

// A ScriptCommand is one simple command of a shell script.
type ScriptCommand struct {
	Line   uint   `json:"line"`
	Column uint   `json:"column"`
	Text   string `json:"text"`
	// As it was found; absent where only a run can tell.
	Tool string `json:"tool,omitempty"`
	// Why it may not run, or that it was not found.
	Refused string `json:"refused,omitempty"`
	// Needs is what a command of a pulled bundle is kept to, beside the script's policy.
	Needs *ScriptNeeds `json:"needs,omitempty"`
}

// ScriptNeeds are the hosts and the places of mounts that a bundle asks for.
type ScriptNeeds struct {
	Hosts  []string `json:"hosts"`
	Mounts []string `json:"mounts"`
}

// An ID names one run. IDs made by NewID carry 128 random bits, so that nobody guesses another's.
type ID string

// NewID returns a fresh random ID of 26 letters and digits.
func NewID() ID { return ID(id.New()) }

// ParseID checks an ID that a caller chose: 1 to 64 letters, digits, dots, dashes and underscores,
// beginning with a letter or digit. It is used as a file name and in control group paths.
func ParseID(s string) (ID, error) {
	if err := id.Check(s); err != nil {
		return "", err
	}
	return ID(s), nil
}

// Grants reports whether the domain grants all of these rights on a path of the jail, as the kernel
// calls them ("read_file"): each by some rule above it, which is how the kernel adds them up.
func (l Landlock) Grants(path string, rights []string) bool {
	for _, right := range rights {
		if !slices.ContainsFunc(l.Rules, func(r LandlockRule) bool {
			return paths.Within(r.Path, path) && r.grants(right)
		}) {
			return false
		}
	}
	return true
}

// Says is what the domain has on a path: the nearest of its rules and what that grants, for
// reading.
func (l Landlock) Says(path string) string {
	var nearest *LandlockRule
	for i, r := range l.Rules {
		if paths.Within(r.Path, path) && (nearest == nil || len(r.Path) > len(nearest.Path)) {
			nearest = &l.Rules[i]
		}
	}
	if nearest == nil {
		return "nothing is granted there"
	}
	grants := []string{"read"}
	for _, g := range []struct {
		name string
		is   bool
	}{{"write", nearest.Write}, {"execute", nearest.Exec}, {"devices", nearest.Device},
		{"named pipes and sockets", nearest.Pipes}} {
		if g.is {
			grants = append(grants, g.name)
		}
	}
	return SeenPath(nearest.Path) + " is granted for: " + strings.Join(grants, ", ")
}

func (r LandlockRule) grants(right string) bool {
	switch right {
	case "read_file", "read_dir":
		return true
	case "write_file", "truncate", "remove_file", "remove_dir", "make_reg", "make_dir", "make_sym",
		"refer":
		return r.Write
	case "execute":
		return r.Exec
	case "ioctl_dev":
		return r.Device
	case "make_fifo", "make_sock", "resolve_unix":
		return r.Pipes
	}
	// Devices are never made, and of newer rights no rule speaks.
	return false
}
