// Package toolsession provides the session in which the tools of a coding agent run: one directory
// and one policy. The session is opened on demand, and reopened after it has ended.
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

// Bounds of the output and input of a call, in bytes.
const (
	// MaxShown is how many bytes of each output stream Run keeps if Call.Most is 0.
	MaxShown = 256 << 10
	// MaxWritten is the size in bytes of the largest file that the agent's file tools read or
	// write.
	MaxWritten = 8 << 20
)

// maxAtOnce bounds the concurrent calls of Run. Further calls wait.
const maxAtOnce = 16

// A Session is one session of jail. Its methods may be called concurrently.
type Session struct {
	client  *api.Client
	request message.SessionRequest
	// places is a semaphore for Run.
	places chan struct{}

	mu sync.Mutex
	// global is the unique id of the session.
	global string
}

// Open opens the session that r describes; r.ID is the name of the session. If the session is open
// already, Open uses it, and if the session sleeps, Open wakes it. Open fails if the open session
// was started with a different request, or if an ended session of this name has left changes to
// review.
func Open(ctx context.Context, c *api.Client, r message.SessionRequest) (*Session, error) {
	s := &Session{client: c, request: r, places: make(chan struct{}, maxAtOnce)}
	if err := s.open(ctx); err != nil {
		return nil, s.kept(ctx, err)
	}
	return s, nil
}

// Client returns the client of the daemon that has the session.
func (s *Session) Client() *api.Client { return s.client }

// Name returns the name of the session.
func (s *Session) Name() string { return s.request.ID }

// Root returns the real directory of the session.
func (s *Session) Root() string { return cmp.Or(s.request.Workspace, s.request.Dir) }

// ID returns the unique id of the session. It changes when the session is reopened.
func (s *Session) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.global
}

// Is reports whether id is the name or the unique id of the session.
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

// stands reports whether the session is open or sleeps. It returns true if the daemon does not
// answer.
func (s *Session) stands(ctx context.Context) bool {
	all, err := s.client.Sessions(ctx)
	id := s.ID()
	return err != nil || slices.ContainsFunc(all,
		func(i message.SessionInfo) bool { return i.GlobalID == id })
}

// kept returns err with a hint if the session cannot be opened because an earlier one of the same
// name has left changes to review. Otherwise it returns err unchanged.
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

// Exec runs an invocation with the streams of the caller; out and errOut may be the same. If the
// session has ended, Exec reopens the session and tries once more. A failed tool is not an error:
// its exit code is in the Result.
func (s *Session) Exec(ctx context.Context, req message.ExecRequest, in io.Reader, out,
	errOut io.Writer) (message.Result, error) {
	req.Dir = s.request.Dir
	for again := false; ; again = true {
		r, err := s.client.Exec(ctx, s.ID(), req, in, out, errOut, nil)
		if err == nil && r.Error != nil {
			err = r.Error
		}
		// The session may have ended because its time is over or somebody stopped it.
		if err == nil || again || problem.From(err).Code != problem.NotFound || s.stands(ctx) {
			return r, err
		}
		if err = s.open(ctx); err != nil {
			return r, s.kept(ctx, err)
		}
	}
}

// Inherited returns the caller's environment, each variable as NAME=VALUE. The policy decides which
// of the variables a tool gets.
func (s *Session) Inherited() []string { return s.request.Inherit }

// A Call is an invocation whose output Run collects.
type Call struct {
	Tool string
	// Script is the text of a shell script to run in place of a tool.
	Script string
	Args   []string
	// In is the standard input, nil if it is empty.
	In []byte
	// Limits narrow the limits of the policy, each KEY=VALUE.
	Limits []string
	// Env are variables, each NAME=VALUE.
	Env []string
	Cwd string
	// Most bounds the collected bytes of each output stream. 0 means MaxShown.
	Most int
}

// An Outcome is what Run returns: the daemon's result of the invocation, and the first bytes of
// its standard output and standard error.
type Outcome struct {
	message.Result
	Out, ErrOut stdio.Kept
}

// Why returns the reason of a failed call: its standard error, or "exit code N" if that is empty.
// If a limit ended the call, the text ends with the limit's name. After a success Why returns
// standard error or "exit code 0".
func (o *Outcome) Why() string {
	why := cmp.Or(strings.TrimSpace(o.ErrOut.String()), fmt.Sprintf("exit code %d", o.ExitCode))
	if o.Limit != nil {
		why += fmt.Sprintf(" (limit %s)", o.Limit.Name)
	}
	return why
}

// Run runs a call and collects its output. It waits while maxAtOnce other calls run. A failed tool
// is not an error: its exit code is in the Outcome. The error is one of jail, or of ctx.
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

// FileLimits are limits for tools that read files, which may be endless such as /dev/zero.
var FileLimits = []string{"wall=60s"}

// Write writes a file at a path that Within has returned. Its directory must exist.
func (s *Session) Write(ctx context.Context, path string, content []byte) (Outcome, error) {
	// dd prints nothing, so the limit output does not matter. Do not use bs=: toybox then reads
	// beyond its buffer after a short read.
	return s.Run(ctx, Call{Tool: "dd", In: content, Limits: FileLimits,
		Args: []string{"of=" + path, "ibs=65536", "obs=65536", "status=none"}})
}

// Within converts a path for tools in the jail: a path in the workspace becomes relative, others
// stay. The result cannot be mistaken for an option or an operator of find.
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

// An Output is the JSON form of an Outcome for clients and models. It has the output streams as
// UTF-8 text, the limit by name and the denials as text.
type Output struct {
	ExitCode  int    `json:"exitCode"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated" jsonschema:"there was more output"`
	Meta      Meta   `json:"meta"`
}

// A Meta has jail's information about an invocation.
type Meta struct {
	Run    string   `json:"run" jsonschema:"the id of the invocation in jail's log"`
	WallMS int64    `json:"wall_ms"`
	Limit  string   `json:"limit,omitempty" jsonschema:"the limit that ended it"`
	Denied []string `json:"denied,omitempty" jsonschema:"what the policy refused it"`
}

// Output returns the outcome in its JSON form. Bytes that are not UTF-8 become U+FFFD. Truncated is
// true if any output was dropped.
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

// Shown returns the output as a text for a model, with notes about limits and the exit code.
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
