// Package jail says what the kernel is told for one run. Its centre is the Plan: a plain value, made by a pure function from an
// effective policy, that prints as JSON and that its sub-packages carry out, so that what is reviewed is what is enforced.
package jail

import (
	"fmt"
	"strings"
	"time"
)

// PlanVersion is the version of the Plan's JSON form.
const PlanVersion = 1

// A Plan is everything that the kernel is told for one run, layer by layer from the outside to the inside.
// A run has all of it, or it does not start.
type Plan struct {
	Version int    `json:"version"`
	ID      ID     `json:"id"`
	Policy  string `json:"policy"` // digest of the effective policy
	// Layers are the policies that it is the meet of, in the order of trust.
	Layers []Layer `json:"layers"`

	Cgroup     Cgroup      `json:"cgroup"`
	Namespaces []Namespace `json:"namespaces"`
	IDs        IDs         `json:"ids"`
	Hostname   string      `json:"hostname"`
	Mounts     []Mount     `json:"mounts"` // in the order in which they are made; the root is a fresh read-only tmpfs
	Devices    []string    `json:"devices"`
	Files      []File      `json:"files,omitempty"` // of the root itself, read-only
	Workspace  *Workspace  `json:"workspace,omitempty"`
	Fetch      *Fetch      `json:"fetch,omitempty"` // nil: no network at all

	Capabilities    []string `json:"capabilities"` // in any set: always none
	NoNewPrivileges bool     `json:"no_new_privileges"`
	OuterFilter     Filter   `json:"outer_filter"` // from before the first instruction inside
	Landlock        Landlock `json:"landlock"`
	Rlimits         []Rlimit `json:"rlimits"`
	InnerFilter     Filter   `json:"inner_filter"` // on top of the outer one, from before the tool's first instruction
	// Ceiling is the host's ceiling as layers of its own around the tool; nil where the host has none.
	Ceiling *Ceiling `json:"ceiling,omitempty"`

	Limits Limits `json:"limits"` // watched from outside
	// FileEvents is what the daemon puts on record of the files that the run opens or writes: changes, opens, or empty for nothing.
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

// Cgroup is the control group leaf of one jail. It is made for it and never used again: on many kernels a cgroup that was
// killed through cgroup.kill kills whatever is cloned into it later.
type Cgroup struct {
	Path      string `json:"path"`          // below the root of every hierarchy
	Memory    int64  `json:"memory"`        // bytes, swap included
	CPUQuota  int64  `json:"cpu_quota_us"`  // microseconds of CPU time in each period; 0 is none
	CPUPeriod uint64 `json:"cpu_period_us"` // microseconds
	PIDs      int64  `json:"pids"`          // tasks: processes and threads
	IORead    int64  `json:"io_read"`       // bytes a second, from each disk that the run uses; 0 is no bound
	IOWrite   int64  `json:"io_write"`      // bytes a second, to each
	OOMScore  int    `json:"oom_score_adj"` // the jail goes first when the host runs out of memory
}

// IDs says who the tool is, inside and on the host. Base is the first of 64 Ki host ids that are the jail's own while it lives;
// id n inside is Base+n outside, so a workspace's files keep their owners.
type IDs struct {
	Base uint32 `json:"base"`
	Size uint32 `json:"size"`
	UID  uint32 `json:"uid"` // inside
	GID  uint32 `json:"gid"` // inside
	// Extra maps one owner id above the 64 Ki range, where a workspace has one.
	Extra []IDMap `json:"extra,omitempty"`
	// User says that the jail is an ordinary user's: its only ids are those of the user, Base and, of the group, GroupBase.
	User      bool   `json:"user,omitempty"`
	GroupBase uint32 `json:"group_base,omitempty"`
}

// HostGroup is what group 0 of the jail is on the host.
func (i IDs) HostGroup() uint32 {
	if i.User {
		return i.GroupBase
	}
	return i.Base
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
	MountPTS   = "devpts" // terminals of the jail's own; the only mount beside the device nodes that is not nodev
)

// A Mount is one mount of the jail's root. Everything is nosuid and nodev.
type Mount struct {
	Kind   string `json:"kind"`
	Source string `json:"source,omitempty"` // of a bind: a path of the host
	Target string `json:"target"`
	Write  bool   `json:"write"`
	Exec   bool   `json:"exec"`
	Size   int64  `json:"size,omitempty"`  // bytes, of a tmpfs
	Files  int64  `json:"files,omitempty"` // inodes, of a tmpfs
}

// A File is made for the jail and holds nothing of the host's.
type File struct {
	Path string `json:"path"`
	Text string `json:"text"`
	// Link makes it a symbolic link to that path.
	Link string `json:"link,omitempty"`
}

// Workspace is the tree that the tool works on.
type Workspace struct {
	Source string `json:"source"`
	Target string `json:"target"`
	Shadow bool   `json:"shadow"`          // false: the real directory, read-only
	Exec   bool   `json:"exec,omitempty"`  // programs in it may run
	Bytes  int64  `json:"bytes,omitempty"` // of the upper layer
	Files  int64  `json:"files,omitempty"` // of the upper layer
}

// Fetch says that the jail has a door to the fetch proxy: a socket that hands out streams, and the only way out. What may be asked for on them is
// shown here in the words of the policy; the proxy has it from the policy itself.
type Fetch struct {
	Allow  []string `json:"allow"`
	Deny   []string `json:"deny,omitempty"`
	Limits string   `json:"limits"`
	Mode   string   `json:"mode"` // enforce or report
	// TLS says who ends the TLS of a tool: "intercept", the proxy with an authority of the run's own, but for hosts whose rule says opaque; or
	// "opaque", since only a tunnel to such a host is granted and the proxy speaks TLS for everything else.
	TLS string `json:"tls"`
}

// A Filter is a seccomp allow-list: what is not named fails with Errno, and with ENOSYS where nobody knows a call of that number.
type Filter struct {
	Groups []string    `json:"groups"`
	Allow  []string    `json:"allow"` // sorted
	Only   []Condition `json:"only"`  // on the arguments of calls of Allow
	ENOSYS []string    `json:"enosys"`
	Errno  string      `json:"errno"`
}

// A Condition allows a call only where the bits of Mask in its argument have the values of Value. Where a call has several, one is enough.
// A filter sees 64 bits of what the kernel may read as 32: no mask goes beyond what the kernel reads.
type Condition struct {
	Call  string `json:"call"`
	Arg   uint   `json:"arg"` // from 0
	Mask  uint64 `json:"mask"`
	Value uint64 `json:"value"`
	// And must hold besides.
	And []Bits `json:"and,omitempty"`
}

// Bits are a demand on one more argument of a Condition.
type Bits struct {
	Arg   uint   `json:"arg"` // from 0
	Mask  uint64 `json:"mask"`
	Value uint64 `json:"value"`
}

// String returns the condition in readable form: "socket(0=0x1, 1&0xf=0x1)", where an argument of which all 32 bits count has no mask.
func (c Condition) String() string {
	var parts []string
	for _, b := range append([]Bits{{c.Arg, c.Mask, c.Value}}, c.And...) {
		mask := ""
		if b.Mask != low {
			mask = fmt.Sprintf("&%#x", b.Mask)
		}
		parts = append(parts, fmt.Sprintf("%d%s=%#x", b.Arg, mask, b.Value))
	}
	return c.Call + "(" + strings.Join(parts, ", ") + ")"
}

// Landlock is the domain that jail-init puts itself into. Paths are those inside the jail.
type Landlock struct {
	MinABI int            `json:"min_abi"`
	Rules  []LandlockRule `json:"rules"`
	// Scoped asks for abstract sockets and signals to be kept inside where the kernel can (ABI 6); the network and
	// process namespaces keep them inside everywhere.
	Scoped bool `json:"scoped"`
	// Network leaves TCP alone: for the fetch proxy, and for programs that may use the jail's own loopback as they like.
	Network bool `json:"network,omitempty"`
	// Ports are those of TCP that may be listened on and connected to where Network is not set, and the kernel can tell (ABI 4).
	Ports []uint16 `json:"ports,omitempty"`
	// Told asks the kernel to write what is refused to the host's audit log, from LandlockTells on; that forbids nothing more.
	Told bool `json:"told,omitempty"`
}

// LandlockTells is the version of Landlock from which on it can tell what it refuses (Linux 6.15).
const LandlockTells = 7

// A LandlockRule grants access below one path.
type LandlockRule struct {
	Path  string `json:"path"`
	Write bool   `json:"write"`
	Exec  bool   `json:"exec"`
	// Device lets what is opened below the path be asked by ioctl(2) what a device is asked; the filters say which requests there are.
	Device bool `json:"device,omitempty"`
	// Pipes lets sockets and pipes with a name be made below the path.
	Pipes bool `json:"pipes,omitempty"`
}

// An Rlimit bounds a resource of each process (setrlimit(2)); soft and hard limit are the same.
type Rlimit struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// Limits are those that the daemon watches, in nanoseconds and bytes.
type Limits struct {
	Wall    time.Duration `json:"wall"`
	CPUTime time.Duration `json:"cpu_time"`
	Output  int64         `json:"output"` // stdout and stderr together
}

// Runners of commands.
const (
	RunnerWASI    = "wasi"    // one module
	RunnerShell   = "shell"   // a script whose every command is a module
	RunnerCompile = "compile" // a module, which does not run
	RunnerNative  = "native"  // a program of the host, and those that it starts
)

// Command is what runs inside, for reading: bytes of an argument that are no text are shown escaped. The exact bytes travel
// in the invocation.
type Command struct {
	Runner string   `json:"runner"` // "wasi", "shell" or "native"
	Tool   string   `json:"tool"`   // as it was found: core-utils/grep, /path/x.wasm
	Digest string   `json:"digest"` // of the module, "sha256:" and hex
	Args   []string `json:"args"`   // Args[0] is the command's name
	Env    []string `json:"env"`
	Cwd    string   `json:"cwd"`
	// Terminal says that the tool has a terminal of the jail's own on its streams.
	Terminal bool `json:"terminal,omitempty"`
	// Script lists the commands of a shell script, in its order.
	Script []ScriptCommand `json:"script,omitempty"`
}

// A ScriptCommand is one simple command of a shell script.
type ScriptCommand struct {
	Line    uint   `json:"line"`
	Column  uint   `json:"column"`
	Text    string `json:"text"`
	Tool    string `json:"tool,omitempty"`    // as it was found; empty where only a run can tell
	Refused string `json:"refused,omitempty"` // why it may not run, or that it was not found
	// Needs is what a command of a pulled bundle is kept to, beside the script's policy.
	Needs *ScriptNeeds `json:"needs,omitempty"`
}

// ScriptNeeds are the hosts and the places of mounts that a bundle asks for.
type ScriptNeeds struct {
	Hosts  []string `json:"hosts"`
	Mounts []string `json:"mounts"`
}
