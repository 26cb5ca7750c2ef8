// Package agentapi has the messages between jail-agentd and its clients, and a client: JSON over
// HTTP on a Unix socket, and on loopback with a token. docs/agents/http.md describes the requests.
package agentapi

import (
	"encoding/json"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Path is the URL path of requests about all agents. Those about one agent go to Path/NAME.
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

// An Add is a request to register the agent in a directory: POST Path.
type Add struct {
	// Dir is an absolute path.
	Dir string `json:"dir"`
	// StateOf names a sleeping agent. The new agent starts with a copy of its database. Channel
	// selects the instance to copy; if missing, the first channel.
	StateOf string `json:"state_of,omitempty"`
	Channel string `json:"channel,omitempty"`
}

// A Spawn is a request to put an agent on a channel: POST Path/NAME/spawn. For an agent with a
// manifest, handle must be empty or the manifest's, config must be empty, and the channel must be
// one of its channels.
type Spawn struct {
	// Channel defaults to main or, for an agent with a manifest, to its first channel.
	Channel string          `json:"channel,omitempty"`
	Handle  string          `json:"handle,omitempty"`
	Config  json.RawMessage `json:"config,omitempty"`
}

// An Agent is a registered or built-in agent: GET Path lists them, GET Path/NAME shows one.
type Agent struct {
	Name string `json:"name"`
	// ID is agent:USER:NAME.
	ID string `json:"id"`
	// State is the state of the instance that needs the most attention: failed before active
	// before dormant.
	State  string `json:"state"`
	Paused bool   `json:"paused,omitempty"`
	// Builtin says that the agent is built in. About describes it.
	Builtin bool   `json:"builtin,omitempty"`
	About   string `json:"about,omitempty"`
	// Runtime is sandboxed or, for an agent without a jail that has the rights of its user, host.
	Runtime string `json:"runtime,omitempty"`
	// Dir is the directory of the agent's files.
	Dir    string    `json:"dir"`
	Digest string    `json:"digest"`
	Added  time.Time `json:"added,omitzero"`
	// Problem is the reason if the agent in Dir cannot run.
	Problem   string     `json:"problem,omitempty"`
	Instances []Instance `json:"instances"`
	Tokens    Tokens     `json:"tokens,omitzero"`
	// Manifest is the agent's manifest. Lists leave it out.
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

// Tokens are the model tokens that an agent used today (UTC).
type Tokens struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
	// Limit is tokens_day of the manifest, 0 for no limit.
	Limit int64 `json:"limit,omitempty"`
}

// An Instance is an agent on one channel, or a facet.
type Instance struct {
	Instance string `json:"instance"`
	Agent    string `json:"agent"`
	Channel  string `json:"channel"`
	// Facet is the path of a facet: the names of its parent facets and its own, separated by
	// slashes.
	Facet  string `json:"facet,omitempty"`
	State  string `json:"state"`
	Paused bool   `json:"paused,omitempty"`
	// Failures is the number of consecutive failures. The instance is not woken before NotBefore.
	Failures  int       `json:"failures,omitempty"`
	NotBefore time.Time `json:"not_before,omitzero"`
	// Committed is the number of the last committed event.
	Committed    uint64 `json:"committed"`
	Waiting      int    `json:"waiting"`
	WaitingBytes int64  `json:"waiting_bytes"`
	Dead         int    `json:"dead,omitempty"`
	// Note is the agent's text about itself. Error is the reason of a failure.
	Note    string    `json:"note,omitempty"`
	Error   string    `json:"error,omitempty"`
	Changed time.Time `json:"changed,omitzero"`
	Alarms  []Alarm   `json:"alarms,omitempty"`
	// Memory (bytes) and CPUMS are the resource usage of an awake instance.
	Memory int64 `json:"memory,omitempty"`
	CPUMS  int64 `json:"cpu_ms,omitempty"`
}

// An Alarm is a pending alarm of an instance. Name is empty for the heartbeat.
type Alarm struct {
	Name    string          `json:"name"`
	At      time.Time       `json:"at,omitzero"`
	Data    json.RawMessage `json:"data,omitempty"`
	EveryMS int64           `json:"every_ms,omitempty"`
	Pending uint64          `json:"pending,omitempty"`
}

// A Send is a request to send an event to an agent: POST Path/NAME/send.
type Send struct {
	// Content is the event's data, any JSON value.
	Content json.RawMessage `json:"content"`
	// Channel may be empty if the agent has only one.
	Channel string `json:"channel,omitempty"`
	// Type is the event's type. The default is message, or mention if the content has the handle.
	Type    string `json:"type,omitempty"`
	ReplyTo string `json:"reply_to,omitempty"`
	// ID makes the event unique: events with the same ID are delivered once.
	ID string `json:"id,omitempty"`
	// WaitMS is how long the response waits until the event is committed or dead, at most MaxWait.
	WaitMS int64 `json:"wait_ms,omitempty"`
}

// MaxWait bounds Send.WaitMS.
const MaxWait = 10 * time.Minute

// States of a sent event.
const (
	Waiting   = "waiting"
	Committed = "committed"
	Dead      = "dead"
)

// Sent is the response to a Send. The event is durable.
type Sent struct {
	ID       string `json:"id"`
	Seq      uint64 `json:"seq"`
	Instance string `json:"instance"`
	Channel  string `json:"channel"`
	State    string `json:"state"`
	// Published are the messages that the agent sent for the event, if the event is committed.
	Published []Publication `json:"published,omitempty"`
	// Error is the reason of the last failed attempt, if any.
	Error string `json:"error,omitempty"`
}

// A Publication is a message or log line of an agent. GET Path/NAME/log?after=N&follow=1 returns
// them as JSON Lines, oldest first. Without follow the response ends with the last one.
type Publication struct {
	// N orders all publications.
	N       int64     `json:"n"`
	Time    time.Time `json:"time"`
	Channel string    `json:"channel"`
	// To is the receiver of a direct message.
	To string `json:"to,omitempty"`
	// Kind is new, update or complete.
	Kind    string          `json:"kind"`
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	ReplyTo string          `json:"reply_to,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Events are an agent's waiting events and dead letters, at most 1,000 of each: GET
// Path/NAME/events.
type Events struct {
	Waiting []Event `json:"waiting"`
	Dead    []Event `json:"dead"`
}

// An Event is a waiting event or a dead letter. Died and Reason are set only for a dead letter.
type Event struct {
	agent.Event
	Instance string    `json:"instance"`
	Died     time.Time `json:"died,omitzero"`
	Reason   string    `json:"reason,omitempty"`
}

// A Retry is the response to POST Path/NAME/events/SEQ/retry, for a dead letter.
type Retry struct {
	Seq uint64 `json:"seq"`
}

// GatekeepersPath is the URL path of requests about gatekeepers: GET lists them, GET with /NAME
// shows one, POST to /NAME/read reads, and POST to /NAME/propose proposes an action.
const GatekeepersPath = "/api/gatekeepers"

// A Gate is a request for a read or an action of a gatekeeper.
type Gate struct {
	// Method is the name of a read or an action.
	Method string `json:"method"`
	// Args is a JSON object.
	Args json.RawMessage `json:"args,omitempty"`
	// Words is the reason for a proposed action, for people.
	Words string `json:"words,omitempty"`
	// ID makes a proposal unique: proposals with the same ID are one.
	ID string `json:"id,omitempty"`
}

// A Problem is the body of every error response.
type Problem struct {
	Error *problem.Error `json:"error"`
}
