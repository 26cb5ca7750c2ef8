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
	// MaxProposal bounds the JSON form of an action that is proposed: people read it.
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
	// TypeRoster tells a member of a channel, whose manifest asks for it, of another that has joined
	// or left it.
	TypeRoster = "roster"
)

// Reserved reports whether only jail-agentd gives events this type. If agents could, one could tell
// another of an approval that nobody gave.
func Reserved(eventType string) bool {
	switch eventType {
	case TypeAlarm, TypeTick, TypeApproval, TypeCall, TypeManual, TypeRoster:
		return true
	}
	return false
}

// An Event is an item of an agent's inbox. The agent handles events one at a time in the order of
// Seq.
type Event struct {
	// Seq is the event's number in the inbox of the agent, from 1.
	Seq uint64 `json:"seq"`
	// ID is unique for its source: an event that arrives twice is delivered once.
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

// A Wake says why the agent was woken, and holds its identity and configuration.
type Wake struct {
	Reason  string `json:"reason"`
	AgentID string `json:"agent_id"`
	Channel string `json:"channel,omitempty"`
	Handle  string `json:"handle,omitempty"`
	// Class is the class of a facet: its parent's name for one of the agents in the module.
	Class string `json:"class,omitempty"`
	// Config is the manifest's table config.
	Config json.RawMessage `json:"config,omitempty"`
}

// An Order is a message of jail-agentd to the host. Exactly one field is set.
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

// A Call is a guest's call of a binding that jail-agentd answers, with one Reply, or with several
// for a stream.
type Call struct {
	// ID is unique in a run.
	ID      uint64 `json:"id"`
	Binding string `json:"binding"`
	Method  string `json:"method"`
	// Params is an object.
	Params json.RawMessage `json:"params,omitempty"`
	// Part is a part of parameters larger than MaxParams. The parts with the same ID are
	// concatenated; More says that another follows.
	Part []byte `json:"part,omitempty"`
	More bool   `json:"more,omitempty"`
	// Key is the Idempotency-Key of the call: AGENT/SEQ/N, the same when the event is replayed.
	Key string `json:"key,omitempty"`
}

// MaxParamsOf returns the maximum size of a method's parameters in bytes.
func MaxParamsOf(binding, method string) int {
	if binding == Host && method == MethodLoad {
		return MaxLoad
	}
	return MaxParams
}

// MethodCommand is the method of HOST that runs a tool.
const MethodCommand = "command"

// MethodPropose and MethodDiscard are the methods of HOST that propose or discard the changes of
// tools.
const (
	MethodPropose = "proposeChanges"
	MethodDiscard = "discardChanges"
)

// MethodLoad is the method of HOST that runs a program once.
const MethodLoad = "load"

// A Reply answers a Call, or a part of it.
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

// An Error is the error of a failed call as the guest gets it.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Errorf returns an Error with this code and the formatted message.
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

// An Effect is an action of an event outside of the agent's database. jail-agentd carries it out
// after the event's transaction is committed.
type Effect struct {
	// N numbers the effects of an event, from 1. The id of a message is AGENT/SEQ/N.
	N  int    `json:"n"`
	Op string `json:"op"`
	// To names a channel of the manifest, or an agent of the same user; empty: the channel of the
	// event.
	To string `json:"to,omitempty"`
	// Name is the name of an alarm.
	Name string `json:"name,omitempty"`
	// ID is the id of the message to update or complete.
	ID      string `json:"id,omitempty"`
	Type    string `json:"type,omitempty"`
	ReplyTo string `json:"reply_to,omitempty"`
	// At is when an alarm is due.
	At   time.Time       `json:"at,omitzero"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Effects are the effects of one event.
type Effects struct {
	Seq     uint64   `json:"seq"`
	Effects []Effect `json:"effects,omitempty"`
}

// A Report is a message of the host to jail-agentd. Exactly one field is set.
type Report struct {
	Ready *Ready `json:"ready,omitempty"`
	// Done: the transaction of the event is on the disk. It is not held back for longer than a
	// second: an agent of which jail-agentd hears nothing for the deadline of an event and five
	// seconds is killed.
	Done   *Effects     `json:"done,omitempty"`
	Failed *Failed      `json:"failed,omitempty"`
	Call   *Call        `json:"call,omitempty"`
	Log    *Log         `json:"log,omitempty"`
	Admin  *AdminResult `json:"admin,omitempty"`
	// Output is only for a program that runs once. Its only other reports are Calls.
	Output *Output `json:"output,omitempty"`
	// Slept: the guest has ended as Sleep asked.
	Slept bool `json:"slept,omitempty"`
}

// Output is a part of what a program writes to its standard output or, with Err, to its standard
// error.
type Output struct {
	Err  bool   `json:"err,omitempty"`
	Data []byte `json:"data"`
}

// Ready is the host's first report. Further ones follow while More is set.
type Ready struct {
	// Committed is the number of the last event that is committed. jail-agentd drops events up to
	// it.
	Committed uint64 `json:"committed"`
	// Left are the effects of committed events that were not settled.
	Left []Effects `json:"left,omitempty"`
	// More says that Left is not complete: another Ready with the next part follows.
	More bool `json:"more,omitempty"`
	// Error says why the agent cannot run, for example a damaged database.
	Error string `json:"error,omitempty"`
}

// Failed says that an event was not committed. Its transaction was rolled back. The host then begins
// no other event, so that none overtakes this one: jail-agentd ends the run, and wakes the agent
// again for the same event, or for the next one if this has failed too often.
type Failed struct {
	Seq     uint64 `json:"seq"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Log is a line that the guest logs.
type Log struct {
	// info, warn or error.
	Level   string `json:"level"`
	Message string `json:"message"`
}

// Operations of an Admin.
const (
	// AdminExport returns the memory tables as a Memory.
	AdminExport = "export"
	// AdminImport merges a Memory by id. Newer conversations and goals win; for patterns, higher
	// confidence wins. It is idempotent.
	AdminImport = "import"
	// AdminGoals returns the goals; AdminAddGoal adds or replaces one.
	AdminGoals   = "goals"
	AdminAddGoal = "add_goal"
	// AdminTables returns the number of rows of each table.
	AdminTables = "tables"
)

// An Admin is an operation on the agent's database that the host carries out between events, for
// the owner and without the guest.
type Admin struct {
	ID uint64 `json:"id"`
	Op string `json:"op"`
	// Data is the operation's input, or a part of it. The parts with the same ID are concatenated.
	Data []byte `json:"data,omitempty"`
	More bool   `json:"more,omitempty"`
}

// An AdminResult is the result of an Admin, or a part of it.
type AdminResult struct {
	ID    uint64 `json:"id"`
	Data  []byte `json:"data,omitempty"`
	More  bool   `json:"more,omitempty"`
	Error *Error `json:"error,omitempty"`
}
