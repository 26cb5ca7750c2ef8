//go:build wasip1

package jailagent

import (
	"encoding/json"
	"os"
)

// Class tells a facet which of its module's agents it is. It is "" for the agent itself.
var Class = os.Getenv("CLASS")

// RunClass runs the agent for this Class. all[""] is the agent itself, the others are its facets.
func RunClass(all map[string]Agent) { Run(all[Class]) }

// A Callee is an Agent that answers calls from other agents and, if it is a facet, from its parent.
// Calls do not go to its OnEvent.
type Callee interface {
	// OnCall returns the result of a call, any JSON value. If it returns an error, the call fails.
	OnCall(method string, args json.RawMessage) (any, error)
}

// An Ask is a parent's request for a facet. The facet gets what it asks for and the parent itself
// has, and nothing else.
type Ask struct {
	Class string `json:"class,omitempty"`
	// Bindings are names of bindings, such as STORAGE.
	Bindings []string `json:"bindings,omitempty"`
	// Network allows the facet to fetch, Facets to have facets of its own.
	Network bool `json:"network,omitempty"`
	Facets  bool `json:"facets,omitempty"`
	// Policy is the text of a policy file that narrows the parent's policy further, or empty.
	Policy string `json:"policy,omitempty"`
	// Limits are limits such as "memory=32MiB". The default for memory and pids is a quarter of the
	// parent's share for facets.
	Limits []string `json:"limits,omitempty"`
	// Storage is the maximum size of its database, in bytes.
	Storage int64 `json:"storage,omitempty"`
	Config  any   `json:"config,omitempty"`
	// Gatekeepers are names of gatekeepers.
	Gatekeepers []string `json:"gatekeepers,omitempty"`
}

// A Child describes a facet to its parent.
type Child struct{ Name, ID, State, Note, Error string }

// Facet returns the facet with this name, and creates it if there is none. It needs
// capabilities.facets = true.
func Facet(name string, ask Ask) (c Child, err error) {
	return c, host("facet", struct {
		Name string `json:"name"`
		Ask
	}{name, ask}, &c)
}

// Facets returns all facets of this agent.
func Facets() (all []Child, err error) { return all, host("facets", nil, &all) }

// AbortFacet ends a facet at once. Its committed state stays, and the next call starts it again.
func AbortFacet(name, reason string) error {
	return host("abortFacet", map[string]any{"name": name, "reason": reason}, nil)
}

// DeleteFacet ends a facet and deletes its storage and its own facets.
func DeleteFacet(name string) error { return host("deleteFacet", map[string]any{"name": name}, nil) }

// SubAgent, AbortSubAgent and DeleteSubAgent are the same for facets that are agents.
var (
	SubAgent       = Facet
	AbortSubAgent  = AbortFacet
	DeleteSubAgent = DeleteFacet
)

// Call calls a method of the facet and decodes its result into result.
func (c Child) Call(method string, args, result any) error {
	all, err := CallAll(FacetCall{c.Name, method, args})
	if err != nil {
		return err
	}
	return all[0].Read(result)
}

// A FacetCall is a call of a facet, for CallAll.
type FacetCall struct {
	Name   string `json:"name"`
	Method string `json:"method"`
	Args   any    `json:"args,omitempty"`
}

// A FacetResult is the result or the error of a FacetCall.
type FacetResult struct {
	Result json.RawMessage
	Error  *Error
}

// Read decodes the result into into, or returns the call's error.
func (r FacetResult) Read(into any) error {
	if r.Error != nil {
		return r.Error
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(r.Result, into)
}

// A Program is a program for Load.
type Program struct {
	// MainModule is the name of the main one of Modules, with the ending .wasm, .py or .js.
	MainModule string
	Modules    map[string][]byte
	// Env is the whole environment, Bindings are all bindings, by the program's name for each.
	Env      map[string]string
	Bindings map[string]Binding
}

// A Binding is a binding of a loaded program. Exactly one field is set. The program calls it over
// the listener of JAIL_AGENT_FD: docs/agent-abi.md.
type Binding struct {
	// Facet names a facet of the agent, Gatekeeper a gatekeeper that the agent may use.
	Facet      string `json:"facet,omitempty"`
	Gatekeeper string `json:"gatekeeper,omitempty"`
	// Binding is AI: the models of the agent. The binding's name must be AI, too.
	Binding string `json:"binding,omitempty"`
}

// Loaded is the result of a loaded program.
type Loaded struct {
	ExitCode       int
	Stdout, Stderr string
	// Limit is the limit that ended the program, Trap the engine's trap. Both may be empty.
	Limit, Trap string
	Usage       struct {
		WallMS     int64 `json:"wall_ms"`
		CPUMS      int64 `json:"cpu_ms"`
		MemoryPeak int64 `json:"memory_peak"`
	}
}

// Load runs a program once, in a fresh jail without files and network, with only the given
// bindings. It needs capabilities.facets = true.
func Load(executionID string, p Program) (done Loaded, err error) {
	type module struct {
		Base64 []byte `json:"base64"`
	}
	modules := map[string]module{}
	for name, code := range p.Modules {
		modules[name] = module{code}
	}
	env := map[string]any{}
	for name, value := range p.Env {
		env[name] = value
	}
	for name, binding := range p.Bindings {
		env[name] = binding
	}
	return done, host("load", map[string]any{"executionId": executionID, "env": env,
		"mainModule": p.MainModule, "modules": modules, "globalOutbound": nil}, &done)
}

// A Command runs a tool that the manifest names in capabilities.tools.
type Command struct {
	// Argv is a command of a bundle, such as grep or core-utils/wc, followed by its arguments.
	Argv []string `json:"argv"`
	// Cwd is a directory below the workspace.
	Cwd   string            `json:"cwd,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
	Stdin string            `json:"stdin,omitempty"`
	// Limits narrow the policy's limits, as in wall=5s.
	Limits []string `json:"limits,omitempty"`
	// Conversation selects the shadow of the workspace. If empty, it is the agent's own.
	Conversation string `json:"conversation,omitempty"`
}

// Ran is the result of a command.
type Ran struct {
	ExitCode       int
	Stdout, Stderr string
	// Truncated says that the output was cut.
	Truncated bool
	Meta      struct {
		// Run is the id in jail's audit log, Limit the limit that ended the command, Denied the
		// actions that were refused.
		Run    string   `json:"run"`
		WallMS int64    `json:"wall_ms"`
		Limit  string   `json:"limit"`
		Denied []string `json:"denied"`
	}
}

// Run runs a tool in a jail of its own. An error with the code pending says that the tool needs an
// approval first: the decision comes as an event of the type approval.
func (c Command) Run() (done Ran, err error) { return done, host("command", c, &done) }

// ProposedChanges is a proposed commit.
type ProposedChanges struct {
	ID, State                string
	Added, Modified, Deleted int64
}

// ProposeChanges proposes to commit the tools' file changes in a conversation. It replaces a
// waiting proposal of the conversation. The decision comes as an event of the type approval. Later
// changes make the proposal stale.
func ProposeChanges(conversation, words string) (p ProposedChanges, err error) {
	return p, host("proposeChanges", map[string]string{"conversation": conversation, "words": words},
		&p)
}

// DiscardChanges ends a conversation and drops its uncommitted changes.
func DiscardChanges(conversation string) error {
	return host("discardChanges", map[string]string{"conversation": conversation}, nil)
}

// CallAll makes calls in parallel, waits for all and returns their results in the same order.
func CallAll(calls ...FacetCall) (all []FacetResult, err error) {
	return all, host("callFacets", map[string]any{"calls": calls}, &all)
}
