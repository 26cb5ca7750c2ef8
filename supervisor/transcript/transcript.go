// Package transcript says what a session of the tool loop is: its events, in order. jail-agentd
// keeps them; the transcript of a session is those events as JSON Lines.
package transcript

import (
	"encoding/json"
	"fmt"
	"regexp"
	"sync"
	"time"
)

// Types of events.
const (
	Init               = "system.init"
	UserMessage        = "user.message"
	AssistantMessage   = "assistant.message"
	ToolUse            = "tool.use"
	ToolResult         = "tool.result"
	PermissionQuestion = "permission.question"
	PermissionDecision = "permission.decision"
	WorkspaceImport    = "workspace.import"
	WorkspaceDiff      = "workspace.diff"
	WorkspaceCommit    = "workspace.commit"
	Result             = "result"
)

// MaxEvent bounds an event as JSON, in bytes.
const MaxEvent = 48 << 20

// An Event is one event of a session.
type Event struct {
	// Seq counts from 1, without gaps.
	Seq       int64     `json:"seq"`
	Time      time.Time `json:"time"`
	SessionID string    `json:"session_id"`
	Type      string    `json:"type"`
	// Of system.init.
	Start *Start `json:"start,omitempty"`
	// Text is what a person or the model says, what a tool answers, how a turn ended, or a list of
	// changes.
	Text string `json:"text,omitempty"`
	// Calls are those of an assistant.message.
	Calls []Call `json:"calls,omitempty"`
	Usage *Usage `json:"usage,omitempty"`
	// CallID and Tool are those of the call that a tool.use, a tool.result or a permission is about.
	CallID string          `json:"call_id,omitempty"`
	Tool   string          `json:"tool,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`
	// IsError says that a tool.result is that of a failure.
	IsError bool `json:"is_error,omitempty"`
	// Decision is that of a permission.decision.
	Decision *Decision `json:"decision,omitempty"`
	// Status is how a turn ended: of a result.
	Status string `json:"status,omitempty"`
	// Code says what kind of error a result is.
	Code string `json:"code,omitempty"`
	// Workspace is what an event of the workspace is about.
	Workspace *Workspace `json:"workspace,omitempty"`
}

// A Start is how a session began, or went on in another process.
type Start struct {
	// Resumed says that the session was there before.
	Resumed bool `json:"resumed,omitempty"`
	// Version is jail's.
	Version string `json:"version"`
	// Dir is the real directory; Jail names the session of jail; Profile is its policy.
	Dir     string `json:"dir"`
	Jail    string `json:"jail"`
	Profile string `json:"profile,omitempty"`
	// Role, Form and Model say what is asked.
	Role  string `json:"role"`
	Form  string `json:"form"`
	Model string `json:"model"`
	// Tools are the names of those that the model may call.
	Tools []string `json:"tools"`
}

// A Call is a tool that the model calls.
type Call struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Input is a JSON object.
	Input json.RawMessage `json:"input"`
	// Malformed is what the model sent in place of an object.
	Malformed string `json:"malformed,omitempty"`
}

// A Usage is how many tokens a message took.
type Usage struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
}

// Decisions on a permission.
const (
	Allow  = "allow"
	Deny   = "deny"
	Revoke = "revoke"
)

// A Decision is what was decided on a tool.
type Decision struct {
	// Decision is allow, deny or revoke. A revoked tool asks again; one without a name means all.
	Decision string `json:"decision"`
	// Scope is once or session.
	Scope string `json:"scope,omitempty"`
	// Via is person, rule, or nobody where there was nobody to ask.
	Via string `json:"via"`
}

// Statuses of a result.
const (
	Success     = "success"
	Failed      = "error"
	Interrupted = "interrupted"
)

// A Workspace is what an event of the workspace is about.
type Workspace struct {
	Added    int    `json:"added,omitempty"`
	Modified int    `json:"modified,omitempty"`
	Deleted  int    `json:"deleted,omitempty"`
	Digest   string `json:"digest,omitempty"`
	// Approval and State are those of a commit that was proposed.
	Approval string `json:"approval,omitempty"`
	State    string `json:"state,omitempty"`
}

// A Summary is one of the sessions that are kept.
type Summary struct {
	ID      string    `json:"id"`
	Started time.Time `json:"started"`
	Changed time.Time `json:"changed"`
	Events  int64     `json:"events"`
	// Bytes are those of the events.
	Bytes int64 `json:"bytes"`
}

var id = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
})

// CheckID returns what is wrong with the id of a session.
func CheckID(s string) error {
	if !id().MatchString(s) {
		return fmt.Errorf("session %.80q: an id is of lower-case letters, digits and -, at most 63", s)
	}
	return nil
}
