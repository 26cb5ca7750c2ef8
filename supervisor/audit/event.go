package audit

import "time"

// Type is the type of a record.
type Type string

// The types of records.
const (
	TypeRunStarted         Type = "run.started"
	TypeRunFinished        Type = "run.finished"
	TypeSession            Type = "session"
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
	TypeWorkspaceForked    Type = "workspace.forked"
	TypeWorkspaceMerged    Type = "workspace.merged"
	TypeApproval           Type = "approval"
	TypeAgent              Type = "agent"
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
		TypeRunStarted, TypeRunFinished, TypeSession, TypeExec, TypeFile, TypeFetch, TypeCredentialUsed,
		TypeDenied, TypeLimit, TypeWorkspaceChanged,
		TypeWorkspaceCommitted, TypeWorkspaceDiscarded, TypeWorkspaceReverted,
		TypeWorkspaceForked, TypeWorkspaceMerged, TypeApproval, TypeAgent, TypePolicyLoaded,
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

// Event is one of the types below. Its text fields may hold any bytes. A record has an event's
// fields in their order, by the names of their tags. Empty texts, lists and times, false, and with
// omitzero 0 are left out. A type for which this is not enough has a method encode.
type Event interface{ Type() Type }

// RunStarted is recorded before a run's tool starts.
type RunStarted struct {
	// As the caller named it.
	Tool string `json:"tool"`
	// Of the module or program, "sha256:…".
	Digest    string   `json:"digest"`
	Argv      []string `json:"argv"`
	Cwd       string   `json:"cwd"`
	Workspace string   `json:"workspace"` // the real directory
	Profile   string   `json:"profile"`   // name
	// digest of what the kernel is told
	Plan string `json:"plan"`
	// Names only: values can be secrets.
	Env []string `json:"env"`
	// What weakens this run, a sentence each.
	Warnings []string `json:"warnings"`
	// Learn: the caller observes the run to make a policy.
	Learn bool `json:"learn"`
	// Start is "warm" in a prewarmed jail, "cold" in a new one, "shared" in a shared engine,
	// "container" of an OCI container.
	Start string `json:"start"`
	// Engine is the id of the shared engine, which all invocations have that share its process.
	Engine string `json:"engine"`
	// Caches are those that the run has: the target of each, its name, and its id.
	Caches []string `json:"caches"`
	// Outer is the layer around the jail, with the version and the digest of its runtime, and what
	// is not there inside for it.
	Outer        string   `json:"outer"`
	OuterVersion string   `json:"outer_version"`
	OuterDigest  string   `json:"outer_digest"`
	OuterInstead []string `json:"outer_instead"`
	// Image is the digest of the image whose root the run has, ImageName its name in policies.
	Image     string `json:"image"`
	ImageName string `json:"image_name"`
	// Agent is the id of the agent that the run is, Instance that of its instance.
	Agent    string `json:"agent"`
	Instance string `json:"instance"`
	// Container is the id that an engine gave an OCI container, and Bundle the directory of its
	// config.json. Dropped names what config.json asks for and the container does not get.
	Container string   `json:"container"`
	Bundle    string   `json:"bundle"`
	Dropped   []string `json:"dropped"`
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
	Kind string `json:"kind"` // open, exec or write
	Path string `json:"path"` // in the jail
	// Program is the first that did it, by its path in the jail; empty if it had already ended.
	Program string `json:"program"`
	// PID of Program in the jail; 0 as above.
	PID   int   `json:"pid,omitzero"`
	Count int64 `json:"count"`
	// First and Last are the times of the first and the last event.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
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
	Name string `json:"name"`
	// Bytes, milliseconds or a number, as the name has it.
	Limit int64 `json:"limit"`
	Peak  int64 `json:"peak"`
	// What was done: killed, throttled, refused, truncated.
	Action string `json:"action"`
}

// Usage is the resource usage of a run.
type Usage struct {
	WallMS         int64 `json:"wall_ms"`
	CPUMS          int64 `json:"cpu_ms"`
	MemoryPeak     int64 `json:"memory_peak"`
	PIDsPeak       int64 `json:"pids_peak"`
	ThrottledMS    int64 `json:"throttled_ms"`
	IORead         int64 `json:"io_read"`
	IOWrite        int64 `json:"io_write"`
	WorkspaceBytes int64 `json:"workspace_bytes"`
	FetchBytesIn   int64 `json:"fetch_bytes_in"`
	FetchBytesOut  int64 `json:"fetch_bytes_out"`
	FetchRequests  int64 `json:"fetch_requests"`
	OutBytes       int64 `json:"output_bytes"`
}

// Changes counts the changes of a run or a commit.
type Changes struct {
	Added    int64 `json:"added"`
	Modified int64 `json:"modified"`
	Deleted  int64 `json:"deleted"`
}

// RunFinished is recorded when a run's jail is gone.
type RunFinished struct {
	ExitCode int `json:"exit_code"`
	// Name, where a signal ended it.
	Signal string `json:"signal"`
	// Name of the limit that ended it.
	Limit string `json:"limit"`
	Error string `json:"error"` // ours, not the tool's
	// Truncated: the output was cut.
	Truncated bool    `json:"truncated"`
	Workspace string  `json:"workspace"` // kept, discarded, committed
	Usage     Usage   `json:"usage"`
	Changes   Changes `json:"changes"`
	// LeftProcesses were left behind by the tool and killed.
	LeftProcesses int64 `json:"left_processes,omitzero"`
	// Names of variables that a shell left set and unset to later invocations of its session.
	KeptEnv  []string `json:"kept_env,omitzero"`
	UnsetEnv []string `json:"unset_env,omitzero"`
}

// Session records that a session falls asleep, after its jail has gone, or is woken, before its jail
// is made.
type Session struct {
	Event string `json:"event"` // slept, woken; ended: while it slept
	// Was is the digest of the policy before, where the one that it wakes under is another.
	Was string `json:"was"`
}

// Events of a session.
const (
	SessionSlept = "slept"
	SessionWoken = "woken"
	SessionEnded = "ended"
)

// WorkspaceChanged records the change set of a finished run.
type WorkspaceChanged struct {
	Workspace string  `json:"workspace"`
	Digest    string  `json:"digest"` // of the change set
	Changes   Changes `json:"changes"`
	// Files lists kind, content digest and path of each change, as far as a record has room; the
	// digest of the set covers all.
	Files []string `json:"files"`
}

// WorkspaceCommitted records a commit.
type WorkspaceCommitted struct {
	Workspace string  `json:"workspace"`
	Digest    string  `json:"digest"`
	Changes   Changes `json:"changes"`
	Commit    string  `json:"commit"` // its id
	// Where only some were named.
	Paths []string `json:"paths"`
	// Files lists kind, content digest and path of each change, as far as a record has room.
	Files []string `json:"files"`
	// Held lists the protected paths that were held back.
	Held []string `json:"held"`
	// Protected: protected paths were included by --include-protected.
	Protected bool `json:"protected"`
	// Git is the branch that was asked for, as git fetch names it, and at the end what was taken.
	// Nothing else was.
	Git string `json:"git"`
	// Begun: the commit is about to be made; a second record says how it ended.
	Begun bool `json:"begun"`
	// Of a commit that was refused or failed.
	Error string `json:"error"`
}

// WorkspaceDiscarded records that a shadow, or a part of it, was discarded.
type WorkspaceDiscarded struct {
	Workspace string `json:"workspace"`
	// Of all its changes before.
	Digest  string  `json:"digest"`
	Changes Changes `json:"changes"`
	// Where only some were named.
	Paths []string `json:"paths"`
	// GaveUp says what could not be undone of an interrupted commit that was given up with the
	// shadow.
	GaveUp string `json:"gave_up"`
}

// WorkspaceReverted records that a commit was undone.
type WorkspaceReverted struct {
	Workspace string `json:"workspace"`
	// Of the change set of the commit.
	Digest  string  `json:"digest"`
	Changes Changes `json:"changes"`
	// The id of the commit that was undone.
	Commit string `json:"commit"`
	// Where only some of its paths were named.
	Paths []string `json:"paths"`
	// Files lists kind, content digest and path of each change, as far as a record has room.
	Files []string `json:"files"`
	// Into is the session or run whose shadow is as before a merge; empty for a commit.
	Into string `json:"into"`
	// Begun: the revert is about to be made; a second record says how it ended.
	Begun bool   `json:"begun"`
	Error string `json:"error"`
}

// WorkspaceForked records that a branch of a shadow was made. The run is that of the shadow.
type WorkspaceForked struct {
	Workspace string `json:"workspace"`
	// Branch is the session that is the branch.
	Branch string `json:"branch"`
	// How many forks the branch is away from a shadow that is no branch.
	Depth int64 `json:"depth"`
}

// WorkspaceMerged records that a branch was merged into the shadow that it was forked from. The run
// is the branch.
type WorkspaceMerged struct {
	Workspace string `json:"workspace"`
	// Into is the session or run of that shadow.
	Into    string  `json:"into"`
	Digest  string  `json:"digest"`
	Changes Changes `json:"changes"`
	Merge   string  `json:"merge"` // its id
	// Where only some were named.
	Paths []string `json:"paths"`
	// Files lists kind, content digest and path of each change, as far as a record has room.
	Files []string `json:"files"`
	// Begun: the merge is about to be made; a second record says how it ended.
	Begun bool   `json:"begun"`
	Error string `json:"error"`
}

// Approval records a step of an action that waits for an approval, or of a grant. The actor is who
// took the step.
type Approval struct {
	ID     string `json:"id"`
	Action string `json:"action"` // its type
	// State is the new state of the action, or granted or revoked for a grant.
	State string `json:"state"`
	// SHA256 is the digest of the action, which a decision names.
	SHA256 string `json:"sha256"`
	// What the action does, as people are shown it.
	Summary string `json:"summary"`
	// Words are the proposer's own.
	Words string `json:"words"`
	// Via is the way of a decision: cli, api, console or mcp.
	Via string `json:"via"`
	// Scope says what else the decision allows.
	Scope string `json:"scope"`
	// Grant is the id of the grant that allowed the action, or that the decision made.
	Grant string `json:"grant"`
	// Outcome is what an applied action made, the id of a commit for example.
	Outcome string `json:"outcome"`
	// Error says why the action failed or is stale.
	Error string `json:"error"`
}

// Steps of agents, as an AgentStep records them.
const (
	AgentInstalled  = "installed"
	AgentReloaded   = "reloaded"
	AgentRemoved    = "removed"
	AgentWoken      = "woken"
	AgentSlept      = "slept"
	AgentFailed     = "failed"
	AgentPaused     = "paused"
	AgentResumed    = "resumed"
	AgentDeadLetter = "dead_letter"
	AgentTokens     = "tokens"
	AgentExported   = "exported"
	AgentImported   = "imported"
	// AgentAborted is of a facet that its parent ended.
	AgentAborted = "aborted"
)

// AgentSteps returns all steps of agents.
func AgentSteps() []string {
	return []string{AgentInstalled, AgentReloaded, AgentRemoved, AgentWoken, AgentSlept, AgentFailed,
		AgentPaused, AgentResumed, AgentDeadLetter, AgentTokens, AgentExported, AgentImported,
		AgentAborted}
}

// AgentStep records a step of an agent, as jail-agentd reports it. The actor is the process that reported
// it, a program of the agent's user.
type AgentStep struct {
	// agent:USER:NAME, of a facet agent:USER:NAME/FACET
	ID string `json:"id"`
	// Instance is one agent on one channel, or one of its facets.
	Instance string `json:"instance"`
	// One of AgentSteps.
	Step string `json:"step"`
	// Digest is that of the manifest, the module and the policy together.
	Digest string `json:"digest"`
	// Reason is why it was woken, or paused.
	Reason string `json:"reason"`
	// Runtime is host for an agent that is in no jail and has the rights of its user, when it is
	// installed or woken.
	Runtime string `json:"runtime,omitzero"`
	// Event is the number of the event that the step is about.
	Event int64 `json:"event,omitzero"`
	// Tokens are those that a call of a model used, Role is the model's in the manifest.
	Tokens int64  `json:"tokens,omitzero"`
	Role   string `json:"role"`
	Error  string `json:"error"`
}

// PolicyLoaded records that policy files were read, or refused.
type PolicyLoaded struct {
	// host: the ceiling and the operator's profiles, together
	Kind string `json:"kind"`
	Name string `json:"name"`
	Path string `json:"path"`
	// Of the files as they are written.
	Digest string `json:"digest"`
	// Was is the digest of the files that were in force before.
	Was   string   `json:"was"`
	Files []string `json:"files"`
	// Error says why the files are not in force.
	Error string `json:"error"`
}

// ToolInstalled records that a bundle was installed, or refused.
type ToolInstalled struct {
	Bundle    string `json:"bundle"`
	Version   string `json:"version"`
	Publisher string `json:"publisher"` // whose keys signed it
	Digest    string `json:"digest"`    // of its manifest
	Source    string `json:"source"`
	Error     string `json:"error"`
}

// ToolRemoved records that a pulled bundle was removed.
type ToolRemoved struct {
	Bundle    string `json:"bundle"`
	Version   string `json:"version"`
	Publisher string `json:"publisher"`
	Digest    string `json:"digest"`
	// Forgotten: an older version may be installed again.
	Forgotten bool `json:"forgotten"`
}

// ToolKeys records a change of the keys of a publisher.
type ToolKeys struct {
	Publisher string   `json:"publisher"`
	Version   int64    `json:"version,omitzero"` // of the ring
	Keys      []string `json:"keys"`             // names and short hashes
	// Explicit: an operator vouched for the keys, and no earlier ring did.
	Explicit bool `json:"explicit"`
	Removed  bool `json:"removed"`
}

// DaemonStarted records that a daemon is ready for requests.
type DaemonStarted struct {
	Version string `json:"version"`
	Socket  string `json:"socket"`
	State   string `json:"state"`
	Private bool   `json:"private"` // serves one client only
	// what this host cannot enforce
	Missing []string `json:"missing"`
}

// DaemonStopped records that a daemon ended in order.
type DaemonStopped struct {
	Reason string `json:"reason"`
}

// Anchored records that a target began to refuse the heads of the log, or takes them again.
type Anchored struct {
	Name string `json:"name"`
	To   string `json:"to"`
	// Of the last head that it took.
	Size uint64 `json:"size,omitzero"`
	// Error says why the target takes no more heads; empty if it does again.
	Error string `json:"error"`
	// Failed counts the tries until it did.
	Failed int64 `json:"failed,omitzero"`
}

// Gap records that events or records are missing, and how many.
type Gap struct {
	Reason string `json:"reason"`
	// Count of lost events; -1 if it is unknown.
	Count int64 `json:"count,omitzero"`
	// First and Last are the records that the gap is about, if it is about records.
	First uint64 `json:"first,omitzero"`
	Last  uint64 `json:"last,omitzero"`
	// Torn bytes moved to File.
	Bytes  int64  `json:"bytes,omitzero"`
	SHA256 string `json:"sha256"` // of them
	File   string `json:"file"`   // beside the segments
}

// checkpoint is a signed note over the records before it; only the log writes it.
type checkpoint struct{ note string }

// Fetch is one request to the network. A request that is sent has two records: Begun before
// anything is dialled, and one with the outcome, whose cause is the first. A refused request has
// one record.
type Fetch struct {
	Begun bool
	Kind  string // request, tunnel, websocket
	// Decision is allowed, denied, or report: no rule grants it, and the policy lets it pass.
	Decision string
	// Of the policy, or fetch.
	Layer  string
	Rule   string
	Method string
	Scheme string
	Host   string
	Port   uint16
	// Path in the form that was decided and sent.
	Path string
	// Query is a hash, unless the host's configuration says otherwise.
	Query string
	// Addresses of the name, each checked.
	Addresses []string
	// Address that was dialled.
	Address string
	// Credential is the name of the one that the proxy attached.
	Credential string
	Status     int
	// In and Out are bytes on the wire, with TLS.
	In, Out int64
	// Times of the parts of the request.
	Resolve, Connect, TLS, First, Total time.Duration
	// Reused: an earlier request of the run used the same connection.
	Reused bool
	// Truncated: the tool did not get the whole response.
	Truncated bool
	// Scrubbed: the credential was removed from the response.
	Scrubbed bool
	// Redirect is the target of the response's redirect.
	Redirect string
	// TLSMode says who ends TLS: proxy (only the proxy speaks it), intercept (the proxy speaks it
	// to both sides), opaque (tool and host).
	TLSMode string
	// Hops counts the redirects before; the cause is the request with the last of them.
	Hops int
	// Internal: the host is inside the operator's network.
	Internal   bool
	TLSVersion string
	TLSPeer    string // SHA-256 of the certificate
	Error      string
}

// Type returns the type of the record.
func (Fetch) Type() Type { return TypeFetch }

func (v Fetch) encode(e *encoder) {
	e.flag("begun", v.Begun)
	e.str("kind", v.Kind)
	e.str("decision", v.Decision)
	e.str("layer", v.Layer)
	e.str("rule", v.Rule)
	e.str("method", v.Method)
	e.str("scheme", v.Scheme)
	e.str("host", v.Host)
	e.opt("port", int64(v.Port))
	e.str("path", v.Path)
	e.str("query", v.Query)
	e.list("addresses", v.Addresses)
	e.str("address", v.Address)
	e.str("credential", v.Credential)
	if !v.Begun && v.Decision != "denied" {
		e.num("status", int64(v.Status))
		e.num("bytes_in", v.In)
		e.num("bytes_out", v.Out)
		e.object("time_us", func() {
			e.opt("connect", v.Connect.Microseconds())
			e.opt("tls", v.TLS.Microseconds())
			e.opt("first", v.First.Microseconds())
			e.num("total", v.Total.Microseconds())
		})
	}
	if v.Begun {
		e.num("resolve_us", v.Resolve.Microseconds())
	}
	e.flag("reused", v.Reused)
	e.flag("truncated", v.Truncated)
	e.flag("scrubbed", v.Scrubbed)
	e.str("redirect", v.Redirect)
	e.str("tls_mode", v.TLSMode)
	e.opt("hops", int64(v.Hops))
	e.flag("internal", v.Internal)
	e.str("tls_version", v.TLSVersion)
	e.str("tls_peer", v.TLSPeer)
	e.str("error", v.Error)
}

// CredentialUsed records that the proxy is about to attach a credential to the request of its
// cause.
type CredentialUsed struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Method string `json:"method"`
	Host   string `json:"host"`
	Port   uint16 `json:"port"`
	Path   string `json:"path"`
}

// Type returns the type of the record.
func (CredentialUsed) Type() Type { return TypeCredentialUsed }
