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

// Types returns the record types that this version writes.
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

// Actor identifies the user and program that caused a recorded action.
type Actor struct {
	UID uint32
	PID int // on the host
	// Exe is the path of the program, from the kernel.
	Exe string
}

// Entry is an event to be recorded. The log adds the number, time and hash.
type Entry struct {
	// Run is the user's name for the run, or its id; empty outside of runs.
	Run string
	// RunID is the run's id, set only if Run is a name.
	RunID     string
	Session   string
	SessionID string // as RunID
	Actor     Actor
	// Policy is the digest of the effective policy, "sha256:…".
	Policy string
	// Cause is the number of the record that led to this one, or 0.
	Cause uint64
	Event Event
}

// Event is one of the types below. Its texts may hold any bytes. A record has the event's fields in
// their order, named by their tags. Empty texts, lists and times, false, and 0 with omitzero are
// omitted. A type that needs more has a method encode.
type Event interface{ Type() Type }

// RunStarted is recorded before a run's tool starts.
type RunStarted struct {
	// Tool is the name that the caller used.
	Tool string `json:"tool"`
	// Digest is the hash of the module or program, "sha256:…".
	Digest    string   `json:"digest"`
	Argv      []string `json:"argv"`
	Cwd       string   `json:"cwd"`
	Workspace string   `json:"workspace"` // the real directory
	Profile   string   `json:"profile"`   // name
	// Plan is the digest of the jail's kernel settings.
	Plan string `json:"plan"`
	// Env has the names of the variables. Values can be secrets.
	Env []string `json:"env"`
	// Warnings says what weakens the isolation of this run, one sentence each.
	Warnings []string `json:"warnings"`
	// Learn: the run is observed to derive a policy.
	Learn bool `json:"learn"`
	// Start is "warm" in a prewarmed jail, "cold" in a new one, "shared" in a shared engine,
	// "container" in an OCI container.
	Start string `json:"start"`
	// Engine is the id of the shared engine, equal for all invocations in its process.
	Engine string `json:"engine"`
	// Caches has the target, the name and the id of each cache of the run.
	Caches []string `json:"caches"`
	// Outer is the layer around the jail, with the version and the digest of its runtime.
	// OuterInstead has jail's layers that are missing inside, each as "LAYER: REPLACEMENT".
	Outer        string   `json:"outer"`
	OuterVersion string   `json:"outer_version"`
	OuterDigest  string   `json:"outer_digest"`
	OuterInstead []string `json:"outer_instead"`
	// Image is the digest of the run's root image, ImageName its name in policies.
	Image     string `json:"image"`
	ImageName string `json:"image_name"`
	// Agent and Instance are the ids of the agent, and of its instance, that the run executes.
	Agent    string `json:"agent"`
	Instance string `json:"instance"`
	// Container is the id that an engine gave an OCI container, and Bundle the directory of its
	// config.json. Dropped names what config.json asks for and the container does not get.
	Container string   `json:"container"`
	Bundle    string   `json:"bundle"`
	Dropped   []string `json:"dropped"`
}

// Exec is the start of a program or module inside a jail.
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
	// Program is the path in the jail of the first user of the file; empty if it had already ended.
	Program string `json:"program"`
	// PID is Program's in the jail; 0 if Program is empty.
	PID   int   `json:"pid,omitzero"`
	Count int64 `json:"count"`
	// First and Last are the times of the first and the last event.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Denied is an operation that a policy or the kernel refused.
type Denied struct {
	// Layer is policy, fetch, seccomp, landlock, wasi or mount.
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
	// Name is the key in the policy file.
	Name string `json:"name"`
	// Limit is in the unit of Name: bytes, milliseconds or a count.
	Limit int64 `json:"limit"`
	Peak  int64 `json:"peak"`
	// Action is the consequence: killed, throttled, refused or truncated.
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

// RunFinished is recorded after a run's jail has ended.
type RunFinished struct {
	ExitCode int `json:"exit_code"`
	// Signal is the name of the signal that ended the tool, if one did.
	Signal string `json:"signal"`
	// Limit is the name of the limit that ended the run, if one did.
	Limit string `json:"limit"`
	Error string `json:"error"` // of jail, not of the tool
	// Truncated: the output was cut.
	Truncated bool    `json:"truncated"`
	Workspace string  `json:"workspace"` // kept, discarded, committed
	Usage     Usage   `json:"usage"`
	Changes   Changes `json:"changes"`
	// LeftProcesses counts the processes that the tool left running and that were killed.
	LeftProcesses int64 `json:"left_processes,omitzero"`
	// KeptEnv and UnsetEnv name variables that a shell set and unset for later invocations.
	KeptEnv  []string `json:"kept_env,omitzero"`
	UnsetEnv []string `json:"unset_env,omitzero"`
}

// Session records that a session was put to sleep, after its jail has ended, or is woken, before
// its new jail is made.
type Session struct {
	Event string `json:"event"` // slept, woken, or ended while asleep
	// Was is the digest of the previous policy, if the session wakes under another one.
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
	// Files lists kind, content digest and path of each change, as far as a record has room.
	// Digest covers all changes.
	Files []string `json:"files"`
}

// WorkspaceCommitted records a commit.
type WorkspaceCommitted struct {
	Workspace string  `json:"workspace"`
	Digest    string  `json:"digest"`
	Changes   Changes `json:"changes"`
	Commit    string  `json:"commit"` // its id
	// Paths has the committed paths if only some were named.
	Paths []string `json:"paths"`
	// Files lists kind, content digest and path of each change, as far as a record has room.
	Files []string `json:"files"`
	// Held lists the protected paths that were held back.
	Held []string `json:"held"`
	// Protected: protected paths were included by --include-protected.
	Protected bool `json:"protected"`
	// Git is the requested branch, in git fetch's notation, and in the second record the branch
	// that was taken. Nothing else was committed.
	Git string `json:"git"`
	// Begun: the commit is about to be made; a second record says how it ended.
	Begun bool `json:"begun"`
	// Error says why the commit was refused or failed.
	Error string `json:"error"`
}

// WorkspaceDiscarded records that a shadow, or a part of it, was discarded.
type WorkspaceDiscarded struct {
	Workspace string `json:"workspace"`
	// Digest and Changes are of all changes before.
	Digest  string  `json:"digest"`
	Changes Changes `json:"changes"`
	// Paths has the discarded paths if only some were named.
	Paths []string `json:"paths"`
	// GaveUp says what could not be undone of an interrupted commit that was abandoned with the
	// shadow.
	GaveUp string `json:"gave_up"`
}

// WorkspaceReverted records that a commit was undone.
type WorkspaceReverted struct {
	Workspace string `json:"workspace"`
	// Digest and Changes are of the commit's change set.
	Digest  string  `json:"digest"`
	Changes Changes `json:"changes"`
	// Commit is the id of the reverted commit.
	Commit string `json:"commit"`
	// Paths has the reverted paths if only some were named.
	Paths []string `json:"paths"`
	// Files lists kind, content digest and path of each change, as far as a record has room.
	Files []string `json:"files"`
	// Into is the session or run whose shadow gets back its state before a merge, or "".
	Into string `json:"into"`
	// Begun: the revert is about to be made; a second record says how it ended.
	Begun bool   `json:"begun"`
	Error string `json:"error"`
}

// WorkspaceForked records that a branch of a shadow was made. The entry's run owns the shadow.
type WorkspaceForked struct {
	Workspace string `json:"workspace"`
	// Branch is the session that has the branch.
	Branch string `json:"branch"`
	// Depth counts the forks from a shadow that is no branch to this one.
	Depth int64 `json:"depth"`
}

// WorkspaceMerged records that a branch was merged into the shadow that it was forked from. The
// entry's run has the branch.
type WorkspaceMerged struct {
	Workspace string `json:"workspace"`
	// Into is the session or run with that shadow.
	Into    string  `json:"into"`
	Digest  string  `json:"digest"`
	Changes Changes `json:"changes"`
	Merge   string  `json:"merge"` // its id
	// Paths has the merged paths if only some were named.
	Paths []string `json:"paths"`
	// Files lists kind, content digest and path of each change, as far as a record has room.
	Files []string `json:"files"`
	// Begun: the merge is about to be made; a second record says how it ended.
	Begun bool   `json:"begun"`
	Error string `json:"error"`
}

// Approval records a step of an action that needs approval, or of a grant. The actor took the step.
type Approval struct {
	ID     string `json:"id"`
	Action string `json:"action"` // its type
	// State is the new state of the action, or granted or revoked for a grant.
	State string `json:"state"`
	// SHA256 is the digest of the action, which a decision names.
	SHA256 string `json:"sha256"`
	// Summary describes the action, as people see it before they decide.
	Summary string `json:"summary"`
	// Words is the proposer's own description.
	Words string `json:"words"`
	// Via is how the decision came: cli, api, console or mcp.
	Via string `json:"via"`
	// Scope says what else the decision allows.
	Scope string `json:"scope"`
	// Grant is the id of the grant that allowed the action, or that the decision made.
	Grant string `json:"grant"`
	// Outcome is the result of an applied action, such as the id of a commit.
	Outcome string `json:"outcome"`
	// Error says why the action failed or is outdated.
	Error string `json:"error"`
}

// Steps of agents: the values of AgentStep.Step.
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
	// AgentAborted: a facet was ended by its parent.
	AgentAborted = "aborted"
)

// AgentSteps returns all steps of agents.
func AgentSteps() []string {
	return []string{AgentInstalled, AgentReloaded, AgentRemoved, AgentWoken, AgentSlept, AgentFailed,
		AgentPaused, AgentResumed, AgentDeadLetter, AgentTokens, AgentExported, AgentImported,
		AgentAborted}
}

// AgentStep records a step of an agent, as reported by jail-agentd. The actor is the reporting
// process, a program of the agent's user.
type AgentStep struct {
	// ID is agent:USER:NAME, or agent:USER:NAME/FACET of a facet.
	ID string `json:"id"`
	// Instance is one agent on one channel, or one of its facets.
	Instance string `json:"instance"`
	// Step is one of AgentSteps.
	Step string `json:"step"`
	// Digest covers the manifest, the module and the policy.
	Digest string `json:"digest"`
	// Reason says why the agent was woken or paused.
	Reason string `json:"reason"`
	// Runtime is "host" when an agent without a jail, which has all rights of its user, is
	// installed or woken.
	Runtime string `json:"runtime,omitzero"`
	// Event is the number of the event that the step handles.
	Event int64 `json:"event,omitzero"`
	// Tokens counts the tokens of a model request. Role is the model's role in the manifest.
	Tokens int64  `json:"tokens,omitzero"`
	Role   string `json:"role"`
	Error  string `json:"error"`
}

// PolicyLoaded records that policy files were read or rejected.
type PolicyLoaded struct {
	// Kind is "host" for the ceiling together with the operator's profiles.
	Kind string `json:"kind"`
	Name string `json:"name"`
	Path string `json:"path"`
	// Digest is of the files' bytes.
	Digest string `json:"digest"`
	// Was is the digest of the files in force before.
	Was   string   `json:"was"`
	Files []string `json:"files"`
	// Error says why the files are not in force.
	Error string `json:"error"`
}

// ToolInstalled records that a bundle was installed or rejected.
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
	// Forgotten: the version is forgotten, so an older one may be installed again.
	Forgotten bool `json:"forgotten"`
}

// ToolKeys records a change of the keys of a publisher.
type ToolKeys struct {
	Publisher string   `json:"publisher"`
	Version   int64    `json:"version,omitzero"` // of the ring
	Keys      []string `json:"keys"`             // names and short hashes
	// Explicit: an operator vouched for the keys, not an earlier key ring.
	Explicit bool `json:"explicit"`
	Removed  bool `json:"removed"`
}

// DaemonStarted records that a daemon is ready for requests.
type DaemonStarted struct {
	Version string `json:"version"`
	Socket  string `json:"socket"`
	State   string `json:"state"`
	Private bool   `json:"private"` // serves one client only
	// Missing lists what this host cannot enforce.
	Missing []string `json:"missing"`
}

// DaemonStopped records that a daemon shut down normally.
type DaemonStopped struct {
	Reason string `json:"reason"`
}

// Anchored records that a target started to reject heads of the log, or accepts them again.
type Anchored struct {
	Name string `json:"name"`
	To   string `json:"to"`
	// Size is the number of records of the last accepted head.
	Size uint64 `json:"size,omitzero"`
	// Error says why the target rejects heads; empty if it accepts them again.
	Error string `json:"error"`
	// Failed counts the failed tries before it accepted one.
	Failed int64 `json:"failed,omitzero"`
}

// Gap records that events or records are missing.
type Gap struct {
	Reason string `json:"reason"`
	// Count is the number of lost events; -1 if unknown.
	Count int64 `json:"count,omitzero"`
	// First and Last are the first and the last affected record, if records are affected.
	First uint64 `json:"first,omitzero"`
	Last  uint64 `json:"last,omitzero"`
	// Bytes is the number of torn bytes that were moved to File.
	Bytes  int64  `json:"bytes,omitzero"`
	SHA256 string `json:"sha256"` // of them
	File   string `json:"file"`   // beside the segments
}

// checkpoint holds a signed note over all records before. Only the log itself writes it.
type checkpoint struct{ note string }

// Fetch is one network request. A request that is sent has two records: one with Begun before the
// connection, and one with the outcome, whose cause is the first. A refused request has one record.
type Fetch struct {
	Begun bool
	Kind  string // request, tunnel, websocket
	// Decision is allowed, denied, or report: no rule grants it, and report mode lets it pass.
	Decision string
	// Layer is the layer of the policy that decided, or fetch.
	Layer  string
	Rule   string
	Method string
	Scheme string
	Host   string
	Port   uint16
	// Path is in the canonical form that was decided and sent.
	Path string
	// Query is a hash, unless the operator's settings record queries as they are.
	Query string
	// Addresses are all addresses of the host, each checked.
	Addresses []string
	// Address is the address that was dialled.
	Address string
	// Credential is the name of the credential that the proxy attached.
	Credential string
	Status     int
	// In and Out count bytes on the wire, with TLS.
	In, Out int64
	// Durations of the parts of the request. First is until the first byte of the response.
	Resolve, Connect, TLS, First, Total time.Duration
	// Reused: an earlier request of the run used the same connection.
	Reused bool
	// Truncated: the tool did not get the whole response.
	Truncated bool
	// Scrubbed: the credential was removed from the response.
	Scrubbed bool
	// Redirect is the target of the response's redirect.
	Redirect string
	// TLSMode says who speaks TLS: proxy (only the proxy), intercept (the proxy, to the tool and to
	// the host), opaque (the tool, to the host).
	TLSMode string
	// Hops counts the redirects that led here. The record's cause is the previous request.
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

// CredentialUsed records that the proxy is about to attach a credential to the request in its
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
