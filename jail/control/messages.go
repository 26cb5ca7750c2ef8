package control

import (
	"errors"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
)

// ShimControl is jail-shim's descriptor of its control socket to jaild. All others come with the
// order.
const ShimControl = 3

// Indexes of the descriptors that come with an order. The first three become the tool's streams.
const (
	ShimIn = iota
	ShimOut
	ShimErr
	// the host's end of jail-init's control socket
	ShimInitHost
	ShimInitJail // the jail's end
	// the workspace's real directory, or /dev/null
	ShimLower
	// The detached mount of the upper layer, or /dev/null.
	ShimUpper
	// The network namespace that the plan's NetworkOf names, or /dev/null.
	ShimNetwork
	// From here on: the sources of the binds, in the plan's order, then the frozen layers of the
	// shadow, the newest first, and then the descriptors of Order.Passed.
	ShimBinds
)

// Descriptors of jail-init at its start, besides the tool's streams 0, 1 and 2.
const (
	InitControl = 3 // its control socket
	// a socket to jail-shim for one message with the inner filter's listener; closed afterwards
	InitListener = 4
	// From here on, in a jail with a kernel of its own: the descriptors that otherwise come with
	// the invocation. Inside bubblewrap this one is the tool's standard error.
	InitPassed = 5
)

// Order tells jail-shim what to start.
type Order struct {
	Plan jail.Plan `json:"plan"`
	// Private to this run: libcontainer's state, mount points.
	RunDir string `json:"run_dir"`
	// The jail-init binary on the host.
	InitPath string `json:"init_path"`
	// Shared lists the targets of mounts that come from another jail (see Share): the workspace,
	// whose mount is ShimLower, and tmpfs mounts, whose mounts are among the binds. This jail
	// mounts nothing of its own there.
	Shared []string `json:"shared,omitempty"`
	// Later is true for a prewarmed jail: the shadow of its workspace comes with Attach, after the
	// jail has restricted itself. The plan must allow that (jail.Workspace.MayComeLater).
	Later bool `json:"later,omitempty"`
	// Frozen is the number of frozen layers of the shadow.
	Frozen int `json:"frozen,omitempty"`
	// Passed is the number of descriptors that jail-init gets at its start, from InitPassed on, for
	// a jail whose kernel cannot receive them in messages. They come after the frozen layers.
	Passed int `json:"passed,omitempty"`
	// Proxy says that the last of Passed is the control socket of the fetch proxy. jail-shim keeps
	// it and gives jail-init a socket that multiplexes streams (package streams).
	Proxy bool `json:"proxy,omitempty"`
	// Patience is the time that jail-init may take to restrict itself after it has its
	// restrictions.
	Patience time.Duration `json:"patience"`
	// Files is the number of descriptors that come with the order. SendOrder sets it.
	Files int `json:"files"`
}

// more is a message that carries further descriptors of an order.
type more struct{}

// Ask is a request of jaild to a jail-shim whose jail exists. Exactly one field is set.
type Ask struct {
	Share  *Share  `json:"share,omitempty"`
	Attach *Attach `json:"attach,omitempty"`
	// Ready asks whether the jail still exists; the answer is Done.
	Ready bool `json:"ready,omitempty"`
	// Refresh makes the workspace's shadow show the present state of its directory; the answer is
	// Done.
	Refresh bool `json:"refresh,omitempty"`
}

// Share asks jail-shim for a copy of its jail's mount at Target: the shadow of its workspace, or a
// tmpfs.
type Share struct {
	Target string `json:"target"`
}

// Attach tells jail-shim to attach the shadow of the workspace, or the state of the agent, as the
// order's plan says. With it come the descriptors of the shadow (ShimLower, ShimUpper and the
// frozen layers) or of the state (ShimLower). It is sent once, and only if the order said Later.
type Attach struct{}

// Shared is the answer to Share. The detached mount comes with it unless Error is set.
type Shared struct {
	Error string `json:"error,omitempty"`
}

// Done is the answer to Attach, Ready and Refresh. After an error of Attach or Ready the jail has
// ended.
type Done struct {
	Error string `json:"error,omitempty"`
}

// FromShim is a message of jail-shim. Exactly one of the fields but the last is set.
type FromShim struct {
	Started *Started `json:"started,omitempty"`
	Failed  *Failed  `json:"failed,omitempty"`
	Exited  *Exited  `json:"exited,omitempty"`
	Shared  *Shared  `json:"shared,omitempty"`
	Done    *Done    `json:"done,omitempty"`
	// Refused comes with Exited: the system calls that the inner filter refused, as the kernel
	// reported them.
	Refused []Refused `json:"refused,omitempty"`
}

// Started says that the jail is set up and that the restrictions and the filter are in jail-init's
// socket.
type Started struct {
	// PID of jail-init in the host's PID namespace.
	PID int `json:"pid"`
}

// Failed says that the jail could not be set up and that nothing of it is left.
type Failed struct {
	// Which layer: "namespaces", "workspace", "seccomp", ….
	Layer string `json:"layer"`
	Error string `json:"error"`
	// Errno is the kernel's error number, 0 if there is none.
	Errno syscall.Errno `json:"errno,omitempty"`
}

// FailedOf returns the message for an error of a layer.
func FailedOf(layer string, err error) *Failed {
	f := &Failed{Layer: layer, Error: err.Error()}
	_ = errors.As(err, &f.Errno)
	return f
}

// Exited says how the jail's first process ended.
type Exited struct {
	// The exit code, if no signal ended it.
	Code int `json:"code"`
	// The signal that ended it, else 0.
	Signal int `json:"signal"`
}

// Refused is a system call that was refused, and how often.
type Refused struct {
	// Its name with the deciding arguments, as seccomp.Describe writes them: "socket(AF_VSOCK)".
	What  string    `json:"what"`
	Count int64     `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Listener says that jail-init has loaded the inner filter. The filter's listener comes with it
// unless the filter is silent.
type Listener struct{}

// Restrict is the first order to jail-init: the restrictions that it applies to itself.
type Restrict struct {
	Rlimits  []jail.Rlimit `json:"rlimits"`
	Landlock jail.Landlock `json:"landlock"`
	// Ceiling is the domain of the host's ceiling, applied before the plan's.
	Ceiling *jail.Landlock `json:"ceiling,omitempty"`
	// KernelInside says that the jail has a kernel of its own without Landlock. The outer layer
	// enforces the rlimits and the rights of the mounts.
	KernelInside bool `json:"kernel_inside,omitempty"`
	// Passed is the number of descriptors from InitPassed on that jail-init keeps.
	Passed int `json:"passed,omitempty"`
}

// Unable is sent by jail-init in place of a report if it could not restrict itself. The tool has
// not run.
type Unable struct {
	Layer   string `json:"layer"`
	Failure string `json:"failure"`
}

// Filter is jail-init's second order: the inner seccomp filter, compiled outside.
type Filter struct {
	Program []byte `json:"program"` // struct sock_filter instructions
	// the filter of the host's ceiling, loaded before it
	Ceiling []byte `json:"ceiling,omitempty"`
	// Silent says that the filter has no listener: it refuses calls with an errno.
	Silent bool `json:"silent,omitempty"`
}

// ShimFilterArg is the argument that makes jail-shim compile a filter from standard input.
const ShimFilterArg = "filter"

// OpenStream is the message by which the inside of a jail requests a stream to its fetch proxy.
//
// Scope 0 has the rights of the run; scope n is the n-th narrower set of rights that the proxy was
// given. A tool can name any scope, since none grants more than the run has.
type OpenStream struct {
	Scope int `json:"scope,omitempty"`
	// Event, if not nil, asks for no stream: it names the event that an agent works on from now on,
	// as AGENT/SEQ, or is "" for none. The proxy sets the Idempotency-Key of the event's requests.
	Event *string `json:"event,omitempty"`
}

// Opened is the response to OpenStream, with the stream's descriptor unless it is refused.
type Opened struct {
	Refused bool `json:"refused,omitempty"`
}
