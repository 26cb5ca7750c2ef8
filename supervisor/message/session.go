package message

import (
	"time"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Defaults of the idle time and the total time of a session, and the maximum of both.
const (
	DefaultIdle = 10 * time.Minute
	DefaultTime = 8 * time.Hour
	MaxTime     = 7 * 24 * time.Hour
)

// A SessionRequest asks for a session. The request names no tool. The id must be equal to the id in
// the path.
type SessionRequest struct {
	Request
	// It sleeps when nothing has run in it for so many milliseconds; 0 or none is ten minutes. A
	// session without a shadow, or with the fate discard, ends then.
	IdleMS int64 `json:"idle_ms,omitempty"`
	// It ends when it has been awake for so many milliseconds; 0 or none is eight hours.
	TimeMS int64 `json:"time_ms,omitempty"`
	// Its WebAssembly invocations run in one process, where the policy permits that.
	SharedEngine bool `json:"shared_engine,omitempty"`
}

// A SessionInfo describes a session that is open or sleeps.
type SessionInfo struct {
	ID string `json:"id"`
	// The id that no other run has. `id` is the name that its user gave to it, where there is
	// one.
	GlobalID string `json:"global_id,omitempty"`
	Profile  string `json:"profile"`
	Policy   string `json:"policy"`
	// The real directory.
	Workspace string `json:"workspace,omitempty"`
	UID       uint32 `json:"uid"`
	// PID of the first process of the session's jail.
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// When an invocation last began or ended.
	Used time.Time `json:"used"`
	// It sleeps when nothing has run in it for so long.
	IdleMS int64 `json:"idle_ms"`
	// It ends when it has been awake for so long.
	TimeMS      int64 `json:"time_ms"`
	Running     int   `json:"running"`     // invocations
	Invocations int64 `json:"invocations"` // since it began
	// Its WebAssembly invocations run in one process.
	SharedEngine bool `json:"shared_engine,omitempty"`
	// open, or sleeping: nothing is mounted and nothing runs, and the next invocation wakes it.
	State string `json:"state"`
}

// States of a session.
const (
	SessionOpen     = "open"
	SessionSleeping = "sleeping"
)

// An ExecRequest asks for an invocation in a session. Its limits and variables are added to the
// session's, and can only narrow them.
type ExecRequest struct {
	// A name for it: an alias of its user alone, under which another user may have something
	// else. Without one it has its global id alone.
	ID string `json:"id,omitempty"`
	// A path to a .wasm file, a command of an installed bundle (grep, core-utils/grep), or a
	// program of the host where the policy has [tools] native. Empty with a script.
	Tool string `json:"tool"`
	// Script is a shell script to run in place of a tool; Args are then its parameters.
	Script *Script `json:"script,omitempty"`
	// Arguments of the tool.
	Args runners.Texts `json:"args,omitempty"`
	// The caller's working directory, an absolute path. Where it lies in the workspace, the
	// tool starts there.
	Dir string `json:"dir"`
	// The working directory of the tool: a path below the workspace, or an absolute path in it,
	// of the host or of the jail (/workspace/...). Empty: that of the session, else where dir
	// lies in the workspace, else its root.
	Cwd string `json:"cwd,omitempty"`
	// Each KEY=VALUE, as in a policy file; narrows only.
	Limits []string `json:"limits,omitempty"`
	// NAME=VALUE, given with the run.
	Env []string `json:"env,omitempty"`
	// What a shell of the host that is called with -c exports and unsets, and its directory, are
	// there for later invocations of the session.
	KeepEnv bool `json:"keep_env,omitempty"`
	// Inherit is the caller's own environment, NAME=VALUE; the policy passes on what it names.
	Inherit  []string          `json:"inherit,omitempty"`
	Terminal *runners.Terminal `json:"terminal,omitempty"`
}

// A StopRequest ends a session.
type StopRequest struct {
	// What happens to the shadow. If empty, the fate in the request of the session counts.
	Fate Fate `json:"fate,omitempty"`
}

// A ForkRequest asks for a branch of a shadow.
type ForkRequest struct {
	// ID is the name of the branch, which is a session. If empty, a name is generated.
	ID string `json:"id,omitempty"`
	// Session is the request for the branch of a run's shadow. The branch of a session has the
	// session's own request.
	Session *SessionRequest `json:"session,omitempty"`
}

// Digest returns a digest of the request without Inherit, to recognise a repeated request.
func (q SessionRequest) Digest() string {
	// The same request may come from another terminal with other variables.
	q.Inherit = nil
	return digestOf(q)
}

// Times returns the idle time and the total time of the session, with defaults for 0. Times below a
// second or above MaxTime are a usage error.
func (q SessionRequest) Times() (idle, total time.Duration, err error) {
	take := func(name string, ms int64, otherwise time.Duration) time.Duration {
		d := time.Duration(min(max(ms, -1), int64(2*MaxTime/time.Millisecond))) * time.Millisecond
		if ms == 0 {
			return otherwise
		}
		if err == nil && (d < time.Second || d > MaxTime) {
			err = problem.New(problem.Usage,
				"%s time of a session: want at least a second and at most %v", name, MaxTime)
		}
		return d
	}
	idle, total = take("idle", q.IdleMS, DefaultIdle), take("total", q.TimeMS, DefaultTime)
	return idle, total, err
}
