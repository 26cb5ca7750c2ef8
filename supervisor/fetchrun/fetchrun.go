// Package fetchrun sends an HTTP request by a run of the tool fetch in a jail of its own. The run's
// policy permits only this request and its credential, which the fetch proxy adds, so that the
// caller never has it.
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

// maxSaid bounds how many bytes of a failed request's error output are quoted.
const maxSaid = 2 << 10

// A Sender sends requests through jaild, which decides on each as on any run of its caller.
type Sender struct {
	// Client returns a client of a running daemon. The caller closes it.
	Client func(ctx context.Context) (*client.Client, error)
}

// A Request is an HTTP request, with a body of JSON or none.
type Request struct {
	// For is the purpose of the request, as the audit log shows it.
	For    string
	Method string
	URL    *url.URL
	// Credential is the name of the credential that the proxy adds; "" for none.
	Credential string
	// Header has further header fields.
	Header map[string]string
	Body   []byte
}

// A Response is the response of the remote host.
type Response struct {
	Status int
	Header http.Header
	// Body streams the body as it arrives. The caller closes it.
	Body io.ReadCloser
}

// Send sends a request and returns the response once its header has arrived. Body is still streamed
// until ctx ends.
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
		// The jail's error says more than the parse error.
		_, cause := io.Copy(io.Discard, out)
		cancel()
		out.Close()
		return nil, errors.Join(cause, err)
	}
	// The tool has removed the transfer encoding: all bytes after the header are the body.
	return &Response{Status: res.StatusCode, Header: res.Header,
		Body: &response{reader, out, cancel}}, nil
}

// response is a streamed body; Close ends the run.
type response struct {
	io.Reader
	out    *io.PipeReader
	cancel context.CancelFunc
}

func (r *response) Close() error {
	r.cancel()
	return r.out.Close()
}

// policyFor returns the text of a policy that permits only this request and its credential.
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
