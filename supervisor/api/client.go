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

// A Client asks a daemon.
type Client struct{ link link }

// A link is how a client's requests come to its daemon.
type link struct {
	dial    func(ctx context.Context) (net.Conn, error)
	http    *http.Client
	private *private
	// That Dial made, until it is used.
	first *atomic.Pointer[net.Conn]
}

// Dial returns a client of the daemon that listens on the socket. It tries the socket once, so that
// a caller can start a private daemon where there is none.
func Dial(ctx context.Context, socket string) (*Client, error) {
	var d net.Dialer
	dial := func(ctx context.Context) (net.Conn, error) {
		return d.DialContext(ctx, "unix", socket)
	}
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	// Is good for one request.
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

// private is a daemon that this client started for itself.
type private struct {
	cmd    *exec.Cmd
	conn   *control.Conn
	mu     sync.Mutex
	errors bytes.Buffer
}

// StartPrivate starts a daemon for this client alone. It does not share the client's terminal
// signals: the client decides what becomes of a run.
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

// Rest closes the connections that nothing is asked on; the next request makes one.
func (c *Client) Rest() {
	if c.link.first != nil {
		if conn := c.link.first.Swap(nil); conn != nil {
			(*conn).Close()
		}
	}
	c.link.http.CloseIdleConnections()
}

// Close lets go of the daemon; a private one ends, and Close waits for that.
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

// said is why a private daemon that has ended did so, in the words that it left.
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

// explain says why a daemon did not answer; a private one, in the words that it left.
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

// do asks and reads the answer into out.
func (l *link) do(ctx context.Context, method, path string, in, out any) error {
	return again(ctx, func() error { return l.once(ctx, method, path, in, out) })
}

// patience is how long a client waits for the daemon after one that is being ended.
const patience = 15 * time.Second

// again does f, and once more after a moment where a daemon said that it is being ended: nothing
// was begun then, and with a service manager that has the socket the next daemon answers on it.
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

// open asks and returns the body of the answer, if that is no error of the daemon's.
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

// success returns the body of an answer, if that is no error of the daemon's.
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

// Version asks what answers.
func (c *Client) Version(ctx context.Context) (v Version, err error) {
	return v, c.link.do(ctx, "GET", PathVersion, nil, &v)
}

// Policy asks which policy files are in force.
func (c *Client) Policy(ctx context.Context) (p hostpolicy.Status, err error) {
	return p, c.link.do(ctx, "GET", pathPolicy, nil, &p)
}

// Host asks what the host, and the daemon on it, can enforce.
func (c *Client) Host(ctx context.Context) (h message.HostStatus, err error) {
	return h, c.link.do(ctx, "GET", pathHost, nil, &h)
}

// Plan asks for the plan of a request; nothing starts.
func (c *Client) Plan(ctx context.Context, req message.Request) (p jail.Plan, err error) {
	return p, c.link.do(ctx, "POST", pathPlan, req, &p)
}

// Runs lists the live runs.
func (c *Client) Runs(ctx context.Context) (runs []message.RunInfo, err error) {
	return runs, c.link.do(ctx, "GET", PathRuns, nil, &runs)
}

// Inspect asks what is known of a run.
func (c *Client) Inspect(ctx context.Context, id string) (r Records, err error) {
	return r, c.link.do(ctx, "GET", item(PathRuns, id), nil, &r)
}

// Verify asks whether the jail of a live run is what its plan says.
func (c *Client) Verify(ctx context.Context, id string) (v rundir.Verification, err error) {
	return v, c.link.do(ctx, "GET", item(PathRuns, id)+"/verify", nil, &v)
}

// Kill ends a run.
func (c *Client) Kill(ctx context.Context, id string, signal int) error {
	return c.link.do(ctx, "POST", item(PathRuns, id)+"/kill", KillRequest{signal}, &struct{}{})
}

// Workspaces lists the shadows that are kept.
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

// Prune forgets shadows of which nothing is left but what was kept for a revert, for too long.
func (c *Client) Prune(ctx context.Context) (p shadows.Pruned, err error) {
	return p, c.link.do(ctx, "POST", pathPrune, nil, &p)
}

// Caches lists the caches that runs keep.
func (c *Client) Caches(ctx context.Context) (all []workspace.CacheInfo, err error) {
	return all, c.link.do(ctx, "GET", pathCaches, nil, &all)
}

// RemoveCache removes a cache that no jail uses.
func (c *Client) RemoveCache(ctx context.Context, id string) error {
	return c.link.do(ctx, "DELETE", item(pathCaches, id), nil, &struct{}{})
}

// Discard throws a shadow away, which no session or run uses.
func (c *Client) Discard(ctx context.Context, id string) error {
	return c.link.do(ctx, "DELETE", item(pathWorkspaces, id), nil, &struct{}{})
}

// ForceDiscard ends the session or run that uses a shadow, or gives up a commit of it that was cut
// off and that can be neither finished nor undone, and throws the shadow away.
func (c *Client) ForceDiscard(ctx context.Context, id string) error {
	return c.link.do(ctx, "DELETE", item(pathWorkspaces, id)+"?force=1", nil, &struct{}{})
}

// DiscardPaths throws a part of the changes in a shadow away.
func (c *Client) DiscardPaths(ctx context.Context, id string,
	req shadows.DiscardRequest) (d shadows.Discarded, err error) {
	return d, c.link.do(ctx, "POST", item(pathWorkspaces, id)+"/discard", req, &d)
}

// Changes streams a review: its first line has Info, its last Summary, those between a Change each
// or a part of the differences as text, which patch asks for: PatchPlain, PatchTerminal, or "" for
// none; with PatchHunks the hunks of each change after it. Paths limit it to changes at and below
// them; none means all.
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

// readLines asks for a stream of lines of JSON, and returns what read makes of each.
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

// A cutError is the end of a connection in the middle of a run's streams.
type cutError struct{ err error }

func (e *cutError) Error() string {
	if broken(e.err) {
		return wire.Cut
	}
	return fmt.Sprintf(wire.Cut+": %v", e.err)
}

func (e *cutError) Unwrap() error { return e.err }

// broken reports whether an error says nothing but that the other end is gone.
func broken(err error) bool {
	gone := []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE}
	return slices.ContainsFunc(gone, func(e error) bool { return errors.Is(err, e) }) ||
		// Has no name in net/http.
		strings.Contains(err.Error(), "server closed idle connection")
}

// plain strips what net/http says of the request, which is not the user's.
func plain(err error) error {
	if at, ok := errors.AsType[*url.Error](err); ok {
		return at.Err
	}
	return err
}

// unanswered says in one sentence that a daemon for all gave no answer, or not all of one.
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
