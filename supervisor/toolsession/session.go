// Package toolsession is the session in which the tools of a coding agent work: that of one directory
// and one policy, which is opened when it is needed, and again after it has ended.
package toolsession

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// Bounds of what a call returns and takes, in bytes.
const (
	// MaxShown is what is kept of one stream unless a call asks for more.
	MaxShown = 256 << 10
	// MaxWritten is the most that Write writes.
	MaxWritten = 8 << 20
)

// maxAtOnce bounds the calls of Run that work at one time; more wait.
const maxAtOnce = 16

// A Session is one session of jail. Its methods may be called from several goroutines.
type Session struct {
	client  *api.Client
	request message.SessionRequest
	// places has an element for each call that works.
	places chan struct{}

	mu sync.Mutex
	// global is the id that no other session has.
	global string
}

// Open opens the session of a request, wakes it, or finds it open. The id of the request names it;
// a session of the same name that was asked for in other words is refused.
func Open(ctx context.Context, c *api.Client, r message.SessionRequest) (*Session, error) {
	s := &Session{client: c, request: r, places: make(chan struct{}, maxAtOnce)}
	if err := s.open(ctx); err != nil {
		return nil, s.kept(ctx, err)
	}
	return s, nil
}

// Client asks the daemon that has the session.
func (s *Session) Client() *api.Client { return s.client }

// Name is what people call the session.
func (s *Session) Name() string { return s.request.ID }

// Root is the real directory of the session.
func (s *Session) Root() string { return cmp.Or(s.request.Workspace, s.request.Dir) }

// ID names the session and no other one, which another user may have under the same name.
func (s *Session) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.global
}

// Is reports whether an id is one of the session.
func (s *Session) Is(id string) bool { return id != "" && (id == s.Name() || id == s.ID()) }

func (s *Session) open(ctx context.Context) error {
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
func (s *Session) stands(ctx context.Context) bool {
	all, err := s.client.Sessions(ctx)
	id := s.ID()
	return err != nil || slices.ContainsFunc(all,
		func(i message.SessionInfo) bool { return i.GlobalID == id })
}

// kept says what to do where the session cannot be opened because it ended with changes that nobody
// has reviewed.
func (s *Session) kept(ctx context.Context, err error) error {
	all, listErr := s.client.Workspaces(ctx)
	if listErr != nil || !slices.ContainsFunc(all,
		func(w shadows.WorkspaceInfo) bool { return w.ID == s.Name() }) {
		return err
	}
	p := problem.From(err)
	return problem.New(p.Code, "session %s has ended, and its changes wait for a review: %w", s.Name(),
		err).WithHint(fmt.Sprintf("jail diff %[1]s, and then jail commit %[1]s or jail discard %[1]s",
		s.Name()))
}

// Exec runs an invocation with streams of the caller's; out and errOut may be the same. The error is
// of jail itself.
func (s *Session) Exec(ctx context.Context, req message.ExecRequest, in io.Reader, out,
	errOut io.Writer) (message.Result, error) {
	req.Dir = s.request.Dir
	for again := false; ; again = true {
		r, err := s.client.Exec(ctx, s.ID(), req, in, out, errOut, nil)
		if err == nil && r.Error != nil {
			err = r.Error
		}
		// The session may have ended: its time is up, or somebody stopped it.
		if err == nil || again || problem.From(err).Code != problem.NotFound || s.stands(ctx) {
			return r, err
		}
		if err = s.open(ctx); err != nil {
			return r, s.kept(ctx, err)
		}
	}
}

// Inherited are the variables of the caller's that the policy passes on where it names them.
func (s *Session) Inherited() []string { return s.request.Inherit }

// A Call is one invocation whose output is kept.
type Call struct {
	Tool string
	// Script is the text of a shell script to run in place of a tool.
	Script string
	Args   []string
	// In is its standard input; nil is nothing.
	In []byte
	// Limits narrow those of the policy, each KEY=VALUE.
	Limits []string
	// Env are variables, each NAME=VALUE.
	Env []string
	Cwd string
	// Most bounds what is kept of each stream, MaxShown if 0.
	Most int
}

// An Outcome is what a call gave.
type Outcome struct {
	message.Result
	Out, ErrOut stdio.Kept
}

// Why returns why a call did not end with 0.
func (o *Outcome) Why() string {
	why := cmp.Or(strings.TrimSpace(o.ErrOut.String()), fmt.Sprintf("exit code %d", o.ExitCode))
	if o.Limit != nil {
		why += fmt.Sprintf(" (limit %s)", o.Limit.Name)
	}
	return why
}

// Run runs a call. The error is of jail itself; how the tool ended is in the outcome.
func (s *Session) Run(ctx context.Context, c Call) (o Outcome, err error) {
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-ctx.Done():
		return o, ctx.Err()
	}
	most := cmp.Or(c.Most, MaxShown)
	o.Out.Most, o.ErrOut.Most = most, most
	req := message.ExecRequest{Tool: c.Tool, Args: c.Args, Cwd: c.Cwd, Limits: c.Limits, Env: c.Env,
		Inherit: s.Inherited()}
	if c.Script != "" {
		req.Script = &message.Script{Name: "-c", Text: c.Script}
	}
	o.Result, err = s.Exec(ctx, req, bytes.NewReader(c.In), &o.Out, &o.ErrOut)
	return o, err
}

// FileLimits bound a tool that may have been given a file that never ends.
var FileLimits = []string{"wall=60s"}

// Write writes a file at a path as Within returns it. Its directory must be there.
func (s *Session) Write(ctx context.Context, path string, content []byte) (Outcome, error) {
	// Without an echo, which the limit of output would count. With bs, toybox reads beyond its
	// buffer after a read that was short.
	return s.Run(ctx, Call{Tool: "dd", In: content, Limits: FileLimits,
		Args: []string{"of=" + path, "ibs=65536", "obs=65536", "status=none"}})
}

// Within returns a path as tools in the jail name it: what lies in the workspace by its place there,
// what lies elsewhere as it is. No tool takes the path for an option.
func (s *Session) Within(path string) string {
	if filepath.IsAbs(path) {
		if rel, err := filepath.Rel(s.Root(), path); err == nil && filepath.IsLocal(rel) {
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

// An Output is how a program ended, for who asked for it by its arguments.
type Output struct {
	ExitCode  int    `json:"exitCode"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated" jsonschema:"there was more output"`
	Meta      Meta   `json:"meta"`
}

// A Meta is what jail says of a program.
type Meta struct {
	Run    string   `json:"run" jsonschema:"the id of the invocation in jail's log"`
	WallMS int64    `json:"wall_ms"`
	Limit  string   `json:"limit,omitempty" jsonschema:"the limit that ended it"`
	Denied []string `json:"denied,omitempty" jsonschema:"what the policy refused it"`
}

// Output returns the outcome in that form.
func (o *Outcome) Output() Output {
	out := Output{ExitCode: o.ExitCode, Stdout: o.Out.String(), Stderr: o.ErrOut.String(),
		Truncated: o.Truncated || o.Out.Cut || o.ErrOut.Cut,
		Meta:      Meta{Run: o.ID, WallMS: o.Usage.WallMS}}
	if o.Limit != nil {
		out.Meta.Limit = o.Limit.Name
	}
	for _, d := range o.Denied {
		out.Meta.Denied = append(out.Meta.Denied, fmt.Sprint(d))
	}
	return out
}

// Shown is what a model reads of a program's end.
func (o Output) Shown() string {
	b := &strings.Builder{}
	b.WriteString(o.Stdout)
	if o.Stderr != "" && b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	b.WriteString(o.Stderr)
	if o.Truncated {
		b.WriteString("\n[there was more output]")
	}
	if o.Meta.Limit != "" {
		fmt.Fprintf(b, "\n[ended by the limit %s]", o.Meta.Limit)
	}
	if o.ExitCode != 0 {
		fmt.Fprintf(b, "\n[exit code %d]", o.ExitCode)
	}
	return b.String()
}
