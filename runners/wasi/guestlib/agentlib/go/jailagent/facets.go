//go:build wasip1

package jailagent

import (
	"encoding/json"
	"os"
)

// Class is which of the agents of its module a facet is, as its parent named it; "" for the agent
// itself.
var Class = os.Getenv("CLASS")

// RunClass runs the agent of the class that this is: all[""] is the agent itself, the others are
// its facets.
func RunClass(all map[string]Agent) { Run(all[Class]) }

// A Callee is an Agent that answers calls: of its parent, if it is a facet, and of other agents.
// Calls do not come to its OnEvent.
type Callee interface {
	// OnCall returns the result of a call, any JSON value. After an error the call has failed.
	OnCall(method string, args json.RawMessage) (any, error)
}

// An Ask is what a parent asks for a facet. It gets of that what the parent has itself; what is left
// out it does not get.
type Ask struct {
	Class string `json:"class,omitempty"`
	// Bindings are names, such as STORAGE.
	Bindings []string `json:"bindings,omitempty"`
	// Network lets it fetch, and Facets have facets of its own.
	Network bool `json:"network,omitempty"`
	Facets  bool `json:"facets,omitempty"`
	// Policy is the text of a policy file, which narrows further; empty: as the parent.
	Policy string `json:"policy,omitempty"`
	// Limits are as in "memory=32MiB"; without one for memory or pids it gets a quarter of what its
	// parent has for facets.
	Limits []string `json:"limits,omitempty"`
	// Storage is how many bytes its database may have.
	Storage int64 `json:"storage,omitempty"`
	Config  any   `json:"config,omitempty"`
	// Gatekeepers are names.
	Gatekeepers []string `json:"gatekeepers,omitempty"`
}

// A Child is a facet, as its parent sees it.
type Child struct{ Name, ID, State, Note, Error string }

// Facet gets the facet of that name, or makes it. It needs capabilities.facets = true.
func Facet(name string, ask Ask) (c Child, err error) {
	return c, host("facet", struct {
		Name string `json:"name"`
		Ask
	}{name, ask}, &c)
}

// Facets returns the facets that there are.
func Facets() (all []Child, err error) { return all, host("facets", nil, &all) }

// AbortFacet ends a facet at once. What it has committed stays, and the next call starts it anew.
func AbortFacet(name, reason string) error {
	return host("abortFacet", map[string]any{"name": name, "reason": reason}, nil)
}

// DeleteFacet ends a facet, and removes its storage and its own facets.
func DeleteFacet(name string) error { return host("deleteFacet", map[string]any{"name": name}, nil) }

// SubAgent, AbortSubAgent and DeleteSubAgent are the same for facets that are agents.
var (
	SubAgent       = Facet
	AbortSubAgent  = AbortFacet
	DeleteSubAgent = DeleteFacet
)

// Call calls a facet, and reads its result.
func (c Child) Call(method string, args, result any) error {
	all, err := CallAll(FacetCall{c.Name, method, args})
	if err != nil {
		return err
	}
	return all[0].Read(result)
}

// A FacetCall is a call of a facet.
type FacetCall struct {
	Name   string `json:"name"`
	Method string `json:"method"`
	Args   any    `json:"args,omitempty"`
}

// A FacetResult is what a call returned.
type FacetResult struct {
	Result json.RawMessage
	Error  *Error
}

// Read reads the result, or returns the error.
func (r FacetResult) Read(into any) error {
	if r.Error != nil {
		return r.Error
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(r.Result, into)
}

// A Program is what Load runs.
type Program struct {
	// MainModule names one of Modules by its ending: .wasm, .py or .js.
	MainModule string
	Modules    map[string][]byte
	// Env is its whole environment, and Bindings are all of its bindings, by names of its own.
	Env      map[string]string
	Bindings map[string]Binding
}

// A Binding of a loaded program has one field set. The program calls it over the listener of
// JAIL_AGENT_FD: docs/agent-abi.md.
type Binding struct {
	// Facet is one of the agent's, and Gatekeeper one that the agent may use.
	Facet      string `json:"facet,omitempty"`
	Gatekeeper string `json:"gatekeeper,omitempty"`
	// Binding is AI, under that name: the models of the agent.
	Binding string `json:"binding,omitempty"`
}

// Loaded is what a program did.
type Loaded struct {
	ExitCode       int
	Stdout, Stderr string
	// Limit is the limit that ended it, Trap why its engine did.
	Limit, Trap string
	Usage       struct {
		WallMS     int64 `json:"wall_ms"`
		CPUMS      int64 `json:"cpu_ms"`
		MemoryPeak int64 `json:"memory_peak"`
	}
}

// Load runs a program once, in a fresh jail without files and network, with the bindings that it is
// given and no others. It needs capabilities.facets = true.
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

// A Command is a tool that the manifest names in capabilities.tools.
type Command struct {
	// Argv is a command of a bundle, such as grep or core-utils/wc, and its arguments.
	Argv []string `json:"argv"`
	// Cwd is a directory below the workspace.
	Cwd   string            `json:"cwd,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
	Stdin string            `json:"stdin,omitempty"`
	// Limits narrow those of the policy, as in wall=5s.
	Limits []string `json:"limits,omitempty"`
	// Conversation has a shadow of the workspace of its own; empty is that of the agent.
	Conversation string `json:"conversation,omitempty"`
}

// Ran is how a command ended.
type Ran struct {
	ExitCode       int
	Stdout, Stderr string
	// Truncated says that there was more output.
	Truncated bool
	Meta      struct {
		// Run is the id in jail's log, Limit the limit that ended it, Denied what was refused it.
		Run    string   `json:"run"`
		WallMS int64    `json:"wall_ms"`
		Limit  string   `json:"limit"`
		Denied []string `json:"denied"`
	}
}

// Run runs a tool in a jail of its own. An error with the code pending says that somebody has to
// approve it first: the event of the type approval says what is decided.
func (c Command) Run() (done Ran, err error) { return done, host("command", c, &done) }

// ProposedChanges is a commit that was proposed.
type ProposedChanges struct {
	ID, State                string
	Added, Modified, Deleted int64
}

// ProposeChanges proposes to commit what tools changed in a conversation. It replaces a proposal of
// the conversation that waits. The event of the type approval says what is decided; changes that
// come after this make the proposal stale.
func ProposeChanges(conversation, words string) (p ProposedChanges, err error) {
	return p, host("proposeChanges", map[string]string{"conversation": conversation, "words": words},
		&p)
}

// DiscardChanges ends a conversation, and throws away what is not committed.
func DiscardChanges(conversation string) error {
	return host("discardChanges", map[string]string{"conversation": conversation}, nil)
}

// CallAll makes calls in parallel, and returns what each returned when all have.
func CallAll(calls ...FacetCall) (all []FacetResult, err error) {
	return all, host("callFacets", map[string]any{"calls": calls}, &all)
}
