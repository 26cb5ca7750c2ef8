// Package agent holds the messages between jail-agentd, which keeps the inboxes of a user's agents,
// and the host of an agent: the process in the agent's jail that runs its module and opens its
// database. They are plain data, and all that the two share.
//
// An awake agent is one run of jaild's. Its standard input and output carry frames (frame.go), from
// jail-agentd ([Order]) and to it ([Report]):
//
//	jail-agentd                               host of the agent
//	                                   <--    Ready: the database is open, and what it has committed
//	Event (up to a batch of them)      -->    one after the other to the guest
//	                                   <--    Call: the guest asks for a model, the roster, a tool
//	Reply                              -->
//	                                   <--    Done: the event is committed, with its effects
//	Settled: the effects are delivered -->    the host forgets the effects
//	Sleep                              -->    the guest is asked to end
//	                                   <--    Slept, then the run ends
//
// One event is one transaction of the agent's database: what the guest writes, the effects that it
// asks for, and the number of the event. The host sends Done after the transaction is on the disk.
// jail-agentd takes an event out of the inbox in the same transaction in which it delivers the
// effects, each known by (agent, event, number). So a crash at any point leaves no event half done:
// see the rules of delivery in SPECIFICATION.md.
//
// Reports come from inside a jail. jail-agentd checks each of them, and stamps source and numbers
// itself.
package agent

import (
	"encoding/json"
	"fmt"
	"time"
)

// Names of the bindings of an agent.
const (
	PubSub  = "PUBSUB"
	Storage = "STORAGE"
	AI      = "AI"
	Host    = "HOST"
)

// Bindings are the names of all bindings. An agent without a binding in its order cannot call it.
var Bindings = []string{PubSub, Storage, AI, Host}

// Bounds of what the two sides send, in bytes if nothing else is said.
const (
	// MaxEvent bounds the JSON form of an event and of an effect.
	MaxEvent = 256 << 10
	// MaxParams bounds the JSON form of the parameters of a call, and of each part of a reply.
	MaxParams = 256 << 10
	// MaxLoad bounds the JSON form of the parameters of HOST.load, which holds programs.
	MaxLoad = 24 << 20
	// MaxProposal bounds the JSON form of a proposed action. It is small because people read it.
	MaxProposal = 12 << 10
	// MaxEffects is how many effects one event may have.
	MaxEffects = 1000
	// MaxName bounds names of channels, alarms, methods and roles.
	MaxName = 128
)

// Kinds of events.
const (
	KindNew      = "new"
	KindReplay   = "replay"
	KindUpdate   = "update"
	KindComplete = "complete"
)

// Types of events that jail-agentd makes. A guest may give its messages other types, but none that
// is Reserved. A message of the type result with reply_to answers a call (callMethod), and is
// delivered to nobody else.
const (
	TypeMessage  = "message"
	TypeMention  = "mention"
	TypeDirect   = "direct"
	TypeAlarm    = "alarm"
	TypeTick     = "tick"
	TypeApproval = "approval"
	TypeCall     = "call"
	TypeResult   = "result"
	TypeManual   = "manual"
	// TypeRoster tells an agent that another agent has joined or left one of its channels. Agents
	// receive it only if their manifest asks for it.
	TypeRoster = "roster"
)

// Reserved reports whether only jail-agentd may make events of this type. Otherwise an agent could
// forge an approval for another agent.
func Reserved(eventType string) bool {
	switch eventType {
	case TypeAlarm, TypeTick, TypeApproval, TypeCall, TypeManual, TypeRoster:
		return true
	}
	return false
}

// An Event is an entry of an agent's inbox. An agent gets events one at a time, ordered by Seq.
type Event struct {
	// Seq is the event's number in the inbox of the agent, from 1.
	Seq uint64 `json:"seq"`
	// ID is unique for its source. Events with the same source and id are delivered once.
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// Source is the sender: agent:USER:NAME, "user" or "host".
	Source  string `json:"source"`
	Channel string `json:"channel,omitempty"`
	Type    string `json:"type"`
	// Kind is KindReplay if the event was delivered before and not committed.
	Kind    string `json:"kind"`
	ReplyTo string `json:"reply_to,omitempty"`
	// Attempt counts deliveries, from 1.
	Attempt int `json:"attempt"`
	// Data is any JSON value.
	Data json.RawMessage `json:"data,omitempty"`
}

// A Wake tells the guest why it was woken, and its identity and configuration.
type Wake struct {
	Reason  string `json:"reason"`
	AgentID string `json:"agent_id"`
	Channel string `json:"channel,omitempty"`
	Handle  string `json:"handle,omitempty"`
	// Class tells a facet which of its module's agents it is. The parent chose this name.
	Class string `json:"class,omitempty"`
	// Config is the config table of the manifest, as JSON.
	Config json.RawMessage `json:"config,omitempty"`
}

// An Order is a message from jail-agentd to the host. Exactly one field is set.
type Order struct {
	Wake  *Wake  `json:"wake,omitempty"`
	Event *Event `json:"event,omitempty"`
	// Settled is the number of the last event whose effects are delivered; the host forgets them.
	Settled uint64 `json:"settled,omitempty"`
	Reply   *Reply `json:"reply,omitempty"`
	Admin   *Admin `json:"admin,omitempty"`
	// Sleep asks the guest to end after the event that it works on.
	Sleep bool `json:"sleep,omitempty"`
}

// A Call is a guest's call of a binding method that jail-agentd answers: with one Reply, or with
// several Replies for a stream.
type Call struct {
	// ID is unique in a run.
	ID      uint64 `json:"id"`
	Binding string `json:"binding"`
	Method  string `json:"method"`
	// Params is a JSON object.
	Params json.RawMessage `json:"params,omitempty"`
	// Part is used in place of Params if these are larger than MaxParams. The receiver joins the
	// parts with the same ID; More is true except for the last part.
	Part []byte `json:"part,omitempty"`
	More bool   `json:"more,omitempty"`
	// Key is the Idempotency-Key of the call: AGENT/SEQ/N, the same when the event is replayed.
	Key string `json:"key,omitempty"`
}

// MaxParamsOf returns the maximum size of a method's parameters, in bytes.
func MaxParamsOf(binding, method string) int {
	if binding == Host && method == MethodLoad {
		return MaxLoad
	}
	return MaxParams
}

// MethodCommand is the method of HOST that runs a tool.
const MethodCommand = "command"

// MethodPropose and MethodDiscard are the methods of HOST for the file changes of tools.
const (
	MethodPropose = "proposeChanges"
	MethodDiscard = "discardChanges"
)

// MethodLoad is the method of HOST that runs a program once.
const MethodLoad = "load"

// A Reply is the answer to a Call, or a part of the answer.
type Reply struct {
	ID uint64 `json:"id"`
	// Result is any JSON value. For a stream, Chunk is the next part of its text instead.
	Result json.RawMessage `json:"result,omitempty"`
	Chunk  []byte          `json:"chunk,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	// More says that further replies follow.
	More bool `json:"more,omitempty"`
}

// Codes of errors that guests see.
const (
	ErrNoBinding  = "no_binding"  // the manifest or the policy does not grant the binding
	ErrNoMethod   = "no_method"   // the binding has no such method
	ErrParams     = "bad_params"  // the parameters are not what the method takes
	ErrNotFound   = "not_found"   // no such channel, role, alarm or receiver
	ErrBusy       = "busy"        // the inbox of a receiver is full, or no jail can be had now
	ErrBudget     = "budget"      // the tokens of the day are used up
	ErrStorage    = "storage"     // SQLite refused the statement
	ErrDeadline   = "deadline"    // the time of the event is over
	ErrTooLarge   = "too_large"   // more than a bound allows
	ErrModel      = "model"       // the model's host answered with an error
	ErrNoEvent    = "no_event"    // what was called belongs to an event, and there is none
	ErrFailed     = "failed"      // jail failed
	ErrInProgress = "in_progress" // a second call where one is allowed
	ErrAborted    = "aborted"     // the parent ended the facet
	ErrForbidden  = "forbidden"   // the policy refuses it
	ErrPending    = "pending"     // it waits for an approval
)

// An Error is the error that a guest gets for a failed call.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Errorf returns an Error with this code and a message formatted as by fmt.Sprintf.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Operations of an Effect.
const (
	OpSend       = "send"        // a message to a channel or an agent
	OpUpdate     = "update"      // of a message that was sent, by its id
	OpComplete   = "complete"    // no more updates of it
	OpAlarm      = "alarm"       // set the alarm of that name
	OpClearAlarm = "clear_alarm" // forget the alarm of that name
	OpSettings   = "settings"    // merge into the settings of the channel
	OpState      = "state"       // a text that lists show
	OpPropose    = "propose"     // an action for approval
)

// An Effect is an action outside of the agent's database that the guest asked for while it handled
// an event. jail-agentd does it after the event's transaction is committed.
type Effect struct {
	// N numbers the effects of an event, from 1. The id of a message is AGENT/SEQ/N.
	N  int    `json:"n"`
	Op string `json:"op"`
	// To names a channel of the manifest or an agent of the same user. Empty means the event's
	// channel.
	To string `json:"to,omitempty"`
	// Name is the name of the alarm to set or clear.
	Name string `json:"name,omitempty"`
	// ID is the id of the message to update or complete.
	ID      string `json:"id,omitempty"`
	Type    string `json:"type,omitempty"`
	ReplyTo string `json:"reply_to,omitempty"`
	// At is when an alarm is due.
	At   time.Time       `json:"at,omitzero"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Effects are all effects of the event Seq.
type Effects struct {
	Seq     uint64   `json:"seq"`
	Effects []Effect `json:"effects,omitempty"`
}

// A Report is a message from the host to jail-agentd. Exactly one field is set.
type Report struct {
	Ready *Ready `json:"ready,omitempty"`
	// Done says that the transaction of the event is on the disk. The host sends it within a
	// second: jail-agentd kills an agent that is silent for longer than the event deadline plus
	// five seconds.
	Done   *Effects     `json:"done,omitempty"`
	Failed *Failed      `json:"failed,omitempty"`
	Call   *Call        `json:"call,omitempty"`
	Log    *Log         `json:"log,omitempty"`
	Admin  *AdminResult `json:"admin,omitempty"`
	// Output is sent only for a program that runs once. Its only other reports are calls.
	Output *Output `json:"output,omitempty"`
	// Slept says that the guest has ended after a Sleep order.
	Slept bool `json:"slept,omitempty"`
}

// Output is a part of a program's standard output or, if Err is true, of its standard error.
type Output struct {
	Err  bool   `json:"err,omitempty"`
	Data []byte `json:"data"`
}

// Ready is the host's first report. If Left does not fit into one report, several Readys are sent.
type Ready struct {
	// Committed is the number of the last committed event. jail-agentd drops events up to it.
	Committed uint64 `json:"committed"`
	// Left are the effects of committed events for which the host has got no Settled order yet.
	Left []Effects `json:"left,omitempty"`
	// More reports whether another Ready follows with more of Left.
	More bool `json:"more,omitempty"`
	// Error says why the agent cannot run, as for a damaged database.
	Error string `json:"error,omitempty"`
}

// Failed says that the transaction of an event was rolled back. To keep the order of events, the
// host then starts no other event. jail-agentd ends the run and wakes the agent again for the same
// event, or for the next one if this event has failed too often.
type Failed struct {
	Seq     uint64 `json:"seq"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Log is a line that the guest logs.
type Log struct {
	// Level is info, warn or error.
	Level   string `json:"level"`
	Message string `json:"message"`
}

// Operations of an Admin.
const (
	// AdminExport returns the memory tables as a Memory.
	AdminExport = "export"
	// AdminImport merges a Memory by id. Later conversations, goals with more progress and patterns
	// with higher confidence replace existing ones. It is idempotent.
	AdminImport = "import"
	// AdminGoals returns the goals. AdminAddGoal adds a goal or replaces the one with its id.
	AdminGoals   = "goals"
	AdminAddGoal = "add_goal"
	// AdminTables returns the number of rows of each table.
	AdminTables = "tables"
)

// An Admin is an operation on the agent's database that the owner asked for. The host does it
// between events; the guest does not take part.
type Admin struct {
	ID uint64 `json:"id"`
	Op string `json:"op"`
	// Data is a part of the operation's input. The host joins the parts with the same ID; More is
	// true except for the last part.
	Data []byte `json:"data,omitempty"`
	More bool   `json:"more,omitempty"`
}

// An AdminResult is a part of the result of an Admin.
type AdminResult struct {
	ID    uint64 `json:"id"`
	Data  []byte `json:"data,omitempty"`
	More  bool   `json:"more,omitempty"`
	Error *Error `json:"error,omitempty"`
}
