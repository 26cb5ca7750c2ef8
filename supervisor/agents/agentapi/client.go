package agentapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/lasting"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// maxAnswer bounds a response body, in bytes. The largest is an exported memory.
const maxAnswer = 64 << 20

// maxIdle is how many idle connections are kept.
const maxIdle = 100

// A Client sends requests to jail-agentd. Its methods return errors of the type *problem.Error.
type Client struct {
	http   *http.Client
	socket string
}

// Options say how to reach and start jail-agentd.
type Options struct {
	Places
	// Program is the path of jail-agentd, to start it if none answers. State is $JAIL_STATE.
	Program, State string
}

// Connect returns a client of the jail-agentd on the socket. If none answers, it starts one and
// returns started as true. That one ends by itself when it has nothing left to do.
func Connect(ctx context.Context, o Options) (c *Client, started bool, err error) {
	dial := func(ctx context.Context) error {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", o.Socket)
		if err == nil {
			conn.Close()
		}
		return err
	}
	err = dial(ctx)
	nobody := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
	switch {
	case err == nil:
	case nobody && o.Program != "":
		args := []string{"--until-idle", lasting.Linger.String(), "--socket", o.Socket}
		if o.State != "" {
			args = append(args, "--state", o.State)
		}
		if err := lasting.Start(ctx, o.Socket, o.Program, args, dial); err != nil {
			return nil, false, err
		}
		started = true
	case errors.Is(err, fs.ErrPermission):
		return nil, false, &problem.Error{Code: problem.Refused, Err: err,
			Message: fmt.Sprintf("socket %s: permission denied", o.Socket),
			Hint:    "each user has agents of their own: run the command as the user whose they are"}
	default:
		return nil, false, &problem.Error{Code: problem.Failed, Err: err,
			Message: fmt.Sprintf("socket %s: %v", o.Socket, problem.Cause(err)),
			Hint:    "look whether the directory is there, and whether jail-agentd runs"}
	}
	return NewClient(o.Socket), started, nil
}

// NewClient returns a client for a socket, without connecting.
func NewClient(socket string) *Client {
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		// With the default, callers with many goroutines would reconnect for most requests.
		MaxIdleConnsPerHost: maxIdle,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}}}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// ask sends a request and returns the body of a successful response.
func (c *Client) ask(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	var text io.Reader
	if raw, ok := body.([]byte); ok {
		text = bytes.NewReader(raw)
	} else if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, problem.New(problem.Failed, "request %s %s: %w", method, path, err)
		}
		text = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://jail-agentd"+path, text)
	if err != nil {
		return nil, problem.New(problem.Failed, "request %s %s: %w", method, path, err)
	}
	if text != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unanswered(ctx, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	var p Problem
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && json.Unmarshal(said, &p) == nil && p.Error != nil {
		return nil, p.Error
	}
	return nil, &problem.Error{Code: problem.Failed,
		Message: fmt.Sprintf("jail-agentd answered %s %s with %s: %.200q", method, path, resp.Status,
			said),
		Hint: "install jail and jail-agentd of one version"}
}

func (c *Client) unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if at, ok := errors.AsType[*url.Error](err); ok {
		err = at.Err
	}
	return problem.New(problem.Failed, "jail-agentd on %s did not answer: %w", c.socket, err).
		WithHint("jail agent list starts it anew; what it had taken is not lost")
}

// call sends a request and decodes the response into to, unless that is nil.
func (c *Client) call(ctx context.Context, method, path string, body, to any) error {
	answer, err := c.ask(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	text, err := io.ReadAll(io.LimitReader(answer, maxAnswer+1))
	switch {
	case err != nil:
		return c.unanswered(ctx, err)
	case len(text) > maxAnswer:
		return problem.New(problem.Failed, "the answer to %s %s is larger than %d MiB", method, path,
			maxAnswer>>20)
	case to == nil:
		return nil
	}
	if err := json.Unmarshal(text, to); err != nil {
		return problem.New(problem.Failed, "the answer to %s %s: %w", method, path, err)
	}
	return nil
}

// lines calls f with each line of a response, of at most most bytes. Empty lines are keep-alives.
func (c *Client) lines(ctx context.Context, path string, most int, f func(line []byte) error) error {
	body, err := c.ask(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, most)
	lines.Split(wholeLines)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if err := f(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return c.unanswered(ctx, err)
	}
	return nil
}

// wholeLines is a bufio.SplitFunc like bufio.ScanLines, except that a last line without a newline
// is an error: the response was cut.
func wholeLines(text []byte, atEOF bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return i + 1, text[:i], nil
	}
	if atEOF && len(text) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return 0, nil, err
}

// of returns the URL path of a request about one agent.
func of(name, below string) string { return Path + "/" + url.PathEscape(name) + below }

// Add registers the agent in dir, an absolute path.
func (c *Client) Add(ctx context.Context, dir string) (a Agent, err error) {
	return c.AddBranch(ctx, Add{Dir: dir})
}

// AddBranch registers an agent, which can start with a copy of another agent's state.
func (c *Client) AddBranch(ctx context.Context, add Add) (a Agent, err error) {
	return a, c.call(ctx, http.MethodPost, Path, add, &a)
}

// Spawn puts an agent on a channel. See agentapi.Spawn.
func (c *Client) Spawn(ctx context.Context, name string, s Spawn) (a Agent, err error) {
	return a, c.call(ctx, http.MethodPost, of(name, "/spawn"), s, &a)
}

// List returns the agents.
func (c *Client) List(ctx context.Context) (all []Agent, err error) {
	return all, c.call(ctx, http.MethodGet, Path, nil, &all)
}

// Agent returns one agent with its manifest.
func (c *Client) Agent(ctx context.Context, name string) (a Agent, err error) {
	return a, c.call(ctx, http.MethodGet, of(name, ""), nil, &a)
}

// Status returns one agent without its manifest. Its instances have alarms and resource usage.
func (c *Client) Status(ctx context.Context, name string) (a Agent, err error) {
	return a, c.call(ctx, http.MethodGet, of(name, "/do/status"), nil, &a)
}

// Delete deletes an agent with its state.
func (c *Client) Delete(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, of(name, ""), nil, nil)
}

// Send puts an event into an agent's inbox.
func (c *Client) Send(ctx context.Context, name string, s Send) (sent Sent, err error) {
	return sent, c.call(ctx, http.MethodPost, of(name, "/send"), s, &sent)
}

// Tick wakes an agent as its heartbeat does. channel may be empty if the agent has only one.
func (c *Client) Tick(ctx context.Context, name, channel string) (sent Sent, err error) {
	return sent, c.call(ctx, http.MethodPost, of(name, "/do/tick")+onChannel(channel), nil, &sent)
}

func onChannel(channel string) string {
	if channel == "" {
		return ""
	}
	return "?channel=" + url.QueryEscape(channel)
}

// Log calls f for each publication with a number above after, oldest first. With follow it waits
// for further ones until ctx is done.
func (c *Client) Log(ctx context.Context, name string, after int64, follow bool,
	f func(Publication) error) error {
	query := url.Values{"after": {strconv.FormatInt(after, 10)}}
	if follow {
		query.Set("follow", "1")
	}
	err := c.lines(ctx, of(name, "/log?"+query.Encode()), 4*agent.MaxEvent, func(line []byte) error {
		var p Publication
		if err := json.Unmarshal(line, &p); err != nil {
			return problem.New(problem.Failed, "the log of agent %q: %w", name, err)
		}
		return f(p)
	})
	if err == nil && follow && ctx.Err() == nil {
		err = problem.New(problem.Failed, "jail-agentd ended the log of agent %q", name).
			WithHint("it ends when it is stopped: ask again")
	}
	return err
}

// Pause stops an agent from being woken, until Resume.
func (c *Client) Pause(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodPost, of(name, "/pause"), nil, nil)
}

// Resume allows a paused or failed agent to be woken again, and resets its failures.
func (c *Client) Resume(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodPost, of(name, "/resume"), nil, nil)
}

// Events returns the events in the inbox of an agent, and its dead letters.
func (c *Client) Events(ctx context.Context, name string) (e Events, err error) {
	return e, c.call(ctx, http.MethodGet, of(name, "/events"), nil, &e)
}

// Retry delivers a dead letter again. channel may be empty if the agent has only one.
func (c *Client) Retry(ctx context.Context, name, channel string, seq uint64) (r Retry, err error) {
	path := of(name, "/events/"+strconv.FormatUint(seq, 10)+"/retry") + onChannel(channel)
	return r, c.call(ctx, http.MethodPost, path, nil, &r)
}

// Tables wakes an agent and returns the number of rows of each table of its database. channel may
// be empty if the agent has only one.
func (c *Client) Tables(ctx context.Context, name, channel string) (rows map[string]int64,
	err error) {
	return rows, c.call(ctx, http.MethodGet, of(name, "/do/tables")+onChannel(channel), nil, &rows)
}

// Export returns the memory of an agent. channel may be empty if the agent has only one.
func (c *Client) Export(ctx context.Context, name, channel string) (m json.RawMessage, err error) {
	return m, c.call(ctx, http.MethodGet, of(name, "/do/memory/export")+onChannel(channel), nil, &m)
}

// Import merges a memory, as Export returns it, into the memory of an agent.
func (c *Client) Import(ctx context.Context, name, channel string, memory []byte) error {
	return c.call(ctx, http.MethodPost, of(name, "/do/memory/import")+onChannel(channel), memory,
		nil)
}
