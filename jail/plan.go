// Package jail describes what the kernel enforces for one run. Its centre is the Plan, a plain
// value that a pure function makes from an effective policy. It can be printed as JSON and
// reviewed, and the sub-packages enforce exactly that.
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
	// Layers are the policies whose intersection the effective policy is, the most trusted first.
	Layers []Layer `json:"layers"`

	Cgroup     Cgroup      `json:"cgroup"`
	Namespaces []Namespace `json:"namespaces"`
	// NetworkOf is the jail whose network namespace this jail shares, in a session; else absent.
	NetworkOf ID     `json:"network_of,omitempty"`
	IDs       IDs    `json:"ids"`
	Hostname  string `json:"hostname"`
	// In the order in which they are mounted. The root is a fresh read-only tmpfs, or the image,
	// which is the first mount then.
	Mounts  []Mount  `json:"mounts"`
	Devices []string `json:"devices"`
	// Files in the root itself.
	Files     []File     `json:"files,omitempty"`
	Workspace *Workspace `json:"workspace,omitempty"`
	// absent: no network at all
	Fetch *Fetch `json:"fetch,omitempty"`

	// In all capability sets: always none.
	Capabilities    []string `json:"capabilities"`
	NoNewPrivileges bool     `json:"no_new_privileges"`
	// In force before the first instruction inside.
	OuterFilter seccomp.Filter `json:"outer_filter"`
	Landlock    Landlock       `json:"landlock"`
	Rlimits     []Rlimit       `json:"rlimits"`
	// Limits of what the kernel counts in the jail's user namespace.
	UserCounts []UserCount `json:"user_counts"`
	// In addition to the outer filter, in force before the tool's first instruction.
	InnerFilter seccomp.Filter `json:"inner_filter"`
	// The host's ceiling as layers of its own around the tool; absent if the host has none.
	Ceiling *Ceiling `json:"ceiling,omitempty"`
	// Outer is the third-party sandbox around the jail; absent if there is none.
	Outer *Outer `json:"outer,omitempty"`

	Limits Limits `json:"limits"` // watched from outside
	// Which file accesses of the run are recorded: changes, opens, or (if absent) none.
	FileEvents string  `json:"file_events,omitempty"`
	Command    Command `json:"command"`
}

// A Layer names one of the policies of a run and its source.
type Layer struct {
	Name   string `json:"name"`
	Source string `json:"source"`
}

// A Namespace is the name of a kind of namespace, as in namespaces(7).
type Namespace string

// Cgroup is the cgroup leaf of one jail. It is never used again: on many kernels a cgroup that was
// killed through cgroup.kill kills whatever is cloned into it later.
type Cgroup struct {
	// The path below the root of every hierarchy.
	Path   string `json:"path"`
	Memory int64  `json:"memory"` // bytes, swap included
	// microseconds of CPU time in each period; 0 is no limit
	CPUQuota  int64  `json:"cpu_quota_us"`
	CPUPeriod uint64 `json:"cpu_period_us"` // microseconds
	PIDs      int64  `json:"pids"`          // tasks: processes and threads
	// bytes per second read from each disk that the run uses; 0 is no limit
	IORead int64 `json:"io_read"`
	// Bytes per second written to each disk; 0 is no limit.
	IOWrite int64 `json:"io_write"`
	// High, so that the jail is killed first if the host runs out of memory.
	OOMScore int `json:"oom_score_adj"`
}

// IDs are the tool's ids inside and on the host. Base is the first of 65536 host ids that belong to
// the jail while it lives; id n inside is Base+n on the host.
type IDs struct {
	Base uint32 `json:"base"`
	Size uint32 `json:"size"`
	UID  uint32 `json:"uid"` // inside
	GID  uint32 `json:"gid"` // inside
	// Extra maps the uid or gid of the workspace, or of the agent's directory, if one is above the
	// range. It takes the last host id of the range.
	Extra []IDMap `json:"extra,omitempty"`
	// The jail is an ordinary user's: its only ids are the user's, base, and the group's,
	// group_base.
	User      bool   `json:"user,omitempty"`
	GroupBase uint32 `json:"group_base,omitempty"`
	// Owner is the host uid that owns the jail's user namespace. The kernel charges counts of the
	// namespace to it (user_namespaces(7)), so no two jails and no user share it.
	Owner uint32 `json:"owner"`
}

// HostGroup returns the host gid of group 0 of the jail.
func (i IDs) HostGroup() uint32 {
	if i.User {
		return i.GroupBase
	}
	return i.Base
}

// Host returns the tool's uid and gid on the host.
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
	// MountState is the directory of an agent's database. Its descriptor takes the place of the
	// workspace's real directory, since no agent has a workspace.
	MountState = "state"
	// MountCache is a directory on a file system of limited size that later runs get too.
	MountCache = "cache"
	// MountPTS is a devpts of the jail's own, the only mount besides the device nodes without
	// nodev.
	MountPTS = "devpts"
	// MountImage is the root file system of an image, with an upper layer in memory that ends with
	// the jail. It is the first mount, at /, in place of a tmpfs.
	MountImage = "image"
	// MountMachine is a file or directory of the jail's own that shows the machine as the limits
	// give it, read-only. Package machine writes it.
	MountMachine = "machine"
)

// MachineInProc reports whether files of the machine are mounted in the jail's proc. Then proc is
// narrowed to processes only after they are mounted.
func (p Plan) MachineInProc() bool { return slices.ContainsFunc(p.Mounts, Mount.InProc) }

// InProc reports whether m is a file of the machine below /proc. The Landlock rule of /proc covers
// it.
func (m Mount) InProc() bool { return m.Kind == MountMachine && paths.Within("/proc", m.Target) }

// MachineFile returns the path in the root of the source of a MountMachine.
func (m Mount) MachineFile() string {
	return path.Join(MachineDir, strings.TrimPrefix(m.Target, "/proc"))
}

// HasSource reports whether a descriptor comes with the order for the mount.
func (m Mount) HasSource() bool {
	return m.Kind == MountBind || m.Kind == MountCache || m.Kind == MountImage
}

// ImageRoot returns the mount of the image that is the root, or nil if the root is a tmpfs.
func (p Plan) ImageRoot() *Mount {
	if len(p.Mounts) > 0 && p.Mounts[0].Kind == MountImage {
		return &p.Mounts[0]
	}
	return nil
}

// A Mount is one mount of the jail's root. Everything is nosuid and nodev.
type Mount struct {
	Kind string `json:"kind"`
	// For a bind, state or image: a path of the host. For a cache: its id, which says for whom it
	// is kept.
	Source string `json:"source,omitempty"`
	// For a cache, its name in the policy; for an image, its digest.
	Name   string `json:"name,omitempty"`
	Target string `json:"target"`
	Write  bool   `json:"write"`
	Exec   bool   `json:"exec"`
	// Size in bytes of a tmpfs, a cache, or the upper layer of an image.
	Size  int64 `json:"size,omitempty"`
	Files int64 `json:"files,omitempty"` // inodes, of a tmpfs or an upper layer
}

// HostsAgent reports whether the jail has the database of an agent.
func (p Plan) HostsAgent() bool {
	return slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.Kind == MountState })
}

// GuestLandlock returns the domain of an agent's program: the jail's without the directory of the
// database.
func (p Plan) GuestLandlock() Landlock {
	l := p.Landlock
	l.Rules = slices.DeleteFunc(slices.Clone(l.Rules),
		func(r LandlockRule) bool { return r.Path == agentParent })
	return l
}

// A File is a file that is made for the jail, with nothing of the host in it.
type File struct {
	Path string `json:"path"`
	Text string `json:"text"`
	// If set, the file is a symbolic link to this path.
	Link string `json:"link,omitempty"`
}

// Workspace is the tree that the tool works on.
type Workspace struct {
	Source string `json:"source"`
	Target string `json:"target"`
	// Seen is the path by which the tool knows the workspace; if absent, SeenPath of Target.
	Seen string `json:"seen,omitempty"`
	// false: the real directory, read-only
	Shadow bool `json:"shadow"`
	// Native programs in it may run.
	Exec  bool  `json:"exec,omitempty"`
	Bytes int64 `json:"bytes,omitempty"` // of the upper layer
	Files int64 `json:"files,omitempty"` // of the upper layer
}

// Fetch says that the jail has a socket to the fetch proxy, its only way to the network. Allow and
// Deny show the rules of the policy; the proxy takes them from the policy itself.
type Fetch struct {
	// Rules in the syntax of the policy.
	Allow []string `json:"allow"`
	// Deny overrides Allow.
	Deny   []string `json:"deny,omitempty"`
	Limits string   `json:"limits"`
	Mode   string   `json:"mode"` // enforce or report
	// TLS says who terminates a tool's TLS. "intercept": the proxy, with a certificate authority
	// for the run, except for hosts whose rule says opaque. "opaque": the host, since tunnels only
	// to such hosts are granted; the proxy itself speaks TLS for all other requests.
	TLS string `json:"tls"`
}

// Landlock is the domain that jail-init enters. Paths are paths inside the jail.
type Landlock struct {
	MinABI int            `json:"min_abi"`
	Rules  []LandlockRule `json:"rules"`
	// Scoped restricts abstract sockets and signals to the domain if the kernel can (ABI 6). The
	// network and PID namespaces keep them inside on every kernel.
	Scoped bool `json:"scoped"`
	// Network does not restrict TCP: for the fetch proxy, and for programs that may use the jail's
	// own loopback freely.
	Network bool `json:"network,omitempty"`
	// TCP ports that may be bound and connected to, if network is not set and the kernel can
	// restrict TCP (ABI 4).
	Ports []uint16 `json:"ports,omitempty"`
	// Asks the kernel to write refusals to the host's audit log if it can (ABI 7). It restricts
	// nothing.
	Told bool `json:"told,omitempty"`
}

// LandlockTells is the first Landlock ABI that can log refusals (Linux 6.15).
const LandlockTells = 7

// A LandlockRule grants access below one path.
type LandlockRule struct {
	Path  string `json:"path"`
	Write bool   `json:"write"`
	Exec  bool   `json:"exec"`
	// Device allows ioctl(2) on devices below the path. The seccomp filters restrict the requests.
	Device bool `json:"device,omitempty"`
	// Pipes allows to make named pipes and Unix sockets below the path, and to connect to such
	// sockets of other invocations.
	Pipes bool `json:"pipes,omitempty"`
}

// A UserCount is the limit of one kind of object in the jail's user namespace.
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

// Limits are the limits that the daemon enforces, in nanoseconds and bytes.
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

// Command describes what runs inside, for display: bytes of an argument that are not text are
// escaped. The invocation has the exact bytes.
type Command struct {
	// wasi: one module. shell: a script whose every command is a module. native: a program of
	// the host.
	Runner string `json:"runner"`
	// The tool as it was found: core-utils/grep, /path/x.wasm.
	Tool string `json:"tool"`
	// Digest of the module, "sha256:" and hex.
	Digest string `json:"digest"`
	// Args[0] is the command's name
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Cwd  string   `json:"cwd"`
	// The tool's streams are a terminal of the jail's own devpts.
	Terminal bool `json:"terminal,omitempty"`
	// Script lists the commands of a shell script in the order of its text.
	Script []ScriptCommand `json:"script,omitempty"`
}

// A ScriptCommand is one simple command of a shell script.
type ScriptCommand struct {
	Line   uint   `json:"line"`
	Column uint   `json:"column"`
	Text   string `json:"text"`
	// The tool as it was found; absent if only the run determines it.
	Tool string `json:"tool,omitempty"`
	// Why it may not run, or that it was not found.
	Refused string `json:"refused,omitempty"`
	// Needs restricts a command of a pulled bundle further than the script's policy.
	Needs *ScriptNeeds `json:"needs,omitempty"`
}

// ScriptNeeds are the hosts and mount targets that a bundle asks for.
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

// Grants reports whether the domain grants all of the rights, by the kernel's names ("read_file"),
// on a path of the jail. As in the kernel, the rules of all directories above the path add up.
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

// Says describes, for display, the rule of the domain that is nearest to path and what it grants.
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
	// No rule grants to make devices, or rights that are unknown here.
	return false
}
