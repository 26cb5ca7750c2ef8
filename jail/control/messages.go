package control

import (
	"errors"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
)

// ShimControl is the descriptor of jail-shim at its start that leads to jaild. All others come with
// its order.
const ShimControl = 3

// Places of the descriptors that come with an order. The first three become the tool's.
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
	// And on: the sources of the binds, in the plan's order, then the frozen layers of the shadow,
	// the newest first, and then what is passed to jail-init at its start.
	ShimBinds
)

// Descriptors of jail-init at its start, beside 0, 1 and 2, which are the tool's.
const (
	InitControl = 3 // its control socket
	// a socket to jail-shim that takes one message, the inner filter's listener, and is closed then
	InitListener = 4
	// And on, where the jail has a kernel of its own: what else would come with the invocation. Inside
	// bubblewrap this one is the tool's standard error.
	InitPassed = 5
)

// Order tells jail-shim what to start.
type Order struct {
	Plan jail.Plan `json:"plan"`
	// Private to this run: libcontainer's state, mount points.
	RunDir string `json:"run_dir"`
	// The jail-init binary on the host.
	InitPath string `json:"init_path"`
	// Shared are targets of mounts that are another jail's too, as that one hands them out: of the
	// workspace, whose mount comes as ShimLower, and of tmpfs mounts, each of which comes among the
	// binds. This jail makes none of its own there.
	Shared []string `json:"shared,omitempty"`
	// Later says that the jail is made before its run is known: the shadow of its workspace comes
	// with Attach, to a jail that has restricted itself. The plan must allow that
	// (jail.Workspace.MayComeLater).
	Later bool `json:"later,omitempty"`
	// Frozen is the number of frozen layers of the shadow.
	Frozen int `json:"frozen,omitempty"`
	// Passed is the number of descriptors that jail-init gets at its start, for a jail whose kernel
	// takes none out of messages: the modules of the invocation. They come after the frozen layers.
	Passed int `json:"passed,omitempty"`
	// Proxy says that the last of Passed is the control socket of the fetch proxy, which jail-shim
	// keeps: jail-init gets a stream in its place that carries many.
	Proxy bool `json:"proxy,omitempty"`
	// Patience is how long jail-init may take to restrict itself once it has its restrictions.
	Patience time.Duration `json:"patience"`
	// Files is the number of descriptors that come with the order. SendOrder sets it.
	Files int `json:"files"`
}

// more carries the descriptors of an order for which the messages before it had no room.
type more struct{}

// Ask is what jaild asks of a jail-shim whose jail stands. One of its fields is set.
type Ask struct {
	Share  *Share  `json:"share,omitempty"`
	Attach *Attach `json:"attach,omitempty"`
	// Whether the jail is still there; the answer is Done.
	Ready bool `json:"ready,omitempty"`
	// Refresh has the shadow of the workspace show its directory as it is now; the answer is Done.
	Refresh bool `json:"refresh,omitempty"`
}

// Share asks jail-shim for one more mount of what its jail has at Target: the shadow of its
// workspace, or a tmpfs.
type Share struct {
	Target string `json:"target"`
}

// Attach tells jail-shim to attach the shadow of the workspace, or the state of the agent, where the
// order's plan has it. The layers of the one come with it: the two that would have been ShimLower and
// ShimUpper, and the frozen ones. The other comes as ShimLower would have. Attach is sent once, and
// only if the order said Later.
type Attach struct{}

// Shared is the answer to Share. The mount comes with it, detached, unless there is an error.
type Shared struct {
	Error string `json:"error,omitempty"`
}

// Done is the answer to Attach, Ready and Refresh. After an error of the first two there is no jail
// any more.
type Done struct {
	Error string `json:"error,omitempty"`
}

// FromShim is what jail-shim says; exactly one of the fields but the last is set.
type FromShim struct {
	Started *Started `json:"started,omitempty"`
	Failed  *Failed  `json:"failed,omitempty"`
	Exited  *Exited  `json:"exited,omitempty"`
	Shared  *Shared  `json:"shared,omitempty"`
	Done    *Done    `json:"done,omitempty"`
	// Refused comes with Exited: the system calls that the inner filter refused, as the kernel
	// reported them, not the jail.
	Refused []Refused `json:"refused,omitempty"`
}

// Started says that the jail is set up and jail-init has its restrictions and filter in its socket.
type Started struct {
	// Of jail-init, in the host's process namespace.
	PID int `json:"pid"`
}

// Failed says that the jail could not be set up. Nothing of it is left.
type Failed struct {
	// Which layer: "namespaces", "workspace", "seccomp", ….
	Layer string `json:"layer"`
	Error string `json:"error"`
	// Errno is the kernel's part of the error, 0 where there is none.
	Errno syscall.Errno `json:"errno,omitempty"`
}

// FailedOf returns what is to be said of an error of a layer.
func FailedOf(layer string, err error) *Failed {
	f := &Failed{Layer: layer, Error: err.Error()}
	_ = errors.As(err, &f.Errno)
	return f
}

// Exited is how the jail's first process ended.
type Exited struct {
	// If it ended by itself.
	Code int `json:"code"`
	// If it was killed, else 0.
	Signal int `json:"signal"`
}

// Refused is a system call that was refused, and how often.
type Refused struct {
	// Its name, with what it asked for: "socket(AF_VSOCK)".
	What  string    `json:"what"`
	Count int64     `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Listener is what jail-init says when the inner filter is in force. The filter's listener comes
// with it.
type Listener struct{}

// Restrict is jail-init's first order: what it takes from itself.
type Restrict struct {
	Rlimits  []jail.Rlimit `json:"rlimits"`
	Landlock jail.Landlock `json:"landlock"`
	// Ceiling is the host's own domain, put on before the plan's.
	Ceiling *jail.Landlock `json:"ceiling,omitempty"`
	// KernelInside says that the kernel of the jail is not the host's and has no Landlock: the outer
	// layer holds the rlimits and the rights of the mounts.
	KernelInside bool `json:"kernel_inside,omitempty"`
	// Passed is the number of descriptors from InitPassed on that jail-init keeps.
	Passed int `json:"passed,omitempty"`
}

// Unable is what jail-init says in place of a report when it could not restrict itself. The tool
// has not run.
type Unable struct {
	Layer   string `json:"layer"`
	Failure string `json:"failure"`
}

// Filter is jail-init's second order: the inner seccomp filter, compiled outside.
type Filter struct {
	Program []byte `json:"program"` // struct sock_filter instructions
	// the host's own, put on before it
	Ceiling []byte `json:"ceiling,omitempty"`
	// Silent says that there is no listener: the filter refuses with an error.
	Silent bool `json:"silent,omitempty"`
}

// ShimFilterArg is the argument with which jail-shim compiles a filter that it reads from standard
// input.
const ShimFilterArg = "filter"

// OpenStream is the message by which the inside of a jail requests a stream to its fetch proxy.
//
// Scope 0 is the run's own; scope n is the n-th narrower one that the proxy was given. A tool can
// name any of them: none grants more than the run has.
type OpenStream struct {
	Scope int `json:"scope,omitempty"`
	// Event asks for no stream: it names the event that an agent works on from now on, as AGENT/SEQ,
	// or is empty for none. The proxy gives the requests of an event their Idempotency-Key.
	Event *string `json:"event,omitempty"`
}

// Opened is the response to OpenStream, with the stream's descriptor unless it is refused.
type Opened struct {
	Refused bool `json:"refused,omitempty"`
}
