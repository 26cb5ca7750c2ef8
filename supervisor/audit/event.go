package audit

import "time"

// Type names what a record is about.
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

// Actor is who asked for what a record tells.
type Actor struct {
	UID uint32
	PID int    // on the host
	Exe string // path of the program, as the kernel names it
}

// Entry is one thing to put on record. The log adds place, time and hash.
type Entry struct {
	Run     string // empty where there is none
	Session string
	Actor   Actor
	Policy  string // digest of the effective policy, "sha256:…"
	Cause   uint64 // seq of the record that led to this one, or 0
	Event   Event
}

// Event is what happened: one of the types below. Their text fields may hold any bytes.
type Event interface {
	Type() Type
	encode(e *encoder)
}

// RunStarted is recorded before a run's tool starts.
type RunStarted struct {
	Tool      string // as the caller named it
	Digest    string // of the module or program, "sha256:…"
	Argv      []string
	Cwd       string
	Workspace string   // the real directory
	Profile   string   // name
	Plan      string   // digest of what the kernel is told
	Env       []string // names only: values can be secrets
	Warnings  []string // what weakens this run, a sentence each
	Learn     bool     // what it does is told to its caller, to make a policy from it
	Start     string   // "warm": in a jail that stood already and waited; "cold": in one that was made when it was asked for
}

// Exec is one program or module started inside a jail.
type Exec struct {
	Program string
	Digest  string
	Argv    []string
	Cwd     string
	PID     int // in the jail
	Parent  int // in the jail
	// Count is how many alike this record stands for, 0 and 1 meaning one.
	Count int64
}

// File is what was done with one file of a jail, as often as Count says, from First to Last.
type File struct {
	Path    string // in the jail
	Kind    string // open, exec or write
	Program string // that did it first, path in the jail; empty where it had ended already
	PID     int    // of it, in the jail; 0 as above
	Count   int64
	// First and Last are when the record's first and last time were told.
	First, Last time.Time
}

// Denied is a refusal, by policy or by the kernel.
type Denied struct {
	Layer string // policy, fetch, seccomp, landlock, wasi, mount
	What  string
	Rule  string
	// Count is how many alike this record stands for, 0 and 1 meaning one; First and Last are when.
	Count       int64
	First, Last time.Time
}

// Limit is a limit that was reached.
type Limit struct {
	Name   string // as in the policy file
	Limit  int64  // bytes, milliseconds or a number, as the name has it
	Peak   int64
	Action string // what was done: killed, throttled, refused, truncated
}

// Usage is what a run took.
type Usage struct {
	WallMS, CPUMS, MemoryPeak, PIDsPeak    int64
	WorkspaceBytes, FetchBytesIn           int64
	FetchBytesOut, FetchRequests, OutBytes int64
	ThrottledMS, IORead, IOWrite           int64
}

// Changes counts what a run or a commit did to a workspace.
type Changes struct{ Added, Modified, Deleted int64 }

// RunFinished is recorded when a run's jail is gone.
type RunFinished struct {
	ExitCode  int
	Signal    string // name, where a signal ended it
	Limit     string // name of the limit that ended it
	Error     string // ours, not the tool's
	Truncated bool   // its output was
	Workspace string // kept, discarded, committed
	Usage     Usage
	Changes   Changes
}

// WorkspaceChanged says what a finished run left in the shadow.
type WorkspaceChanged struct {
	Workspace string
	Digest    string // of the change set
	Changes   Changes
	Files     []string // kind, digest of the content and path of each, as far as a record has room; the digest of the set covers all
}

// WorkspaceCommitted says what was applied to the real directory.
type WorkspaceCommitted struct {
	Workspace string
	Digest    string
	Changes   Changes
	Paths     []string // where only some were named
	Commit    string   // its id
	Files     []string // kind, digest of the content and path of each, as far as a record has room
	Held      []string // protected names held back
	Protected bool     // protected names were included by an explicit yes
	Begun     bool     // it is about to be made; a second record says how it ended
	Error     string   // of a commit that was refused or failed
}

// WorkspaceDiscarded says that a shadow was thrown away.
type WorkspaceDiscarded struct {
	Workspace string
	Digest    string
	Changes   Changes
}

// WorkspaceReverted says that a commit was undone.
type WorkspaceReverted struct {
	Workspace string
	Digest    string // of the change set of the commit
	Changes   Changes
	Commit    string   // the id of the commit that was undone
	Files     []string // kind, digest of the content and path of each, as far as a record has room
	Begun     bool     // it is about to be made; a second record says how it ended
	Error     string
}

// PolicyLoaded says that policy files were read, or refused.
type PolicyLoaded struct {
	Kind   string // host: the ceiling and the operator's profiles, together
	Name   string
	Path   string
	Digest string // of the files as they are written
	Was    string // the digest of those that were in force until then
	Files  []string
	Error  string // why what was read is not in force
}

// ToolInstalled says that a bundle was installed, or refused.
type ToolInstalled struct {
	Bundle    string
	Version   string
	Publisher string // whose keys signed it
	Digest    string // of its manifest
	Source    string
	Error     string
}

// ToolRemoved says that a pulled bundle was taken away.
type ToolRemoved struct {
	Bundle    string
	Version   string
	Publisher string
	Digest    string
	Forgotten bool // and an older version may be installed again
}

// ToolKeys says that the keys of a publisher of bundles were changed.
type ToolKeys struct {
	Publisher string
	Version   int64    // of the ring
	Keys      []string // names and short hashes
	Explicit  bool     // an operator vouched for them, and no earlier ring did
	Removed   bool
}

// DaemonStarted says that a daemon is ready to take requests.
type DaemonStarted struct {
	Version string
	Socket  string
	State   string
	Private bool     // serves one client only
	Missing []string // what this host cannot enforce
}

// DaemonStopped says that a daemon ended in order.
type DaemonStopped struct{ Reason string }

// Anchored says that a place off the host began to refuse the heads of the log, or takes them again.
type Anchored struct {
	Name, To string
	Size     uint64 // of the last head that it took
	Error    string // why it does not take more; empty where it does again
	Failed   int64  // tries, until it did
}

// Gap says that something is not on record, and how much.
type Gap struct {
	Reason string
	Count  int64  // events lost; -1 where nobody knows
	First  uint64 // records that this is about, where it is about records
	Last   uint64
	Bytes  int64  // torn bytes moved to File
	SHA256 string // of them
	File   string // beside the segments
}

// checkpoint is a signed note over the records before it; only the log writes it.
type checkpoint struct{ note string }
