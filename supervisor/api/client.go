package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/hostpolicy"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/shadows"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// A Client sends requests to a daemon.
type Client struct{ link link }

// A link connects a client to its daemon.
type link struct {
	dial    func(ctx context.Context) (net.Conn, error)
	http    *http.Client
	private *private
	// The connection that Dial made, until it is used.
	first *atomic.Pointer[net.Conn]
}

// Dial returns a client of the daemon that listens on the socket. It connects once, so that the
// caller learns whether there is a daemon.
func Dial(ctx context.Context, socket string) (*Client, error) {
	var d net.Dialer
	dial := func(ctx context.Context) (net.Conn, error) {
		return d.DialContext(ctx, "unix", socket)
	}
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	// The first request uses the connection that is open already.
	var first atomic.Pointer[net.Conn]
	first.Store(&conn)
	c := newClient(func(ctx context.Context) (net.Conn, error) {
		if conn := first.Swap(nil); conn != nil {
			return *conn, nil
		}
		return dial(ctx)
	}, nil)
	c.link.first = &first
	return c, nil
}

func newClient(dial func(context.Context) (net.Conn, error), p *private) *Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return dial(ctx)
	}}
	return &Client{link{dial: dial, http: &http.Client{Transport: transport}, private: p}}
}

// private is a daemon that serves only this client.
type private struct {
	cmd    *exec.Cmd
	conn   *control.Conn
	mu     sync.Mutex
	errors bytes.Buffer
}

// StartPrivate starts the program jaild as a daemon for this client alone. The daemon has its own
// session, so signals of the client's terminal do not reach it.
func StartPrivate(jaild string, args ...string) (*Client, error) {
	conn, theirs, err := control.Pair("private")
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	p := &private{conn: conn, cmd: exec.Command(jaild, append([]string{"--private"}, args...)...)}
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Stderr = &p.errors
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.cmd.Start(); err != nil {
		conn.Close()
		return nil, err
	}
	dial := func(context.Context) (net.Conn, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return dialPrivate(conn)
	}
	return newClient(dial, p), nil
}

// Rest closes the idle connections. The next request makes a new one.
func (c *Client) Rest() {
	if c.link.first != nil {
		if conn := c.link.first.Swap(nil); conn != nil {
			(*conn).Close()
		}
	}
	c.link.http.CloseIdleConnections()
}

// Close closes the connections. It ends a private daemon and waits for its end.
func (c *Client) Close() error {
	c.Rest()
	p := c.link.private
	if p == nil {
		return nil
	}
	p.conn.Close()
	if err := p.cmd.Wait(); err != nil {
		return p.said(err)
	}
	return nil
}

// said returns the error that a private daemon printed when it ended, or one made from err.
func (p *private) said(err error) error {
	line, _, _ := bytes.Cut(bytes.TrimSpace(p.errors.Bytes()), []byte("\n"))
	var said Problem
	if json.Unmarshal(line, &said) == nil && said.Error != nil {
		return said.Error
	}
	if len(line) > 0 {
		return fmt.Errorf("jaild: %s", line)
	}
	if broken(err) {
		return errors.New("jaild did not answer: it has ended")
	}
	return fmt.Errorf("jaild did not answer: %w", plain(err))
}

// explain returns an error for users why the daemon did not answer. For a private daemon it is the
// daemon's own.
func (l *link) explain(err error) error {
	var known *problem.Error
	var output *outputError
	if errors.As(err, &known) || errors.As(err, &output) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errNoResult) {
		return err
	}
	if l.private == nil {
		return unanswered(err)
	}
	l.private.conn.Close()
	if ended := l.private.cmd.Wait(); ended != nil && broken(err) {
		err = ended
	}
	return l.private.said(err)
}

// do sends a request with the JSON of in and decodes the answer into out. It retries while a daemon
// is ending.
func (l *link) do(ctx context.Context, method, path string, in, out any) error {
	return again(ctx, func() error { return l.once(ctx, method, path, in, out) })
}

// patience is how long a client waits for the next daemon after one that is ending.
const patience = 15 * time.Second

// again calls f, and repeats it within patience while the error is that the daemon is ending.
// Nothing was begun then, and with a service manager that owns the socket the next daemon answers
// on it.
func again(ctx context.Context, f func() error) error {
	var deadline time.Time
	for {
		err := f()
		var e *problem.Error
		if !errors.As(err, &e) || e.Code != problem.Ending || !deadline.IsZero() &&
			time.Now().After(deadline) {
			return err
		}
		if deadline.IsZero() {
			deadline = time.Now().Add(patience)
		}
		if !tick.Wait(ctx.Done(), 20*time.Millisecond) {
			return err
		}
	}
}

func (l *link) once(ctx context.Context, method, path string, in, out any) error {
	answer, err := l.open(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer answer.Close()
	if err := json.NewDecoder(answer).Decode(out); err != nil {
		if broken(err) {
			return l.explain(err)
		}
		return fmt.Errorf("answer of the daemon to %s %s: %w", method, path, err)
	}
	return nil
}

// open sends a request and returns the body of a successful answer, or the daemon's error.
func (l *link) open(ctx context.Context, method, path string, in any) (io.ReadCloser, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://jail"+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := l.http.Do(req)
	if err != nil {
		return nil, l.explain(err)
	}
	return success(resp)
}

// success returns the body of a successful answer, or the daemon's error.
func success(resp *http.Response) (io.ReadCloser, error) {
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, readProblem(resp)
	}
	return resp.Body, nil
}

func readProblem(resp *http.Response) error {
	var p Problem
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && json.Unmarshal(text, &p) == nil && p.Error != nil {
		return p.Error
	}
	return fmt.Errorf("the daemon answered %s: %.200q", resp.Status, text)
}

func item(base, id string) string { return base + "/" + url.PathEscape(id) }

// Version returns the daemon's version, PID and directories.
func (c *Client) Version(ctx context.Context) (v Version, err error) {
	return v, c.link.do(ctx, "GET", PathVersion, nil, &v)
}

// Policy returns the policy files in force.
func (c *Client) Policy(ctx context.Context) (p hostpolicy.Status, err error) {
	return p, c.link.do(ctx, "GET", pathPolicy, nil, &p)
}

// Host returns what the host and the daemon on it can enforce.
func (c *Client) Host(ctx context.Context) (h message.HostStatus, err error) {
	return h, c.link.do(ctx, "GET", pathHost, nil, &h)
}

// Plan returns the plan for a request, and starts nothing.
func (c *Client) Plan(ctx context.Context, req message.Request) (p jail.Plan, err error) {
	return p, c.link.do(ctx, "POST", pathPlan, req, &p)
}

// Runs returns the live runs.
func (c *Client) Runs(ctx context.Context) (runs []message.RunInfo, err error) {
	return runs, c.link.do(ctx, "GET", PathRuns, nil, &runs)
}

// Inspect returns a live run or the records of an ended one.
func (c *Client) Inspect(ctx context.Context, id string) (r Records, err error) {
	return r, c.link.do(ctx, "GET", item(PathRuns, id), nil, &r)
}

// Verify checks whether the jail of a live run matches its plan.
func (c *Client) Verify(ctx context.Context, id string) (v rundir.Verification, err error) {
	return v, c.link.do(ctx, "GET", item(PathRuns, id)+"/verify", nil, &v)
}

// Kill ends a run. signal is the one that its result names, 0 for SIGKILL.
func (c *Client) Kill(ctx context.Context, id string, signal int) error {
	return c.link.do(ctx, "POST", item(PathRuns, id)+"/kill", KillRequest{signal}, &struct{}{})
}

// Workspaces returns the shadows that are kept.
func (c *Client) Workspaces(ctx context.Context) (all []shadows.WorkspaceInfo, err error) {
	return all, c.link.do(ctx, "GET", pathWorkspaces, nil, &all)
}

// Commit writes changes of a shadow to the real directory.
func (c *Client) Commit(ctx context.Context, id string,
	req shadows.CommitRequest) (r workspace.Result, err error) {
	return r, c.link.do(ctx, "POST", item(pathWorkspaces, id)+"/commit", req, &r)
}

// Revert undoes the last commit of a shadow.
func (c *Client) Revert(ctx context.Context, id string,
	req shadows.RevertRequest) (r workspace.Reverted, err error) {
	return r, c.link.do(ctx, "POST", item(pathWorkspaces, id)+"/revert", req, &r)
}

// Prune removes shadows that were kept only for a revert, for too long.
func (c *Client) Prune(ctx context.Context) (p shadows.Pruned, err error) {
	return p, c.link.do(ctx, "POST", pathPrune, nil, &p)
}

// Caches returns the caches of runs.
func (c *Client) Caches(ctx context.Context) (all []workspace.CacheInfo, err error) {
	return all, c.link.do(ctx, "GET", pathCaches, nil, &all)
}

// RemoveCache removes a cache that no jail uses.
func (c *Client) RemoveCache(ctx context.Context, id string) error {
	return c.link.do(ctx, "DELETE", item(pathCaches, id), nil, &struct{}{})
}

// Discard deletes a shadow that no session or run uses.
func (c *Client) Discard(ctx context.Context, id string) error {
	return c.link.do(ctx, "DELETE", item(pathWorkspaces, id), nil, &struct{}{})
}

// ForceDiscard deletes a shadow, after ending the session or run that uses it. It also gives up an
// interrupted commit that can be neither finished nor undone.
func (c *Client) ForceDiscard(ctx context.Context, id string) error {
	return c.link.do(ctx, "DELETE", item(pathWorkspaces, id)+"?force=1", nil, &struct{}{})
}

// DiscardPaths discards a part of the changes in a shadow.
func (c *Client) DiscardPaths(ctx context.Context, id string,
	req shadows.DiscardRequest) (d shadows.Discarded, err error) {
	return d, c.link.do(ctx, "POST", item(pathWorkspaces, id)+"/discard", req, &d)
}

// Changes streams a review. The first line has Info, the last one Summary, the others a Change each
// or a part of the differences as text. patch selects the text: PatchPlain, PatchTerminal, or ""
// for none; PatchHunks adds the hunks after each change. paths limit the review to changes at and
// below them.
func (c *Client) Changes(ctx context.Context, id, patch string,
	paths ...string) iter.Seq2[ReviewLine, error] {
	ask := url.Values{"path": paths}
	switch patch {
	case "":
	case PatchHunks:
		ask.Set("hunks", "1")
	case PatchReview:
		ask.Set("hunks", "1")
		ask.Set("patch", PatchTerminal)
	default:
		ask.Set("patch", patch)
	}
	return readLines(ctx, &c.link, "GET", item(pathWorkspaces, id)+"/changes?"+ask.Encode(), nil,
		func(line ReviewLine) (ReviewLine, error) {
			if line.Error != nil {
				return line, line.Error
			}
			return line, nil
		})
}

// readLines sends a request and streams the lines of JSON in the answer, each converted by read.
func readLines[L, T any](ctx context.Context, l *link, method, path string, in any,
	read func(L) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		answer, err := l.open(ctx, method, path, in)
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		defer answer.Close()
		for d := json.NewDecoder(answer); ; {
			var line L
			var value T
			err := d.Decode(&line)
			switch {
			case errors.Is(err, io.EOF):
				return
			case err == nil:
				value, err = read(line)
			case broken(err):
				err = l.explain(err)
			}
			if !yield(value, err) || err != nil {
				return
			}
		}
	}
}

// A cutError means that a connection ended in the middle of a run's streams.
type cutError struct{ err error }

func (e *cutError) Error() string {
	if broken(e.err) {
		return wire.Cut
	}
	return fmt.Sprintf(wire.Cut+": %v", e.err)
}

func (e *cutError) Unwrap() error { return e.err }

// broken reports whether an error only means that the other end closed the connection.
func broken(err error) bool {
	gone := []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE}
	return slices.ContainsFunc(gone, func(e error) bool { return errors.Is(err, e) }) ||
		// net/http exports no name for this error.
		strings.Contains(err.Error(), "server closed idle connection")
}

// plain returns err without the HTTP method and URL that net/http adds.
func plain(err error) error {
	if at, ok := errors.AsType[*url.Error](err); ok {
		return at.Err
	}
	return err
}

// unanswered returns the error for a shared daemon that gave no complete answer.
func unanswered(err error) error {
	e := &problem.Error{Code: problem.Failed, Err: err}
	var cut *cutError
	switch {
	case errors.As(err, &cut):
		e.Message, e.Hint = cut.Error(), wire.CutHint
	case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist):
		e.Message, e.Hint = wire.Gone, wire.GoneHint
	case broken(err):
		e.Message, e.Hint = wire.NoAnswer, wire.NoAnswerHint
	case strings.Contains(err.Error(), "readLoopPeekFail"):
		// net/http exports no name for this error.
		e.Message, e.Hint = "no answer of the daemon, but something before it was asked",
			"look whether what listens on the socket is jaild"
	default:
		e.Message, e.Hint = fmt.Sprintf(wire.NoSense+": %v", plain(err)), wire.NoSenseHint
	}
	return e
}
