package audit

import "time"

// Type is the type of a record.
type Type string

// The types of records.
const (
	TypeRunStarted         Type = "run.started"
	TypeRunFinished        Type = "run.finished"
	TypeExec               Type = "exec"
	TypeFile               Type = "file"
	TypeFetch              Type = "fetch"
	TypeCredentialUsed     Type = "credential.used"
	TypeDenied             Type = "denied"
	TypeLimit              Type = "limit"
	TypeWorkspaceChanged   Type = "workspace.changed"
	TypeWorkspaceCommitted Type = "workspace.committed"
	TypeWorkspaceDiscarded Type = "workspace.discarded"
	TypeWorkspaceReverted  Type = "workspace.reverted"
	TypePolicyLoaded       Type = "policy.loaded"
	TypeToolInstalled      Type = "tool.installed"
	TypeToolRemoved        Type = "tool.removed"
	TypeToolKeys           Type = "tool.keys"
	TypeDaemonStarted      Type = "daemon.started"
	TypeDaemonStopped      Type = "daemon.stopped"
	TypeAnchor             Type = "anchor"
	TypeGap                Type = "gap"
	TypeCheckpoint         Type = "checkpoint"
)

// Types returns the types that this version writes.
func Types() []Type {
	return []Type{
		TypeRunStarted, TypeRunFinished, TypeExec, TypeFile, TypeFetch, TypeCredentialUsed,
		TypeDenied, TypeLimit, TypeWorkspaceChanged,
		TypeWorkspaceCommitted, TypeWorkspaceDiscarded, TypeWorkspaceReverted, TypePolicyLoaded,
		TypeToolInstalled, TypeToolRemoved, TypeToolKeys,
		TypeDaemonStarted, TypeDaemonStopped, TypeAnchor, TypeGap, TypeCheckpoint,
	}
}

// Actor is the user and program that asked for what a record describes.
type Actor struct {
	UID uint32
	PID int // on the host
	// path of the program, as the kernel names it
	Exe string
}

// Entry is one event to record. The log adds place, time and hash.
type Entry struct {
	// As its user calls it; empty where there is none.
	Run string
	// RunID is set if Run is a name that its user gave.
	RunID     string
	Session   string
	SessionID string // as RunID
	Actor     Actor
	// Digest of the effective policy, "sha256:…".
	Policy string
	// seq of the record that led to this one, or 0
	Cause uint64
	Event Event
}

// Event is one of the types below. Its text fields may hold any bytes.
type Event interface {
	Type() Type
	encode(e *encoder)
}

// RunStarted is recorded before a run's tool starts.
type RunStarted struct {
	// As the caller named it.
	Tool string
	// Of the module or program, "sha256:…".
	Digest    string
	Argv      []string
	Cwd       string
	Workspace string // the real directory
	Profile   string // name
	// digest of what the kernel is told
	Plan string
	// Names only: values can be secrets.
	Env []string
	// What weakens this run, a sentence each.
	Warnings []string
	// Learn: the caller observes the run to make a policy.
	Learn bool
	// Start is "warm" in a prewarmed jail, "cold" in a new one.
	Start string
}

// Exec is a program or module that was started inside a jail.
type Exec struct {
	Program string
	Digest  string
	Argv    []string
	Cwd     string
	PID     int // in the jail
	Parent  int // in the jail
	// Count is the number of equal events that this record stands for; 0 and 1 mean one.
	Count int64
}

// File is the use of one file in a jail, Count times from First to Last.
type File struct {
	Path string // in the jail
	Kind string // open, exec or write
	// Program is the first that did it, by its path in the jail; empty if it had already ended.
	Program string
	// PID of Program in the jail; 0 as above.
	PID   int
	Count int64
	// First and Last are the times of the first and the last event.
	First, Last time.Time
}

// Denied is a refusal, by policy or by the kernel.
type Denied struct {
	// Policy, fetch, seccomp, landlock, wasi, mount.
	Layer string
	What  string
	Rule  string
	// Count is the number of equal events that this record stands for; 0 and 1 mean one. First and
	// Last are their times.
	Count       int64
	First, Last time.Time
}

// Limit records a limit that was reached.
type Limit struct {
	// As in the policy file.
	Name string
	// Bytes, milliseconds or a number, as the name has it.
	Limit int64
	Peak  int64
	// What was done: killed, throttled, refused, truncated.
	Action string
}

// Usage is the resource usage of a run.
type Usage struct {
	WallMS, CPUMS, MemoryPeak, PIDsPeak    int64
	WorkspaceBytes, FetchBytesIn           int64
	FetchBytesOut, FetchRequests, OutBytes int64
	ThrottledMS, IORead, IOWrite           int64
}

// Changes counts the changes of a run or a commit.
type Changes struct{ Added, Modified, Deleted int64 }

// RunFinished is recorded when a run's jail is gone.
type RunFinished struct {
	ExitCode int
	// Name, where a signal ended it.
	Signal string
	// Name of the limit that ended it.
	Limit string
	Error string // ours, not the tool's
	// Truncated: the output was cut.
	Truncated bool
	Workspace string // kept, discarded, committed
	Usage     Usage
	Changes   Changes
}

// WorkspaceChanged records the change set of a finished run.
type WorkspaceChanged struct {
	Workspace string
	Digest    string // of the change set
	Changes   Changes
	// Files lists kind, content digest and path of each change, as far as a record has room; the
	// digest of the set covers all.
	Files []string
}

// WorkspaceCommitted records a commit.
type WorkspaceCommitted struct {
	Workspace string
	Digest    string
	Changes   Changes
	// Where only some were named.
	Paths  []string
	Commit string // its id
	// Files lists kind, content digest and path of each change, as far as a record has room.
	Files []string
	// Held lists the protected paths that were held back.
	Held []string
	// Protected: protected paths were included by --include-protected.
	Protected bool
	// Begun: the commit is about to be made; a second record says how it ended.
	Begun bool
	// Of a commit that was refused or failed.
	Error string
}

// WorkspaceDiscarded records that a shadow, or a part of it, was discarded.
type WorkspaceDiscarded struct {
	Workspace string
	// Of all its changes before.
	Digest  string
	Changes Changes
	// Where only some were named.
	Paths []string
	// GaveUp says what could not be undone of an interrupted commit that was given up with the
	// shadow.
	GaveUp string
}

// WorkspaceReverted records that a commit was undone.
type WorkspaceReverted struct {
	Workspace string
	// Of the change set of the commit.
	Digest  string
	Changes Changes
	// The id of the commit that was undone.
	Commit string
	// Files lists kind, content digest and path of each change, as far as a record has room.
	Files []string
	// Begun: the revert is about to be made; a second record says how it ended.
	Begun bool
	Error string
}

// PolicyLoaded records that policy files were read, or refused.
type PolicyLoaded struct {
	// host: the ceiling and the operator's profiles, together
	Kind string
	Name string
	Path string
	// Of the files as they are written.
	Digest string
	// Was is the digest of the files that were in force before.
	Was   string
	Files []string
	// Error says why the files are not in force.
	Error string
}

// ToolInstalled records that a bundle was installed, or refused.
type ToolInstalled struct {
	Bundle    string
	Version   string
	Publisher string // whose keys signed it
	Digest    string // of its manifest
	Source    string
	Error     string
}

// ToolRemoved records that a pulled bundle was removed.
type ToolRemoved struct {
	Bundle    string
	Version   string
	Publisher string
	Digest    string
	// Forgotten: an older version may be installed again.
	Forgotten bool
}

// ToolKeys records a change of the keys of a publisher.
type ToolKeys struct {
	Publisher string
	Version   int64    // of the ring
	Keys      []string // names and short hashes
	// Explicit: an operator vouched for the keys, and no earlier ring did.
	Explicit bool
	Removed  bool
}

// DaemonStarted records that a daemon is ready for requests.
type DaemonStarted struct {
	Version string
	Socket  string
	State   string
	Private bool // serves one client only
	// what this host cannot enforce
	Missing []string
}

// DaemonStopped records that a daemon ended in order.
type DaemonStopped struct{ Reason string }

// Anchored records that a target began to refuse the heads of the log, or takes them again.
type Anchored struct {
	Name, To string
	// Of the last head that it took.
	Size uint64
	// Error says why the target takes no more heads; empty if it does again.
	Error string
	// Failed counts the tries until it did.
	Failed int64
}

// Gap records that events or records are missing, and how many.
type Gap struct {
	Reason string
	// Count of lost events; -1 if it is unknown.
	Count int64
	// First and Last are the records that the gap is about, if it is about records.
	First uint64
	Last  uint64
	// Torn bytes moved to File.
	Bytes  int64
	SHA256 string // of them
	File   string // beside the segments
}

// checkpoint is a signed note over the records before it; only the log writes it.
type checkpoint struct{ note string }
