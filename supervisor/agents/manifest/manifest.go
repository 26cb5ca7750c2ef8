// Package manifest reads the definition of an agent: the file agent.toml of its directory,
// strictly, and the other files of the agent beside it.
//
// A lenient reader could give an agent other rights than its author believes. So each unknown key,
// each value of a wrong type and each value out of its bounds is an error with file, line and
// column, and all errors of a file are reported at once. docs/agent.schema.json is the JSON schema
// of the file; [Keys] describes each key.
package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/runners/agent"
)

// version is the only version of the manifest format.
const version = 1

// Names of the manifest file in the directory of an agent. Exactly one of the two must exist.
const (
	File     = "agent.toml"
	FileJSON = "agent.json"
)

// Runtimes of an agent.
const (
	// sandboxed agents run in a jail.
	sandboxed = "sandboxed"
	// Host agents run without a jail, with the rights of their user: built-in agents, and agents of
	// the host's own folder.
	Host = "host"
)

// Defaults of keys.
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
	// maxConfig bounds the JSON of the table config, in bytes.
	maxConfig = 64 << 10
	maxList   = 64
	maxText   = 4096
)

// A Manifest is the content of agent.toml, with defaults for missing keys.
type Manifest struct {
	Name string `json:"name"`
	// Runtime is sandboxed or host.
	Runtime string `json:"runtime"`
	// Module is a .wasm file of the agent's directory, or a command of an installed bundle. Native
	// is a program of the host and its arguments. One of the two is set.
	Module string `json:"module,omitempty"`
	// Args are the arguments of Module.
	Args   []string `json:"args,omitempty"`
	Native []string `json:"native,omitempty"`
	// Profile is the name of a profile; Policy is a policy file of the agent's directory. One of
	// the two is set.
	Profile  string   `json:"profile,omitempty"`
	Policy   string   `json:"policy,omitempty"`
	Channels []string `json:"channels"`
	Handle   string   `json:"handle"`
	// Config is the table config as a JSON object.
	Config       json.RawMessage `json:"config"`
	Capabilities Capabilities    `json:"capabilities"`
	// Storage is the maximum size of the database, in bytes.
	Storage int64 `json:"storage"`
	AI      AI    `json:"ai"`
	Wake    Wake  `json:"wake"`
	// Limits narrow those of the policy, each KEY=VALUE as in a request.
	Limits []string `json:"limits,omitempty"`
	// Tools configure the tools of the agent.
	Tools Tools `json:"tools,omitzero"`
	// Facets is the agent's share of resources for its facets.
	Facets Facets `json:"facets,omitzero"`
	// Mute is set for a facet that may not send messages. A manifest cannot set it.
	Mute bool `json:"-"`
	// Source is the path of the file, Warnings are about settings without an effect.
	Source   string        `json:"-"`
	Warnings syntax.Errors `json:"-"`
}

// Capabilities are the bindings and rights that an agent asks for.
type Capabilities struct {
	Network bool `json:"network"`
	AI      bool `json:"ai"`
	Storage bool `json:"storage"`
	Facets  bool `json:"facets,omitempty"`
	// Tools are patterns of the bundle commands that the agent may run as tools.
	Tools []string `json:"tools,omitempty"`
	// Gatekeeper says that the agent can be a gatekeeper, if gatekeepers.toml makes it one.
	Gatekeeper bool `json:"gatekeeper,omitempty"`
	// Gatekeepers are the owner's gatekeepers that the agent asks for. Each must also allow the
	// agent.
	Gatekeepers []string `json:"gatekeepers,omitempty"`
}

// Tools configure the tools of an agent.
type Tools struct {
	// Workspace is the absolute path of the directory of which tools use a shadow; empty for none.
	Workspace string `json:"workspace,omitempty"`
}

// Facets is the share of an agent's limits for all its facets together; the rest is for itself. 0
// means all but 128 MiB or 16 processes, at least a half and at most three quarters.
type Facets struct {
	// Memory is in bytes.
	Memory int64 `json:"memory,omitempty"`
	PIDs   int64 `json:"pids,omitempty"`
}

// AI says which models an agent may ask, and how many tokens it may use.
type AI struct {
	Roles map[string]Role `json:"roles,omitempty"`
	// TokensDay is the limit of tokens per day; 0 means no limit.
	TokensDay int64 `json:"tokens_day,omitempty"`
}

// A Role is a model that the agent knows under a name of its own.
type Role struct {
	// Form is the API format of requests: "messages", "chat" or "responses".
	Form string `json:"form"`
	// URL is the base URL of the API: https://HOST[:PORT][/PREFIX].
	URL   string `json:"url"`
	Model string `json:"model"`
	// Credential is the name of a credential that the fetch proxy attaches; empty for none.
	Credential string `json:"credential,omitempty"`
	// MaxTokens bounds the tokens of one answer; 0 leaves it to the guest's parameters.
	MaxTokens int64 `json:"max_tokens,omitempty"`
}

// Wake says when an agent is awake, and how it gets events.
type Wake struct {
	// Heartbeat is the time between two tick events; 0 for no ticks.
	Heartbeat time.Duration `json:"heartbeat,omitempty"`
	// Roster: the agent gets events when members join or leave the channel.
	Roster bool `json:"roster,omitempty"`
	// Idle is how long an agent without events stays awake.
	Idle time.Duration `json:"idle"`
	// Deadline is how long the agent may work on one event.
	Deadline time.Duration `json:"deadline"`
	// Batch is how many events are delivered before the first is committed.
	Batch int `json:"batch"`
	// Retries is how often a failed event is delivered again before it becomes a dead letter.
	Retries int `json:"retries"`
}

// Bindings returns the names of the agent's bindings, as in package agent. HOST is always among
// them, PUBSUB unless Mute is set.
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

// Script reports whether the run of the agent needs the agent's directory, which it may only read,
// because Args or Native name files in it. It is false if Module is a .wasm file.
func (m *Manifest) Script() bool { return !isModule(m.Module) }

// OnHost reports whether the agent runs outside of any jail, with the rights of its user.
func (m *Manifest) OnHost() bool { return m.Runtime == Host }

// Instance returns the name of the agent's instance on a channel.
func (m *Manifest) Instance(channel string) string {
	return fmt.Sprintf("agent-%s-%s", m.Name, channel)
}

// Has reports whether the agent is on this channel.
func (m *Manifest) Has(channel string) bool { return slices.Contains(m.Channels, channel) }
