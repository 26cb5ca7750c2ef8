package models

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/fetchrun"
)

// anthropicVersion is the version of the messages API that requests name.
const anthropicVersion = "2023-06-01"

// paths are where the forms of requests go.
var paths = map[string]string{"messages": "/v1/messages", "chat": "/v1/chat/completions",
	"responses": "/v1/responses"}

// A Jail asks models, each time by a jail of its own that has one request and its credential.
type Jail struct{ fetchrun.Sender }

// Ask sends a request to the model of a role: the key is neither here nor in any jail, whatever
// other policies say of the network.
func (j Jail) Ask(ctx context.Context, role manifest.Role, key string,
	body []byte) (*Response, error) {
	to, err := url.Parse(role.URL)
	if err != nil {
		return nil, fmt.Errorf("url of the role: %w", err)
	}
	// JoinPath does not make up the slash of a URL without a path.
	to.Path = "/" + strings.TrimPrefix(to.Path, "/")
	to = to.JoinPath(paths[role.Form])
	header := map[string]string{"Accept": "text/event-stream"}
	if key != "" {
		header["Idempotency-Key"] = key
	}
	if role.Form == formMessages {
		header["anthropic-version"] = anthropicVersion
	}
	res, err := j.Send(ctx, fetchrun.Request{For: "model of an agent", Method: "POST", URL: to,
		Credential: role.Credential, Header: header, Body: body})
	if err != nil {
		return nil, err
	}
	return &Response{Status: res.Status, Body: res.Body}, nil
}
