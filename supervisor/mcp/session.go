package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// Bounds of what a call returns and takes, in bytes.
const (
	// maxShown is what a client gets of one stream: more would fill a model's context.
	maxShown = 256 << 10
	// maxEdited is the largest file that edit changes, and the most that write writes.
	maxEdited = 8 << 20
)

// A session is the session of jail in which all tools run.
type session struct {
	client  *api.Client
	request message.SessionRequest
	// places has an element for each call that works.
	places chan struct{}

	mu sync.Mutex
	// global is the id that no other session has.
	global string
}

// name is what people call the session.
func (s *session) name() string { return s.request.ID }

// id names the session and no other one, which another user may have under the same name.
func (s *session) id() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.global
}

// open opens the session, wakes it, or finds it open. One of the same name that was asked for in
// other words is refused.
func (s *session) open(ctx context.Context) error {
	info, err := s.client.StartSession(ctx, s.request)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.global = info.GlobalID
	return nil
}

// stands reports whether the session is open or sleeps. Where nobody says, it does.
func (s *session) stands(ctx context.Context) bool {
	all, err := s.client.Sessions(ctx)
	id := s.id()
	return err != nil || slices.ContainsFunc(all,
		func(i message.SessionInfo) bool { return i.GlobalID == id })
}

// kept says what to do where the session cannot be opened because it ended with changes that nobody
// has reviewed.
func (s *session) kept(ctx context.Context, err error) error {
	all, listErr := s.client.Workspaces(ctx)
	if listErr != nil || !slices.ContainsFunc(all,
		func(w shadows.WorkspaceInfo) bool { return w.ID == s.name() }) {
		return err
	}
	p := problem.From(err)
	return problem.New(p.Code, "session %s has ended, and its changes wait for a review: %w", s.name(),
		err).WithHint(fmt.Sprintf("jail diff %[1]s, and then jail commit %[1]s or jail discard %[1]s",
		s.name()))
}

// is reports whether an id is one of the session.
func (s *session) is(id string) bool { return id != "" && (id == s.name() || id == s.id()) }

// A call is one invocation.
type call struct {
	tool string
	args []string
	// in is its standard input; nil is nothing.
	in []byte
	// limits narrow those of the policy, each KEY=VALUE.
	limits []string
	cwd    string
	// most bounds what is kept of each stream, maxShown if 0.
	most int
}

// An outcome is what an invocation gave.
type outcome struct {
	message.Result
	out, errOut kept
}

// maxAtOnce bounds the calls that work at one time; more wait.
const maxAtOnce = 16

// run runs an invocation. The error is of jail itself; how the tool ended is in the outcome.
func (s *session) run(ctx context.Context, c call) (o outcome, err error) {
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-ctx.Done():
		return o, ctx.Err()
	}
	for again := range 2 {
		if o, err = s.once(ctx, c); err == nil {
			return o, nil
		}
		// The session may have ended: its time is up, or somebody stopped it.
		if problem.From(err).Code != problem.NotFound || again > 0 || s.stands(ctx) {
			break
		}
		if err = s.open(ctx); err != nil {
			err = s.kept(ctx, err)
			break
		}
	}
	return o, plain(err)
}

func (s *session) once(ctx context.Context, c call) (outcome, error) {
	most := c.most
	if most == 0 {
		most = maxShown
	}
	o := outcome{out: kept{most: most}, errOut: kept{most: most}}
	req := message.ExecRequest{Tool: c.tool, Dir: s.request.Dir, Cwd: c.cwd, Limits: c.limits,
		Inherit: s.request.Inherit}
	for _, a := range c.args {
		req.Args = append(req.Args, a)
	}
	var err error
	o.Result, err = s.client.Exec(ctx, s.id(), req, bytes.NewReader(c.in), &o.out, &o.errOut, nil)
	if err == nil && o.Error != nil {
		err = o.Error
	}
	return o, err
}

// plain is an error in the words that a client gets: what is wrong, and what to do.
func plain(err error) error {
	if err == nil {
		return nil
	}
	p := problem.From(err)
	if p.Hint == "" {
		return errors.New(p.Message)
	}
	return errors.New(p.Message + "; " + p.Hint)
}

// within returns a path as tools in the jail name it: what lies in the workspace by its place there,
// what lies elsewhere as it is.
func (s *session) within(path string) string {
	root := s.request.Workspace
	if root == "" {
		root = s.request.Dir
	}
	if filepath.IsAbs(path) {
		if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
			path = rel
		}
	}
	if path == "" {
		return "."
	}
	if strings.ContainsRune("-(),!", rune(path[0])) {
		return "./" + path
	}
	return path
}

// kept is the beginning of a stream.
type kept struct {
	bytes.Buffer
	most int
	cut  bool
}

// Write keeps what there is room for. It never fails: the tool writes on.
func (k *kept) Write(p []byte) (int, error) {
	n := min(len(p), k.most-k.Len())
	k.cut = k.cut || n < len(p)
	k.Buffer.Write(p[:n])
	return len(p), nil
}

// ReadFrom hides that of the buffer, which knows no bound.
func (k *kept) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{k}, r)
}

// String is the text, without half a character at a cut.
func (k *kept) String() string { return strings.ToValidUTF8(k.Buffer.String(), "\uFFFD") }

// isText reports whether the stream can be shown as text.
func (k *kept) isText() bool {
	return !bytes.ContainsRune(k.Bytes(), 0) && (utf8.Valid(k.Bytes()) || k.cut)
}
