package jailed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// anthropicVersion is the version of the messages API that requests name.
const anthropicVersion = "2023-06-01"

// paths are where the forms of requests go.
var paths = map[string]string{"messages": "/v1/messages", "chat": "/v1/chat/completions",
	"responses": "/v1/responses"}

// Ask sends a request to the model of a role by the tool fetch, in a jail of its own. The policy of
// that jail grants this one request and its credential, which the fetch proxy attaches: the key is
// neither here nor in any jail, whatever the agent's own policy says of the network.
func (j *Jaild) Ask(ctx context.Context, role manifest.Role, key string,
	body []byte) (*agents.Response, error) {
	to, err := url.Parse(role.URL)
	if err != nil {
		return nil, fmt.Errorf("url of the role: %w", err)
	}
	// JoinPath does not make up the slash of a URL without a path.
	to.Path = "/" + strings.TrimPrefix(to.Path, "/")
	to = to.JoinPath(paths[role.Form])
	c, err := j.client(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"-sS", "-N", "-i", "-X", "POST", "-H", "Content-Type: application/json", "-H",
		"Accept: text/event-stream", "--data-binary", "@-"}
	if key != "" {
		args = append(args, "-H", "Idempotency-Key: "+key)
	}
	if role.Form == "messages" {
		args = append(args, "-H", "anthropic-version: "+anthropicVersion)
	}
	req := message.Request{ID: string(jail.NewID()), Tool: "core-utils/fetch", Dir: "/",
		NoWorkspace: true, Policy: policyFor(to, role.Credential), PolicyName: "model of an agent",
		Args: runners.Texts(append(args, to.String()))}
	ctx, cancel := context.WithCancel(ctx)
	out, in := io.Pipe()
	said := &agents.Tail{Most: maxSaid}
	go func() {
		defer c.Close()
		res, err := c.Run(ctx, req, bytes.NewReader(body), in, said)
		switch {
		case err != nil:
		case res.Error != nil:
			err = res.Error
		case res.ExitCode != 0:
			err = fmt.Errorf("the request failed: %s", said)
		default:
			err = io.EOF
		}
		in.CloseWithError(err)
	}()
	r := bufio.NewReader(out)
	res, err := http.ReadResponse(r, &http.Request{Method: "POST"})
	if err != nil {
		// What the jail said is more than what is missing in its output.
		_, cause := io.Copy(io.Discard, out)
		cancel()
		out.Close()
		return nil, errors.Join(cause, err)
	}
	// The tool has taken the framing of the body away: all that follows the head is the body.
	return &agents.Response{Status: res.StatusCode, Body: &response{r, out, cancel}}, nil
}

// response is a body that is still being sent.
type response struct {
	io.Reader
	out    *io.PipeReader
	cancel context.CancelFunc
}

func (r *response) Close() error {
	r.cancel()
	return r.out.Close()
}

// policyFor grants one request and its credential, and nothing else.
func policyFor(to *url.URL, credential string) string {
	port := to.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[to.Scheme]
	}
	var b strings.Builder
	fmt.Fprintf(&b, `policy = 1
name = "agent-model"
include = ["base"]
[workspace]
access = "none"
[limits]
wall = "10m"
output = "64MiB"
[tools]
allow = ["core-utils/fetch"]
[fetch.limits]
timeout = "10m"
requests = 1
bytes_in = "64MiB"
[[fetch.allow]]
host = %q
ports = [%s]
methods = ["POST"]
paths = [%q]
`, to.Hostname(), port, to.EscapedPath())
	if credential != "" {
		fmt.Fprintf(&b, "credential = %q\n", credential)
	}
	return b.String()
}
