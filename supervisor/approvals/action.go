// Package approvals implements the durable queue of actions that need an approval, and the grants
// with which one approval covers further actions.
//
// An action is proposed, decided and applied:
//
//	pending ── approve ──► approved ── apply ──► applied ── revert ──► reverted
//	   │                       └──────────────► failed, stale
//	   └──► rejected, expired, withdrawn
//
// The proposer of an external action (external.go) carries it out. Such an action is applying from
// the proposer's claim until the proposer reports the result. It is reverting from the time a
// person asks to undo it until the proposer reports that:
//
//	approved ── claim ──► applying ── report ──► applied
//	applied ── revert ──► reverting ── report ──► reverted
//
// A proposed action never changes. Its SHA-256 covers everything that people see of it, and a
// decision names that digest. When the action is applied, its target is compared with the proposal
// again: if the target has changed, the action is stale and nothing is done. An action without a
// decision stays pending until it expires, even if its proposer has ended.
//
// Each step is flushed to the journal (journal.go) before it has an effect, and written to the
// audit log before an action is applied. If the daemon is killed, a step is in the journal
// completely or not at all. The next daemon writes missing audit records, and applies approved
// actions that have not been applied: never twice.
//
// The owner of an action decides on it, or users named in [permissions.approve] of the ceiling. The
// connection over which an action was proposed cannot decide on it, nor can a process in a jail or
// another container.
package approvals

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// State is the state of an action.
type State string

// States of an action.
const (
	Pending   State = "pending"
	Approved  State = "approved" // and not applied yet
	Applying  State = "applying" // its proposer has claimed it, and has not said how it ended
	Applied   State = "applied"
	Reverting State = "reverting" // its proposer is to undo it, and has not said how that ended
	Failed    State = "failed"    // when it was applied
	Rejected  State = "rejected"
	Expired   State = "expired"
	Withdrawn State = "withdrawn" // by who proposed it
	Stale     State = "stale"     // what it was about has changed
	Reverted  State = "reverted"
)

// Over reports whether the action can no longer be applied.
func (s State) Over() bool {
	return s != Pending && s != Approved && s != Applying && s != Reverting
}

// claimable reports whether the proposer has to carry out or undo the action, or is doing so.
func (s State) claimable() bool { return s == Applying || s == Reverting }

// An Action is an action that needs an approval, in any state.
type Action struct {
	ID string `json:"id"`
	// SHA-256 of everything that is proposed. A decision must name it.
	SHA256 string `json:"sha256"`
	// workspace.commit, fetch, tool, gate, git.push, pr.create or policy.grant.
	Type  string `json:"type"`
	State State  `json:"state"`
	// The owner.
	UID uint32 `json:"uid"`
	// The run or session that the action concerns.
	Run string `json:"run,omitempty"`
	// Digest of the policy of that run.
	Policy string `json:"policy,omitempty"`
	// A description by the daemon.
	Summary string `json:"summary"`
	// A description by the proposer. It may be wrong.
	Words string `json:"words,omitempty"`
	// Set for the type workspace.commit.
	Commit *Commit `json:"commit,omitempty"`
	// Set for the type fetch.
	Fetch *Fetch `json:"fetch,omitempty"`
	// Set for the type tool.
	Tool *Tool `json:"tool,omitempty"`
	External
	// The agent on whose behalf it is proposed, according to the proposer: agent:USER:NAME.
	Agent string `json:"agent,omitempty"`
	// Whether it can be reverted once it is applied.
	Reversible bool      `json:"reversible"`
	Proposed   time.Time `json:"proposed"`
	// The time from which no decision is possible.
	Expires  time.Time `json:"expires"`
	Decision *Decision `json:"decision,omitempty"`
	// The process that carries out or undoes an external action.
	Claim *Claim `json:"claim,omitempty"`
	// The request to undo an external action.
	Undo *Decision `json:"undo,omitempty"`
	// When the action was applied or reached another final state.
	Ended time.Time `json:"ended,omitzero"`
	// The result of applying it: the id of a commit or grant, or what the proposer reports.
	Outcome string `json:"outcome,omitempty"`
	// Why it failed or is stale.
	Error string `json:"error,omitempty"`
	// The action is over, and long lists and texts of its request were removed.
	Trimmed bool `json:"trimmed,omitempty"`
}

// A Commit describes the commit of a shadow to the real directory.
type Commit struct {
	// The real directory, escaped for display.
	Directory string `json:"directory"`
	// When the shadow was prepared, or resumed last. Another shadow may have the id of the run.
	Prepared time.Time `json:"prepared,omitzero"`
	// The shadow belongs to a session that had not ended for good.
	Session bool            `json:"session,omitempty"`
	Changes shadows.Changes `json:"changes"`
	// Protected names among the changes, at most 20.
	Protected []string `json:"protected,omitempty"`
	// What is to be committed. Its digest is the digest of the change set.
	Request shadows.CommitRequest `json:"request"`
	// Only changes that need no person are committed.
	Auto bool `json:"auto,omitempty"`
	// The ref that a request with git_only changes, and its values.
	Branch *workspace.GitRef `json:"branch,omitempty"`
}

// A Fetch is an HTTP request of a run. It is approved before it is sent: the approval is valid for
// one identical request of the same user under the same policy.
type Fetch struct {
	// request, tunnel or websocket. Nobody sees what a tunnel or a websocket carries.
	Kind string `json:"kind"`
	// CONNECT for a tunnel.
	Method string `json:"method"`
	// The whole URL; HOST:PORT for a tunnel.
	URL string `json:"url"`
	// SHA-256 of the body in hexadecimal digits, if there is one, and its length in bytes.
	Body string `json:"body,omitempty"`
	Size int64  `json:"size,omitempty"`
	// The credential that the proxy attaches.
	Credential string `json:"credential,omitempty"`
}

// target returns the URL of the request without its query.
func (f Fetch) target() string {
	target, _, _ := strings.Cut(f.URL, "?")
	return target
}

func (f Fetch) String() string {
	var b strings.Builder
	switch f.Kind {
	case "tunnel":
		fmt.Fprintf(&b, "open a tunnel to %s, in which nobody sees what is sent",
			runners.Printable(f.URL, 300))
	case "websocket":
		fmt.Fprintf(&b, "open a websocket to %s", runners.Printable(f.URL, 300))
	default:
		fmt.Fprintf(&b, "send %s %s", runners.Printable(f.Method, 40), runners.Printable(f.URL, 300))
	}
	if f.Size > 0 {
		fmt.Fprintf(&b, ", with a body of %d bytes", f.Size)
	}
	if f.Credential != "" {
		b.WriteString(", with the credential " + runners.Printable(f.Credential, 128))
	}
	return b.String()
}

// A Tool is the start of a tool. It is approved before the tool starts: the approval is valid for
// one identical start by the same user under the same policy, in a session for one in that session.
type Tool struct {
	// bundle/command, or the path of a module or program.
	Name string `json:"name"`
	// SHA-256 of the module or program, as in audit records.
	Digest string `json:"digest"`
	// SHA-256, in hexadecimal digits, of all arguments, the directories, and the variables of the
	// request.
	Input string `json:"input"`
	// The first arguments, escaped as in audit records.
	Args []string `json:"args,omitempty"`
	// The workspace's real directory, escaped for display.
	Directory string `json:"directory,omitempty"`
	// The start is an invocation of a session.
	Session bool `json:"session,omitempty"`
}

func (t Tool) String() string {
	text := "start " + runners.Printable(t.Name, 300)
	if len(t.Args) > 0 {
		text += " " + runners.Printable(strings.Join(t.Args, " "), 300)
	}
	if t.Directory != "" {
		text += " in " + runners.Printable(t.Directory, 300)
	}
	if t.Session {
		text += ", and again in the same session"
	}
	return text
}

// onRecord returns the summary of an action for the log and errors. The query of a URL, which only
// the person who decides may see, is replaced by its hash, as in the audit records of fetches.
func (a Action) onRecord() string {
	if a.Fetch == nil {
		return a.Summary
	}
	f := *a.Fetch
	if target := f.target(); target != f.URL {
		f.URL = fmt.Sprintf("%s?sha256:%x", target, sha256.Sum256([]byte(f.URL[len(target):])))
	}
	return f.String()
}

// same reports whether an approval of fetch or tool a is also valid for b.
func (a Action) same(b Action) bool {
	switch {
	case a.Fetch != nil && b.Fetch != nil:
		return *a.Fetch == *b.Fetch
	case a.Tool != nil && b.Tool != nil:
		x, y := *a.Tool, *b.Tool
		return x.Name == y.Name && x.Digest == y.Digest && x.Input == y.Input &&
			x.Session == y.Session && (!x.Session || a.Run == b.Run)
	}
	return false
}

// held converts the action to the type that the store of shadows takes.
func (a Action) held() shadows.HeldCommit {
	c := a.Commit
	h := shadows.HeldCommit{UID: a.UID, Run: a.Run, Policy: a.Policy, Directory: c.Directory,
		Prepared: c.Prepared, Session: c.Session, Changes: c.Changes, Protected: c.Protected,
		Request: c.Request, Branch: c.Branch, Words: a.Words, Reversible: a.Reversible}
	h.Request.Auto = c.Auto
	return h
}

// A Decision says who decided on an action, when, and with which scope.
type Decision struct {
	UID uint32 `json:"uid"`
	PID int    `json:"pid"`
	Exe string `json:"exe,omitempty"`
	// cli, api, console or mcp, according to the client; grant or policy if no person decided.
	Via string `json:"via,omitempty"`
	// Which further actions it covers: once (none), session, until=TIME or uses=N.
	Scope string `json:"scope,omitempty"`
	// The grant that approved the action, or that the decision made.
	Grant string    `json:"grant,omitempty"`
	Time  time.Time `json:"time"`
}

func (d Decision) actor() audit.Actor { return audit.Actor{UID: d.UID, PID: d.PID, Exe: d.Exe} }

// A Grant approves actions that are similar to an approved one without a further decision, if the
// policy permits them at all.
type Grant struct {
	ID string `json:"id"`
	// The type of the actions.
	Type string `json:"type"`
	// The owner of the actions.
	UID uint32 `json:"uid"`
	// Only actions of this run, or of this session until it has ended for good; actions of all runs
	// if empty.
	Run string `json:"run,omitempty"`
	// When the shadow of the run was prepared, since another run may get the same id. Not set for a
	// session.
	Prepared time.Time `json:"prepared,omitzero"`
	// Only commits to this directory.
	Directory string `json:"directory,omitempty"`
	// Only fetches of this kind, of this method and of this URL, whatever their query and body.
	Kind   string `json:"kind,omitempty"`
	Method string `json:"method,omitempty"`
	URL    string `json:"url,omitempty"`
	// Only fetches with this credential.
	Credential string `json:"credential,omitempty"`
	// Only this tool with this digest, whatever its arguments.
	Tool   string `json:"tool,omitempty"`
	Digest string `json:"digest,omitempty"`
	// Only external actions on this target: GATEKEEPER ACTION RESOURCE, REMOTE REF CREDENTIAL, or
	// REPOSITORY BASE CREDENTIAL.
	Target string `json:"target,omitempty"`
	// Only external actions on behalf of this agent; without an agent if empty.
	Agent string `json:"agent,omitempty"`
	// Set for a policy grant: what runs get in addition to their profile.
	Widens *PolicyGrant `json:"widens,omitempty"`
	// The scope of the decision that made it.
	Scope string `json:"scope"`
	// The id of the action whose approval made it.
	Action string `json:"action"`
	// When it ends; never if not set.
	Until time.Time `json:"until,omitzero"`
	// How many actions it still covers; any number if not set.
	Uses  int       `json:"uses,omitempty"`
	Given time.Time `json:"given"`
	// The user who gave it.
	By uint32 `json:"by"`
}

// stored is an action in the journal.
type stored struct {
	Action
	// Connection is the id of the connection over which the action was proposed.
	Connection string `json:"connection,omitempty"`
	// Others are the ids of connections that have proposed the same action since.
	Others []string `json:"others,omitempty"`
	// Applying is set before the action is applied. Before is the result of Committer.Before then.
	Applying bool `json:"applying,omitempty"`
	// RunEnded is true if the run or session has ended, so that a grant for it would be useless.
	RunEnded bool   `json:"run_ended,omitempty"`
	Before   string `json:"before,omitempty"`
	// Key is the SHA-256 of the secret key of an external action, and Process its proposer.
	Key     string  `json:"key,omitempty"`
	Process process `json:"process,omitzero"`
	// Claimant is the process that has claimed the action.
	Claimant process `json:"claimant,omitzero"`
}

// maxOverSize is the size in bytes from which a finished action is trimmed.
const maxOverSize = 4 << 10

// trim removes long lists and texts from a finished action. Its digest and summary remain.
func (s *stored) trim() {
	// The proposer needs the whole action if it may have to undo it.
	undone := s.State == Applied && s.Reversible
	if s.task() != nil && s.size() > maxOverSize && !undone {
		s.External, s.Trimmed = s.trimmed(), true
	}
	if s.Commit == nil || s.size() <= maxOverSize {
		return
	}
	c := *s.Commit
	r := &c.Request
	c.Protected, r.Paths, r.Hunks, r.Classes = nil, nil, nil, nil
	s.Commit, s.Trimmed = &c, true
}

// digest returns the digest of what is proposed.
func (a Action) digest() string {
	a.SHA256, a.State, a.Decision, a.Outcome, a.Error = "", "", nil, "", ""
	a.Ended, a.Trimmed, a.Claim, a.Undo = time.Time{}, false, nil, nil
	text, err := json.Marshal(a)
	if err != nil {
		// Every field is a text, a number, a time or a struct of those.
		panic("approvals: bug: " + err.Error())
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// summarize returns the daemon's description of an action, for Summary.
func (a Action) summarize() string {
	if a.Fetch != nil {
		return a.Fetch.String()
	}
	if a.Tool != nil {
		return a.Tool.String()
	}
	if t := a.task(); t != nil {
		return t.String()
	}
	c := a.Commit
	if a.Type != policy.ActionCommit || c == nil {
		return a.Type
	}
	var b strings.Builder
	fmt.Fprintf(&b, "write %d added, %d modified and %d deleted paths to %s", c.Changes.Added,
		c.Changes.Modified, c.Changes.Deleted, runners.Printable(c.Directory, 300))
	if r := c.Request; len(r.Paths)+len(r.Hunks)+len(r.Classes) > 0 || r.Exact {
		b.WriteString(", of these only a part")
		if len(r.Paths) > 0 {
			b.WriteString(": " + few(r.Paths))
		}
	}
	if c.Request.GitOnly != "" {
		b.WriteString(", as git fetch of " + runners.Printable(c.Request.GitOnly, 100))
	}
	if c.Branch != nil {
		b.WriteString(": " + runners.Printable(c.Branch.String(), 300))
	}
	if c.Auto {
		b.WriteString(", of these only what needs no person")
	}
	if c.Request.Merge {
		b.WriteString(", merged with what was changed there meanwhile")
	}
	if c.Request.Theirs {
		b.WriteString(", over what was changed there meanwhile")
	}
	switch {
	case c.Request.IncludeProtected:
		b.WriteString("; protected names are taken")
		if len(c.Protected) > 0 {
			b.WriteString(": " + few(c.Protected))
		}
	case len(c.Protected) > 0:
		b.WriteString("; protected names are held back: " + few(c.Protected))
	}
	return b.String()
}

// few joins the first five texts and says how many more there are.
func few(texts []string) string {
	const most = 5
	var out []string
	for _, t := range texts[:min(len(texts), most)] {
		out = append(out, runners.Printable(t, 100))
	}
	text := strings.Join(out, ", ")
	if more := len(texts) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Values of Decision.Via for decisions by people. Other decisions have "grant" or "policy".
var ways = []string{"cli", "api", "console", "mcp"}

// Bounds of a scope.
const (
	maxScope = 64 // bytes
	maxUses  = 1000
	maxUntil = 30 * 24 * time.Hour
)

// grantFor returns the grant that approving a with this scope makes, nil if only a is covered.
func grantFor(a Action, scope string, now time.Time) (*Grant, error) {
	if len(scope) > maxScope {
		return nil, problem.New(problem.Usage, "a scope has %d bytes, at most %d", len(scope), maxScope)
	}
	g := &Grant{Type: a.Type, UID: a.UID, Scope: scope, Action: a.ID, Given: now}
	if a.Commit != nil {
		g.Directory = a.Commit.Directory
	}
	if f := a.Fetch; f != nil {
		g.Kind, g.Method, g.URL, g.Credential = f.Kind, f.Method, f.target(), f.Credential
	}
	if t := a.Tool; t != nil {
		g.Tool, g.Digest = t.Name, t.Digest
	}
	if t := a.task(); t != nil {
		g.Target, g.Agent = t.target(), a.Agent
	}
	name, value, _ := strings.Cut(scope, "=")
	switch {
	case value == "" && (name == "" || name == "once"):
		return nil, nil
	case value == "" && name == "session":
		if a.Run == "" {
			return nil, problem.New(problem.Usage, "action %s is of no session", a.ID).
				WithHint("give until=TIME or uses=N")
		}
		g.Run = a.Run
		if a.Commit != nil && !a.Commit.Session {
			g.Prepared = a.Commit.Prepared
		}
		return g, nil
	case name == "until":
		until, err := time.Parse(time.RFC3339, value)
		if d, durationErr := time.ParseDuration(value); durationErr == nil {
			until, err = now.Add(d), nil
		}
		if err != nil || !until.After(now) || until.Sub(now) > maxUntil {
			return nil, problem.New(problem.Usage, "scope %q: the time is none within 30 days", scope).
				WithHint("write a duration or a time, as in until=8h or until=2026-12-24T18:00:00Z")
		}
		g.Until = until
		return g, nil
	case name == "uses":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > maxUses {
			return nil, problem.New(problem.Usage, "scope %q: the number is none from 1 to %d", scope,
				maxUses).WithHint("write uses=3 for this action and two more")
		}
		// The approved action is the first use.
		if g.Uses = n - 1; g.Uses == 0 {
			return nil, nil
		}
		return g, nil
	}
	return nil, problem.New(problem.Usage, "scope %q is none", scope).
		WithHint("there are once, session, until=TIME and uses=N")
}

// covers reports whether the grant allows an action now. Commits and pushes with protected names,
// branches of git, and files changed on both sides need a decision each time.
func (g Grant) covers(a Action, now time.Time) bool {
	if g.over(now) || g.Type != a.Type || g.UID != a.UID || g.Run != "" && g.Run != a.Run {
		return false
	}
	if f := a.Fetch; f != nil {
		return g.Kind == f.Kind && g.Method == f.Method && g.URL == f.target() &&
			g.Credential == f.Credential
	}
	if t := a.Tool; t != nil {
		return g.Tool == t.Name && g.Digest == t.Digest
	}
	if t := a.task(); t != nil {
		return g.Target != "" && g.Target == t.target() && g.Agent == a.Agent &&
			(a.Push == nil || len(a.Push.Protected) == 0)
	}
	c := a.Commit
	if c == nil {
		return true
	}
	if g.Run != "" && (c.Session != g.Prepared.IsZero() ||
		!c.Session && !g.Prepared.Equal(c.Prepared)) {
		return false
	}
	r := c.Request
	return g.Directory == c.Directory && !r.IncludeProtected && !r.Theirs && !r.Merge &&
		r.GitOnly == ""
}

func (g Grant) over(now time.Time) bool { return !g.Until.IsZero() && !now.Before(g.Until) }
