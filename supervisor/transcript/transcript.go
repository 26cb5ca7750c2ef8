// Package transcript defines the events of a session of the tool loop. jail-agentd stores them; the
// transcript of a session is its events in order, as JSON Lines.
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

// MaxEvent bounds the JSON of an event, in bytes.
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
	// Text is a message of the user or the model, the result of a tool or a turn, or a list of
	// changes.
	Text string `json:"text,omitempty"`
	// Calls are the tool calls of an assistant.message.
	Calls []Call `json:"calls,omitempty"`
	Usage *Usage `json:"usage,omitempty"`
	// CallID and Tool identify the call of a tool.use, tool.result or permission event.
	CallID string          `json:"call_id,omitempty"`
	Tool   string          `json:"tool,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`
	// IsError is true if a tool.result is an error.
	IsError bool `json:"is_error,omitempty"`
	// Decision is the decision of a permission.decision.
	Decision *Decision `json:"decision,omitempty"`
	// Status says how a turn ended, in a result.
	Status string `json:"status,omitempty"`
	// Code is the code of the error, in a result that failed.
	Code string `json:"code,omitempty"`
	// Workspace describes the changes, in an event of the workspace.
	Workspace *Workspace `json:"workspace,omitempty"`
}

// A Start describes the start of a session, or its resumption in another process.
type Start struct {
	// Resumed is true if the session existed before.
	Resumed bool `json:"resumed,omitempty"`
	// Version is the version of jail.
	Version string `json:"version"`
	// Dir is the real directory, Jail the name of the jail's session, and Profile its profile.
	Dir     string `json:"dir"`
	Jail    string `json:"jail"`
	Profile string `json:"profile,omitempty"`
	// Role is the role, Form its API format, and Model the name of the model at its host.
	Role  string `json:"role"`
	Form  string `json:"form"`
	Model string `json:"model"`
	// Tools are the names of the tools that the model may call.
	Tools []string `json:"tools"`
}

// A Call is a tool call of the model.
type Call struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Input is a JSON object.
	Input json.RawMessage `json:"input"`
	// Malformed is the input that the model sent, if it is not a JSON object.
	Malformed string `json:"malformed,omitempty"`
}

// A Usage counts the tokens of one request to a model.
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

// A Decision is a decision on the permission to call a tool.
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

// A Workspace describes the changes in a workspace event.
type Workspace struct {
	Added    int    `json:"added,omitempty"`
	Modified int    `json:"modified,omitempty"`
	Deleted  int    `json:"deleted,omitempty"`
	Digest   string `json:"digest,omitempty"`
	// Approval is the id of the action of a proposed commit, and State its state.
	Approval string `json:"approval,omitempty"`
	State    string `json:"state,omitempty"`
}

// A Summary describes a stored session.
type Summary struct {
	ID      string    `json:"id"`
	Started time.Time `json:"started"`
	Changed time.Time `json:"changed"`
	Events  int64     `json:"events"`
	// Bytes is the total size of the events.
	Bytes int64 `json:"bytes"`
}

var id = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
})

// CheckID returns an error if s is not a valid id of a session.
func CheckID(s string) error {
	if !id().MatchString(s) {
		return fmt.Errorf("session %.80q: an id is of lower-case letters, digits and -, at most 63", s)
	}
	return nil
}
