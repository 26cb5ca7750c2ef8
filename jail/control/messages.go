package control

import (
	"time"

	"github.com/jail-sandbox/jail/jail"
)

// Descriptors of jail-shim at its start, beside 0, 1 and 2, which become the tool's.
const (
	ShimControl  = 3 // to jaild
	ShimInitHost = 4 // the host's end of jail-init's control socket
	ShimInitJail = 5 // the jail's end
	ShimLower    = 6 // the workspace's real directory, or /dev/null
	ShimUpper    = 7 // the detached mount of the upper layer, or /dev/null
	ShimBinds    = 8 // and on: the sources of the binds, in the plan's order
)

// Descriptors of jail-init at its start, beside 0, 1 and 2, which are the tool's.
const (
	InitControl  = 3 // its control socket
	InitListener = 4 // a socket to jail-shim that takes one message, the inner filter's listener, and is closed then
)

// Order tells jail-shim what to start.
type Order struct {
	Plan     jail.Plan `json:"plan"`
	RunDir   string    `json:"run_dir"`   // private to this run: libcontainer's state, mount points
	InitPath string    `json:"init_path"` // the jail-init binary on the host
}

// FromShim is what jail-shim says; exactly one of the first three fields is set.
type FromShim struct {
	Started *Started `json:"started,omitempty"`
	Failed  *Failed  `json:"failed,omitempty"`
	Exited  *Exited  `json:"exited,omitempty"`
	// Refused comes with Exited: the system calls that the inner filter refused. The kernel told of them, not the jail.
	Refused []Refused `json:"refused,omitempty"`
}

// Started says that the jail stands and jail-init has its restrictions and filter in its socket.
type Started struct {
	PID int `json:"pid"` // of jail-init, in the host's process namespace
}

// Failed says that the jail could not be set up. Nothing of it is left.
type Failed struct {
	Layer string `json:"layer"` // which layer: "namespaces", "workspace", "seccomp", …
	Error string `json:"error"`
}

// Exited is how the jail's first process ended.
type Exited struct {
	Code   int `json:"code"`   // if it ended by itself
	Signal int `json:"signal"` // if it was killed, else 0
}

// Refused is a system call that was refused, and how often.
type Refused struct {
	What  string    `json:"what"` // its name, with what it asked for: "socket(AF_VSOCK)"
	Count int64     `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Listener is what jail-init says when the inner filter is in force. The filter's listener comes with it.
type Listener struct{}

// Restrict is jail-init's first order: what it takes from itself.
type Restrict struct {
	Rlimits  []jail.Rlimit `json:"rlimits"`
	Landlock jail.Landlock `json:"landlock"`
}

// Unable is what jail-init says in place of a report when it could not restrict itself. The tool has not run.
type Unable struct {
	Layer   string `json:"layer"`
	Failure string `json:"failure"`
}

// Filter is jail-init's second order: the inner seccomp filter, compiled outside.
type Filter struct {
	Program []byte `json:"program"` // struct sock_filter instructions
}

// ShimFilterArg is the argument with which jail-shim compiles a filter that it reads from standard input.
const ShimFilterArg = "filter"

// Knock is what the inside of a jail writes to the door of its fetch proxy for a stream.
type Knock struct{}

// Opened is the answer, with the stream's descriptor unless it is refused.
type Opened struct {
	Refused bool `json:"refused,omitempty"`
}
