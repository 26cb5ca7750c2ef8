package agentapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// A Gatekeeper is the description of a gatekeeper for agents and people.
type Gatekeeper struct {
	Name string `json:"name"`
	// Kind is sqlite, openapi or agent.
	Kind  string `json:"kind"`
	About string `json:"about,omitempty"`
	// Resource is the path of a file, the URL of an API or the name of an agent. Agents see only
	// the gatekeeper's name here.
	Resource string `json:"resource"`
	// Reads are methods that are answered at once. Actions need an approval.
	Reads   []GateMethod `json:"reads"`
	Actions []GateMethod `json:"actions"`
	// Tables are the tables of a SQLite file.
	Tables []GateTable `json:"tables,omitempty"`
	// Problem is the reason if the resource cannot be described.
	Problem string `json:"problem,omitempty"`
}

// A GateMethod is a read or an action of a gatekeeper.
type GateMethod struct {
	Name  string `json:"name"`
	About string `json:"about,omitempty"`
	// Args is an example of the arguments or a list of parameters.
	Args json.RawMessage `json:"args,omitempty"`
	// Reversible says whether an action can be undone.
	Reversible bool `json:"reversible,omitempty"`
}

// A GateTable is a table or view of a SQLite file.
type GateTable struct {
	Name string `json:"name"`
	// View says that the rows are read-only.
	View    bool         `json:"view,omitempty"`
	Columns []GateColumn `json:"columns"`
}

// A GateColumn is a column of a table.
type GateColumn struct {
	Name string `json:"name"`
	Type string `json:"type,omitempty"`
	// Key says that the column is a part of the primary key.
	Key      bool `json:"key,omitempty"`
	NotNull  bool `json:"not_null,omitempty"`
	Computed bool `json:"computed,omitempty"`
}

// A GateProposed is a proposed action in the approval queue.
type GateProposed struct {
	ID         string          `json:"id"`
	State      string          `json:"state"`
	Reversible bool            `json:"reversible"`
	Before     json.RawMessage `json:"before,omitempty"`
	After      json.RawMessage `json:"after,omitempty"`
}

// Gatekeepers lists the gatekeepers.
func (c *Client) Gatekeepers(ctx context.Context) (all []Gatekeeper, err error) {
	return all, c.call(ctx, http.MethodGet, GatekeepersPath, nil, &all)
}

func gatekeeper(name, below string) string {
	return GatekeepersPath + "/" + url.PathEscape(name) + below
}

// Gatekeeper returns the description of one gatekeeper.
func (c *Client) Gatekeeper(ctx context.Context, name string) (d Gatekeeper, err error) {
	return d, c.call(ctx, http.MethodGet, gatekeeper(name, ""), nil, &d)
}

// GateRead calls a read of a gatekeeper and returns its result.
func (c *Client) GateRead(ctx context.Context, name string, g Gate) (out json.RawMessage, err error) {
	return out, c.call(ctx, http.MethodPost, gatekeeper(name, "/read"), g, &out)
}

// GatePropose proposes an action of a gatekeeper.
func (c *Client) GatePropose(ctx context.Context, name string, g Gate) (p GateProposed, err error) {
	return p, c.call(ctx, http.MethodPost, gatekeeper(name, "/propose"), g, &p)
}
