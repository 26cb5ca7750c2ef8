// Package agentapi is what clients and jail-agentd say to each other: JSON over HTTP on a Unix
// socket, and on loopback with a token. docs/agents/http.md describes the requests.
package agentapi

import (
	"encoding/json"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Path is where the requests about all agents go. Those about one agent go to Path/NAME and below.
const Path = "/api/agents"

// States of an instance.
const (
	Created      = "created"
	Initializing = "initializing"
	Active       = "active"
	Dormant      = "dormant"
	Failed       = "failed"
	Terminated   = "terminated"
	// Available is the state of a built-in agent that is on no channel.
	Available = "available"
)

// An Add asks for the agent in a directory: POST Path.
type Add struct {
	// Dir is an absolute path.
	Dir string `json:"dir"`
	// StateOf is another agent, which sleeps: this one is new, and begins with a copy of its
	// database. Channel chooses among its instances; its first channel if missing.
	StateOf string `json:"state_of,omitempty"`
	Channel string `json:"channel,omitempty"`
}

// A Spawn puts an agent on a channel: POST Path/NAME/spawn. Of an agent with a manifest the handle and
// the config are those of the manifest, and the channel is one of its channels.
type Spawn struct {
	// Channel is main if missing, and of an agent with a manifest the first of its channels.
	Channel string          `json:"channel,omitempty"`
	Handle  string          `json:"handle,omitempty"`
	Config  json.RawMessage `json:"config,omitempty"`
}

// An Agent is one that is registered: GET Path lists them, GET Path/NAME shows one.
type Agent struct {
	Name string `json:"name"`
	// ID is agent:USER:NAME.
	ID string `json:"id"`
	// State is that of the instance that needs the most attention: failed before active before
	// dormant.
	State  string `json:"state"`
	Paused bool   `json:"paused,omitempty"`
	// Builtin says that the agent is a part of jail. About is what it does.
	Builtin bool   `json:"builtin,omitempty"`
	About   string `json:"about,omitempty"`
	// Runtime is sandboxed, or host for an agent in no jail, which has the rights of its user.
	Runtime string `json:"runtime,omitempty"`
	// Dir holds the agent's files.
	Dir    string    `json:"dir"`
	Digest string    `json:"digest"`
	Added  time.Time `json:"added,omitzero"`
	// Problem says why the files in Dir are no agent that can run.
	Problem   string     `json:"problem,omitempty"`
	Instances []Instance `json:"instances"`
	Tokens    Tokens     `json:"tokens,omitzero"`
	// Manifest is that of the agent; lists leave it out.
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

// Tokens of models are those of the current day (UTC).
type Tokens struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
	// Limit is tokens_day of the manifest, 0 for none.
	Limit int64 `json:"limit,omitempty"`
}

// An Instance is one agent on one channel.
type Instance struct {
	Instance string `json:"instance"`
	Agent    string `json:"agent"`
	Channel  string `json:"channel"`
	// Facet names a facet, after those that it stands in and with slashes between the names.
	Facet  string `json:"facet,omitempty"`
	State  string `json:"state"`
	Paused bool   `json:"paused,omitempty"`
	// Failures counts those in a row; the instance is not woken again before NotBefore.
	Failures  int       `json:"failures,omitempty"`
	NotBefore time.Time `json:"not_before,omitzero"`
	// Committed is the number of the last event that is committed.
	Committed    uint64 `json:"committed"`
	Waiting      int    `json:"waiting"`
	WaitingBytes int64  `json:"waiting_bytes"`
	Dead         int    `json:"dead,omitempty"`
	// Note is what the agent says of itself, a JSON value; Error is why it failed.
	Note    string    `json:"note,omitempty"`
	Error   string    `json:"error,omitempty"`
	Changed time.Time `json:"changed,omitzero"`
	Alarms  []Alarm   `json:"alarms,omitempty"`
	// Memory (bytes) and CPUMS are those of the jail of an awake instance.
	Memory int64 `json:"memory,omitempty"`
	CPUMS  int64 `json:"cpu_ms,omitempty"`
}

// An Alarm is one that is set. Name is empty for the heartbeat.
type Alarm struct {
	Name    string          `json:"name"`
	At      time.Time       `json:"at,omitzero"`
	Data    json.RawMessage `json:"data,omitempty"`
	EveryMS int64           `json:"every_ms,omitempty"`
	Pending uint64          `json:"pending,omitempty"`
}

// A Send is an event for an agent: POST Path/NAME/send.
type Send struct {
	// Content is any JSON value: the event's data.
	Content json.RawMessage `json:"content"`
	// Channel may be left out of an agent with one channel.
	Channel string `json:"channel,omitempty"`
	// Type is message if it is left out: a mention if the content names the handle of the agent.
	Type    string `json:"type,omitempty"`
	ReplyTo string `json:"reply_to,omitempty"`
	// ID makes the event unique: what is sent twice is delivered once.
	ID string `json:"id,omitempty"`
	// WaitMS is how long the answer waits for the event to be committed or dead, at most MaxWait.
	WaitMS int64 `json:"wait_ms,omitempty"`
}

// MaxWait bounds how long an answer waits.
const MaxWait = 10 * time.Minute

// What became of an event that was sent.
const (
	Waiting   = "waiting"
	Committed = "committed"
	Dead      = "dead"
)

// Sent answers a Send. The event is durable.
type Sent struct {
	ID       string `json:"id"`
	Seq      uint64 `json:"seq"`
	Instance string `json:"instance"`
	Channel  string `json:"channel"`
	State    string `json:"state"`
	// Published is what the agent sent while it worked on the event, if that is committed.
	Published []Publication `json:"published,omitempty"`
	// Error is why the last attempt failed, if one did.
	Error string `json:"error,omitempty"`
}

// A Publication is a message that an agent sent: GET Path/NAME/log?after=N&follow=1 has them, each as
// a line of JSON, oldest first. Without follow the answer ends with the last one.
type Publication struct {
	// N orders all publications.
	N       int64     `json:"n"`
	Time    time.Time `json:"time"`
	Channel string    `json:"channel"`
	// To is the agent that a direct message is for.
	To string `json:"to,omitempty"`
	// Kind is new, update or complete.
	Kind    string          `json:"kind"`
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	ReplyTo string          `json:"reply_to,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Events are those that an agent has not committed: GET Path/NAME/events. Of each list the first
// 1,000 are there.
type Events struct {
	Waiting []Event `json:"waiting"`
	Dead    []Event `json:"dead"`
}

// An Event waits, or is a dead letter: then Died and Reason are set.
type Event struct {
	agent.Event
	Instance string    `json:"instance"`
	Died     time.Time `json:"died,omitzero"`
	Reason   string    `json:"reason,omitempty"`
}

// A Retry answers POST Path/NAME/events/SEQ/retry, which delivers a dead letter again under a new
// number.
type Retry struct {
	Seq uint64 `json:"seq"`
}

// GatekeepersPath is where the requests about gatekeepers go: GET lists them, GET with /NAME shows
// one, POST to /NAME/read reads, and POST to /NAME/propose proposes an action.
const GatekeepersPath = "/api/gatekeepers"

// A Gate is a read or an action of a gatekeeper.
type Gate struct {
	// Method is one of the reads, or of the actions.
	Method string `json:"method"`
	// Args are an object.
	Args json.RawMessage `json:"args,omitempty"`
	// Words say to people why an action is proposed.
	Words string `json:"words,omitempty"`
	// ID makes a proposal unique: what is proposed twice is proposed once.
	ID string `json:"id,omitempty"`
}

// A Problem is the body of every answer that is no success.
type Problem struct {
	Error *problem.Error `json:"error"`
}
