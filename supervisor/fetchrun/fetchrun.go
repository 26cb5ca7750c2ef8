// Package fetchrun sends one HTTP request by a run of the tool fetch, in a jail of its own. The
// run's policy grants only this request and its credential. The fetch proxy attaches the
// credential, so the caller never has it.
package fetchrun

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// maxSaid bounds the standard error of a failed request that an error quotes, in bytes.
const maxSaid = 2 << 10

// A Sender sends requests as runs of its user. jaild decides on each as on any run.
type Sender struct {
	// Client connects to a running daemon. The sender closes the client.
	Client func(ctx context.Context) (*client.Client, error)
}

// A Request is one HTTP request. Its body is JSON.
type Request struct {
	// For is the request's purpose. It becomes the policy's name in the audit log.
	For    string
	Method string
	URL    *url.URL
	// Credential names the credential that the proxy attaches; empty for none.
	Credential string
	// Header has additional header fields.
	Header map[string]string
	Body   []byte
}

// A Response is the response of the HTTP server.
type Response struct {
	Status int
	Header http.Header
	// Body streams the body. The caller closes it.
	Body io.ReadCloser
}

// Send sends r and returns when the head of the response has arrived.
func (s Sender) Send(ctx context.Context, r Request) (*Response, error) {
	c, err := s.Client(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"-sS", "-N", "-i", "-X", r.Method}
	fields := []string{}
	for name, value := range r.Header {
		fields = append(fields, name+": "+value)
	}
	slices.Sort(fields)
	for _, field := range fields {
		args = append(args, "-H", field)
	}
	if r.Body != nil {
		args = append(args, "-H", "Content-Type: application/json", "--data-binary", "@-")
	}
	req := message.Request{ID: string(jail.NewID()), Tool: "core-utils/fetch", Dir: "/",
		NoWorkspace: true, Policy: policyFor(r), PolicyName: r.For,
		Args: runners.Texts(append(args, r.URL.String()))}
	ctx, cancel := context.WithCancel(ctx)
	out, in := io.Pipe()
	said := &stdio.Kept{Most: maxSaid}
	go func() {
		defer c.Close()
		res, err := c.Run(ctx, req, bytes.NewReader(r.Body), in, said)
		switch {
		case err != nil:
		case res.Error != nil:
			err = res.Error
		case res.ExitCode != 0:
			err = fmt.Errorf("the request failed: %s", strings.TrimSpace(said.String()))
		default:
			err = io.EOF
		}
		in.CloseWithError(err)
	}()
	reader := bufio.NewReader(out)
	res, err := http.ReadResponse(reader, &http.Request{Method: r.Method})
	if err != nil {
		// The error of the run explains more than the incomplete output.
		_, cause := io.Copy(io.Discard, out)
		cancel()
		out.Close()
		return nil, errors.Join(cause, err)
	}
	// The tool has decoded the body's framing: all bytes after the head are the body.
	return &Response{Status: res.StatusCode, Header: res.Header,
		Body: &response{reader, out, cancel}}, nil
}

// response is a body that is still being received. Closing it ends the run.
type response struct {
	io.Reader
	out    *io.PipeReader
	cancel context.CancelFunc
}

func (r *response) Close() error {
	r.cancel()
	return r.out.Close()
}

// policyFor returns a policy that grants only r and its credential.
func policyFor(r Request) string {
	to := r.URL
	port := cmp.Or(to.Port(), map[string]string{"https": "443", "http": "80"}[to.Scheme])
	var b strings.Builder
	fmt.Fprintf(&b, `policy = 1
name = "one-request"
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
bytes_out = "64MiB"
[[fetch.allow]]
host = %q
ports = [%s]
methods = [%q]
paths = [%q]
`, to.Hostname(), port, r.Method, to.EscapedPath())
	if r.Credential != "" {
		fmt.Fprintf(&b, "credential = %q\n", r.Credential)
	}
	return b.String()
}
