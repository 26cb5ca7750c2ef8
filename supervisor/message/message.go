// Package message defines the requests and results that clients and the daemon exchange. It has
// types and no logic; their JSON encoding is the one of the API.
package message

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
)

// A Request asks for a run. Every field can only narrow what the ceiling and the profile grant.
type Request struct {
	// A name for it: an alias of its user alone, under which another user may have something
	// else. Without one it has its global id alone.
	ID string `json:"id,omitempty"`
	// A path to a .wasm file, a command of an installed bundle (grep, core-utils/grep), or a
	// program of the host where the policy has [tools] native. Empty with a script. With an image, a
	// program of the image.
	Tool string `json:"tool"`
	// Arguments of the tool.
	Args runners.Texts `json:"args,omitempty"`
	// Script is a shell script to run in place of a tool; Args are then its parameters.
	Script *Script `json:"script,omitempty"`
	// Name of a profile; empty is default.
	Profile string `json:"profile,omitempty"`
	// The text of a policy file, to use in place of a profile.
	Policy string `json:"policy,omitempty"`
	// What the policy is called in messages.
	PolicyName string `json:"policy_name,omitempty"`

	// Policies that narrow the profile, or the policy, further, each in its turn: the run gets what
	// all of them grant.
	Narrow []Narrow `json:"narrow,omitempty"`

	// The caller's working directory, an absolute path. Where it lies in the workspace, the
	// tool starts there.
	Dir string `json:"dir"`
	// The directory to make a shadow of, an absolute path; empty is dir. It is opened with the
	// rights of the caller.
	Workspace string `json:"workspace,omitempty"`
	// Run without a workspace.
	NoWorkspace bool `json:"no_workspace,omitempty"`
	// The working directory of the tool: a path below the workspace, or an absolute path in it,
	// of the host or of the jail (/workspace/...). Empty: where dir lies in the workspace, else
	// its root.
	Cwd string `json:"cwd,omitempty"`
	// What happens to the shadow after the run. If empty, the shadow is kept if something changed.
	Fate Fate `json:"fate,omitempty"`

	// Each KEY=VALUE, as in a policy file; narrows only.
	Limits []string `json:"limits,omitempty"`
	// NAME=VALUE, given with the run
	Env []string `json:"env,omitempty"`
	// In a session: as keep_env of an invocation says.
	KeepEnv bool `json:"keep_env,omitempty"`
	// Hosts; narrows only.
	Fetch []string `json:"fetch,omitempty"`
	// Ids of policy grants, at most 20, which widen the profile for this run. The run ends when one
	// of them is over.
	Grants []string `json:"grants,omitempty"`
	// Outer is the layer around the jail; empty leaves the choice to the policies.
	Outer string `json:"outer,omitempty"`
	// Image gives a program the root file system of an OCI image: the name of one that was added,
	// or oci:DIR with an absolute path, and :TAG or @sha256:DIGEST after it. Without a tool the run
	// is the command of the image.
	Image string `json:"image,omitempty"`
	// Terminal asks for a terminal of the jail's own, of that size, for a program of the host.
	Terminal *runners.Terminal `json:"terminal,omitempty"`
	// Report in the result what the run opens, executes and writes, to make a policy from it.
	Learn bool `json:"learn,omitempty"`
	// Agent makes the run one of an agent: its standard input and output carry the messages of
	// package runners/agent, and its tool has only the standard error.
	Agent *Agent `json:"agent,omitempty"`
	// Files by relative path that a module finds below /agent: at most 200, and 1 MiB together.
	Files map[string][]byte `json:"files,omitempty"`
	// Inherit is the caller's own environment, NAME=VALUE; the policy passes on what it names.
	Inherit []string `json:"inherit,omitempty"`
}

// A Narrow is a policy that can only narrow another one.
type Narrow struct {
	// What the policy is called in messages.
	Name string `json:"name"`
	// The text of a policy file.
	Policy string `json:"policy"`
}

// An Agent describes the agent that a run executes.
type Agent struct {
	// agent:USER:NAME, of a facet agent:USER:NAME/FACET
	ID string `json:"id"`
	// Instance is one agent on one channel, as agent-NAME-CHANNEL, or one of its facets.
	Instance string `json:"instance"`
	// Bindings are the bindings in its manifest, of PUBSUB, STORAGE, AI and HOST. The policy
	// narrows them.
	Bindings []string `json:"bindings"`
	// Facet is true for a facet, which runs the module of its agent. Calls of imported bindings
	// that the facet does not have fail.
	Facet bool `json:"facet,omitempty"`
	// Once is true for a module that runs once, without events and without a database. Its client
	// answers its calls, and its output is sent in messages, too.
	Once bool `json:"once,omitempty"`
	// Native is true for a program of the host, even if a bundle has a command of this name.
	Native bool `json:"native,omitempty"`
	// Network lets it fetch what the policy grants; without it the run fetches nothing.
	Network bool `json:"network,omitempty"`
	// State is the directory of its database, an absolute path. It holds nothing else, and is
	// opened with the rights of the caller.
	State string `json:"state"`
	// Storage is how many bytes the database may have.
	Storage int64 `json:"storage"`
	// DeadlineMS is how many milliseconds an event may take.
	DeadlineMS int64 `json:"deadline_ms"`
}

// A Script is a POSIX shell script to run in place of a tool; args are then its parameters. What
// jail sh does not support is an error with line and column before anything runs.
type Script struct {
	// of its file, for messages; "-c"
	Name string `json:"name"`
	Text string `json:"text"`
}

// Fate says what happens to a shadow after its run.
type Fate string

// Fates. With FateDefault a shadow is kept if something changed.
const (
	FateDefault Fate = ""
	FateKeep    Fate = "keep"
	FateDiscard Fate = "discard"
	FateCommit  Fate = "commit"
	// FateAuto commits the changes that need no person. It is the fate of a session whose policy
	// has commit = "auto", and is not valid in a request.
	FateAuto Fate = "auto"
)

// digestOf returns the SHA-256 of a request's JSON, with which a repeated request is recognised.
func digestOf(request any) string {
	text, err := json.Marshal(request)
	if err != nil {
		panic(fmt.Sprintf("bug: a request that is not JSON: %v", err))
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// A RunInfo describes a live run, for `jail ps` and `jail inspect`.
type RunInfo struct {
	rundir.State
	// The id that no other run has. `id` is the name that its user gave to it, where there is
	// one.
	GlobalID string `json:"global_id,omitempty"`
	Usage    *Usage `json:"usage,omitempty"` // so far
}

// Inspection has the information about a run: its live state, or its audit records.
type Inspection struct {
	Live      *RunInfo
	Records   []audit.Record // the first 10,000
	Truncated bool           // there are more
}

// A DetachRequest asks for a run that continues without the client that started it. The id must be
// equal to the id in the path.
type DetachRequest struct {
	Request
	// Keep the tool's standard input open for a client that attaches.
	Input bool `json:"input,omitempty"`
	// The open session for an invocation, which then uses the policy, workspace and fate of the
	// session; empty for a separate run.
	Session string `json:"session,omitempty"`
}

// Exec converts the request to one for an invocation in a session. It drops the fields that the
// session determines, such as the policy and the workspace.
func (q Request) Exec() ExecRequest {
	return ExecRequest{ID: q.ID, Tool: q.Tool, Script: q.Script, Args: q.Args, Dir: q.Dir, Cwd: q.Cwd,
		Limits: q.Limits, Env: q.Env, Inherit: q.Inherit, Terminal: q.Terminal,
		KeepEnv: q.KeepEnv}
}

// A DetachedInfo describes a detached run.
type DetachedInfo struct {
	ID string `json:"id"`
	// The id that no other run has. `id` is the name that its user gave to it, where there is
	// one.
	GlobalID string    `json:"global_id,omitempty"`
	Started  time.Time `json:"started"`
	Running  bool      `json:"running"`
}

// Digest returns a digest of the request without Inherit, to recognise a repeated request.
func (q DetachRequest) Digest() string {
	// The same request may come from another terminal with other variables.
	q.Inherit = nil
	return digestOf(q)
}

// HostStatus reports what this host and its daemon can enforce.
type HostStatus struct {
	Findings []probe.Finding `json:"findings"`
}

// An EventsRequest asks for audit records as they are written.
type EventsRequest struct {
	// After selects records with a larger number. If nil, only new records are sent.
	After *uint64
	RecordsRequest
}

// A RecordsRequest asks for the audit records that match all of its fields. Empty fields match all.
type RecordsRequest struct {
	Run     string `json:"run,omitempty"`
	Session string `json:"session,omitempty"`
	// Any of them, such as denied or run.finished.
	Types []string  `json:"types,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Only before it.
	Until time.Time `json:"until,omitzero"`
	// The user who asked for the recorded action.
	UID *uint32 `json:"uid,omitempty"`
	// The digest of the effective policy, or the beginning of the digest.
	Policy string `json:"policy,omitempty"`
	Tool   string `json:"tool,omitempty"`
	// Decision is "denied" or "allowed".
	Decision string `json:"decision,omitempty"`
	Layer    string `json:"layer,omitempty"`
	// Of fetches: a name, or *. and a name for those below it.
	Host string `json:"host,omitempty"`
	// A pattern of paths, such as /etc/**.
	Path string `json:"path,omitempty"`
}

// Filter converts the request to a filter of the audit log. A malformed path is a usage error.
func (r RecordsRequest) Filter() (audit.Filter, error) {
	f := audit.Filter{Run: r.Run, Session: r.Session, Since: r.Since, Until: r.Until, UID: r.UID,
		Policy: r.Policy, Tool: r.Tool, Decision: r.Decision,
		Layer: r.Layer, Host: r.Host}
	for _, t := range r.Types {
		f.Types = append(f.Types, audit.Type(t))
	}
	if r.Path != "" {
		g, err := policy.ParseGlob(r.Path)
		if err != nil {
			return f, problem.New(problem.Usage, "path: %v", err)
		}
		f.Path = g.Match
	}
	return f, nil
}
