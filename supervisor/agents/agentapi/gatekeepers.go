package agentapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/jail-sandbox/jail/supervisor/gatekeepers"
)

// Gatekeepers lists the gatekeepers.
func (c *Client) Gatekeepers(ctx context.Context) (all []gatekeepers.Description, err error) {
	return all, c.call(ctx, http.MethodGet, GatekeepersPath, nil, &all)
}

func gatekeeper(name, below string) string {
	return GatekeepersPath + "/" + url.PathEscape(name) + below
}

// Gatekeeper describes one.
func (c *Client) Gatekeeper(ctx context.Context, name string) (d gatekeepers.Description, err error) {
	return d, c.call(ctx, http.MethodGet, gatekeeper(name, ""), nil, &d)
}

// GateRead reads.
func (c *Client) GateRead(ctx context.Context, name string, g Gate) (out json.RawMessage, err error) {
	return out, c.call(ctx, http.MethodPost, gatekeeper(name, "/read"), g, &out)
}

// GatePropose proposes an action.
func (c *Client) GatePropose(ctx context.Context, name string, g Gate) (p gatekeepers.Proposed,
	err error) {
	return p, c.call(ctx, http.MethodPost, gatekeeper(name, "/propose"), g, &p)
}
