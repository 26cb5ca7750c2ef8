// Package manifest reads what an agent is: the file agent.toml of its directory, strictly, and the
// files beside it that the agent consists of.
//
// A lenient reader would let an agent have more, or less, than its author believes. So each key that
// is not known, each value of another type and each value out of its bounds is an error with file,
// line and column, and all errors of a file are reported at once. docs/agent.schema.json is the JSON
// schema of the file; [Keys] describes each key.
package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/runners/agent"
)

// version is the one version of the manifest.
const version = 1

// Names of files in the directory of an agent: one of the two is there.
const (
	File     = "agent.toml"
	FileJSON = "agent.json"
)

// Runtimes of an agent.
const (
	// sandboxed agents run in a jail.
	sandboxed = "sandboxed"
	// Host agents have the rights of their user: the built-in ones, and those of the host's own
	// folder.
	Host = "host"
)

// Values of keys that are left out.
const (
	defaultProfile  = "agent"
	DefaultChannel  = "main"
	defaultStorage  = 64 << 20
	defaultIdle     = 30 * time.Second
	defaultDeadline = time.Minute
	defaultBatch    = 64
	defaultRetries  = 5
)

// Bounds of values.
const (
	minStorage   = 1 << 20
	maxStorage   = 1 << 30
	minHeartbeat = time.Second
	maxHeartbeat = 366 * 24 * time.Hour
	minTime      = 100 * time.Millisecond
	maxTime      = time.Hour
	MaxBatch     = 1000
	maxRetries   = 100
	// maxConfig bounds the JSON form of the table config, in bytes.
	maxConfig = 64 << 10
	maxList   = 64
	maxText   = 4096
)

// A Manifest is what agent.toml says, with the defaults of what it leaves out.
type Manifest struct {
	Name string `json:"name"`
	// Runtime is sandboxed or host.
	Runtime string `json:"runtime"`
	// Module is a .wasm file of the agent's directory, or a command of an installed bundle. Native
	// is a program of the host and its arguments. One of the two is set.
	Module string `json:"module,omitempty"`
	// Args follow the name of the module.
	Args   []string `json:"args,omitempty"`
	Native []string `json:"native,omitempty"`
	// Profile is the name of a profile; Policy is a policy file of the agent's directory. One of
	// the two is set.
	Profile  string   `json:"profile,omitempty"`
	Policy   string   `json:"policy,omitempty"`
	Channels []string `json:"channels"`
	Handle   string   `json:"handle"`
	// Config is a JSON object.
	Config       json.RawMessage `json:"config"`
	Capabilities Capabilities    `json:"capabilities"`
	// Storage is how large the database may become, in bytes.
	Storage int64 `json:"storage"`
	AI      AI    `json:"ai"`
	Wake    Wake  `json:"wake"`
	// Limits narrow those of the policy, each KEY=VALUE as in a request.
	Limits []string `json:"limits,omitempty"`
	// Tools say what the tools of the agent work on.
	Tools Tools `json:"tools,omitzero"`
	// Facets is what an agent keeps for its facets.
	Facets Facets `json:"facets,omitzero"`
	// Mute is set for a facet whose parent does not let it send messages; no manifest says it.
	Mute bool `json:"-"`
	// Source is the file, and Warnings are what it says in vain.
	Source   string        `json:"-"`
	Warnings syntax.Errors `json:"-"`
}

// Capabilities are the bindings that an agent asks for. What is false is not there.
type Capabilities struct {
	Network bool `json:"network"`
	AI      bool `json:"ai"`
	Storage bool `json:"storage"`
	Facets  bool `json:"facets,omitempty"`
	// Tools are patterns of the commands of bundles that it may run.
	Tools []string `json:"tools,omitempty"`
	// Gatekeeper says that the agent may be a gatekeeper, if gatekeepers.toml has it be one.
	Gatekeeper bool `json:"gatekeeper,omitempty"`
	// Gatekeepers are those of the owner that the agent may use, if they let it.
	Gatekeepers []string `json:"gatekeepers,omitempty"`
}

// Tools are what the tools of an agent have.
type Tools struct {
	// Workspace is the directory that they work on a shadow of, an absolute path; empty for none.
	Workspace string `json:"workspace,omitempty"`
}

// Facets say how much of what an agent has is for its facets together, while the rest is for itself.
// What is 0 is all but 128 MiB and 16 processes, at least a half and at most three quarters.
type Facets struct {
	// Memory is in bytes.
	Memory int64 `json:"memory,omitempty"`
	PIDs   int64 `json:"pids,omitempty"`
}

// AI says which models an agent may ask, and how much.
type AI struct {
	Roles map[string]Role `json:"roles,omitempty"`
	// TokensDay bounds the tokens of a day; 0 bounds them not.
	TokensDay int64 `json:"tokens_day,omitempty"`
}

// A Role is a model under a name of the agent's.
type Role struct {
	// Form is that of requests: "messages", "chat" or "responses".
	Form string `json:"form"`
	// URL is where the form's path is appended: https://HOST[:PORT][/PREFIX].
	URL   string `json:"url"`
	Model string `json:"model"`
	// Credential is the name of a credential that the fetch proxy attaches; empty for none.
	Credential string `json:"credential,omitempty"`
	// MaxTokens bounds one answer; 0 leaves it to the guest's parameters.
	MaxTokens int64 `json:"max_tokens,omitempty"`
}

// Wake says when an agent is awake, and how events are delivered to it.
type Wake struct {
	// Heartbeat is the time between two ticks; 0 for none.
	Heartbeat time.Duration `json:"heartbeat,omitempty"`
	// Roster asks for events about members that join or leave the channel.
	Roster bool `json:"roster,omitempty"`
	// Idle is how long an agent without events stays awake.
	Idle time.Duration `json:"idle"`
	// Deadline bounds the work on one event.
	Deadline time.Duration `json:"deadline"`
	// Batch is how many events are delivered at one time.
	Batch int `json:"batch"`
	// Retries is how often a failed event is delivered again before it is a dead letter.
	Retries int `json:"retries"`
}

// Bindings returns the names of the bindings that the capabilities ask for, as in package agent.
// PUBSUB and HOST are always there, but for PUBSUB of a facet.
func (m *Manifest) Bindings() []string {
	var out []string
	if !m.Mute {
		out = append(out, agent.PubSub)
	}
	if m.Capabilities.Storage {
		out = append(out, agent.Storage)
	}
	if m.Capabilities.AI {
		out = append(out, agent.AI)
	}
	return append(out, agent.Host)
}

// Script reports whether the run of the agent needs the agent's directory as its workspace, which
// the policy lets it read only: Args or Native name files of it, relative to its root. A .wasm file
// of the directory is the tool of the run itself, by its path.
func (m *Manifest) Script() bool { return !isModule(m.Module) }

// OnHost reports whether the agent runs outside of any jail, with the rights of its user.
func (m *Manifest) OnHost() bool { return m.Runtime == Host }

// Instance returns the name of the agent's instance on a channel.
func (m *Manifest) Instance(channel string) string {
	return fmt.Sprintf("agent-%s-%s", m.Name, channel)
}

// Has reports whether the agent is on a channel.
func (m *Manifest) Has(channel string) bool { return slices.Contains(m.Channels, channel) }
