// Package fetchrun sends one HTTP request by a run of the tool fetch, in a jail of its own. The
// policy of that run grants this one request and its credential, which the fetch proxy attaches: the
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

// maxSaid is how much of what a failed request says is quoted.
const maxSaid = 2 << 10

// A Sender sends requests. jaild decides on each as on any run of its caller's.
type Sender struct {
	// Client returns a client of a daemon that answers. The caller closes it.
	Client func(ctx context.Context) (*client.Client, error)
}

// A Request is one request. Its body is JSON.
type Request struct {
	// For says in the record what the request is for.
	For    string
	Method string
	URL    *url.URL
	// Credential is the name of the one that the proxy attaches; empty for none.
	Credential string
	// Header has further fields.
	Header map[string]string
	Body   []byte
}

// A Response is that of the host.
type Response struct {
	Status int
	Header http.Header
	// Body comes as the host sends it. The caller closes it.
	Body io.ReadCloser
}

// Send sends a request and returns the response once its head is there.
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
		// What the jail said is more than what is missing in its output.
		_, cause := io.Copy(io.Discard, out)
		cancel()
		out.Close()
		return nil, errors.Join(cause, err)
	}
	// The tool has taken the framing of the body away: all that follows the head is the body.
	return &Response{Status: res.StatusCode, Header: res.Header,
		Body: &response{reader, out, cancel}}, nil
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
