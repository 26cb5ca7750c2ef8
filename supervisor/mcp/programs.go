package mcp

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// progressEvery is how often a client that asks for it is told that a program still runs.
const progressEvery = 2 * time.Second

func (s *Server) addPrograms() {
	add(s, tool("bash", "Run a command",
		"Run a shell command over the shadow of the directory, behind the walls of the session. "+
			"timeout is in milliseconds; the policy may allow less.", runsAnything), s.bash)
	add(s, tool("fetch", "Fetch a URL",
		"Fetch a URL through the audited proxy, if the policy grants its host.", runsAnything), s.fetch)
	add(s, tool("todo", "Keep a list of work",
		"Replace the list of what is to be done, or read it if todos is left out.", changesShadow),
		s.todo)
}

type bashInput struct {
	Command string `json:"command"`
	Timeout int    `json:"timeout,omitempty" jsonschema:"milliseconds until the command is ended"`
	Cwd     string `json:"cwd,omitempty" jsonschema:"where it starts, without it the directory itself"`
}

// commandOutput is how a program ended.
type commandOutput struct {
	ExitCode  int         `json:"exitCode"`
	Stdout    string      `json:"stdout"`
	Stderr    string      `json:"stderr"`
	Truncated bool        `json:"truncated" jsonschema:"there was more output"`
	Meta      commandMeta `json:"meta"`
}

type commandMeta struct {
	Run    string   `json:"run" jsonschema:"the id of the invocation in jail's log"`
	WallMS int64    `json:"wall_ms"`
	Limit  string   `json:"limit,omitempty" jsonschema:"the limit that ended it"`
	Denied []string `json:"denied,omitempty" jsonschema:"what the policy refused it"`
}

func outputOf(o toolsession.Outcome) commandOutput {
	out := commandOutput{ExitCode: o.ExitCode, Stdout: o.Out.String(), Stderr: o.ErrOut.String(),
		Truncated: o.Truncated || o.Out.Cut || o.ErrOut.Cut,
		Meta:      commandMeta{Run: o.ID, WallMS: o.Usage.WallMS}}
	if o.Limit != nil {
		out.Meta.Limit = o.Limit.Name
	}
	for _, d := range o.Denied {
		out.Meta.Denied = append(out.Meta.Denied, fmt.Sprint(d))
	}
	return out
}

// shown is what a model reads of a program's end.
func (o commandOutput) shown() *mcp.CallToolResult {
	b := &strings.Builder{}
	b.WriteString(o.Stdout)
	for _, more := range []string{o.Stderr} {
		if more != "" && b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		b.WriteString(more)
	}
	if o.Truncated {
		b.WriteString("\n[there was more output]")
	}
	if o.Meta.Limit != "" {
		fmt.Fprintf(b, "\n[ended by the limit %s]", o.Meta.Limit)
	}
	if o.ExitCode != 0 {
		fmt.Fprintf(b, "\n[exit code %d]", o.ExitCode)
	}
	return text(b.String())
}

func (s *Server) bash(ctx context.Context, req *mcp.CallToolRequest, in bashInput) (
	*mcp.CallToolResult, commandOutput, error) {
	switch {
	case strings.TrimSpace(in.Command) == "":
		return nil, commandOutput{}, errors.New("command is empty")
	case in.Timeout < 0:
		return nil, commandOutput{}, fmt.Errorf("timeout %d is negative", in.Timeout)
	}
	c := toolsession.Call{Tool: "bash", Args: []string{"-c", in.Command}}
	if in.Cwd != "" {
		c.Cwd = s.session.Within(in.Cwd)
	}
	if in.Timeout > 0 {
		c.Limits = []string{fmt.Sprintf("wall=%dms", in.Timeout)}
	}
	defer lives(ctx, req)()
	o, err := s.session.run(ctx, c)
	if err != nil {
		return nil, commandOutput{}, err
	}
	out := outputOf(o)
	return out.shown(), out, nil
}

// lives tells a client that asks for it how long a call has been running, until the returned
// function is called.
func lives(ctx context.Context, req *mcp.CallToolRequest) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		began, tick := time.Now(), time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				past := time.Since(began).Round(time.Second)
				// A client that is gone needs no progress; the call itself finds out.
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: token, Progress: past.Seconds(),
					Message: fmt.Sprintf("running for %s", past)})
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

type fetchInput struct {
	URL     string            `json:"url"`
	Method  string            `json:"method,omitempty" jsonschema:"GET without it, and POST with a body"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
}

// headerName is the name of a field of HTTP (RFC 9110, section 5.1), as far as people use them.
var headerName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func (s *Server) fetch(ctx context.Context, req *mcp.CallToolRequest, in fetchInput) (
	*mcp.CallToolResult, commandOutput, error) {
	if in.URL == "" {
		return nil, commandOutput{}, errors.New("url is empty")
	}
	c := toolsession.Call{Args: []string{"-sS"}}
	if in.Method != "" {
		c.Args = append(c.Args, "-X", in.Method)
	}
	for name, value := range in.Headers {
		if !headerName.MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
			return nil, commandOutput{}, fmt.Errorf("header %q is none of HTTP", name)
		}
		c.Args = append(c.Args, "-H", name+": "+value)
	}
	if in.Body != "" {
		c.Args, c.In = append(c.Args, "--data-binary", "@-"), []byte(in.Body)
	}
	c.Args = append(c.Args, "--", in.URL)
	defer lives(ctx, req)()
	var o toolsession.Outcome
	var err error
	// Jail's own tool, or that of the host, whichever the policy grants: they have the same flags.
	for _, c.Tool = range []string{"fetch", "curl"} {
		if o, err = s.session.run(ctx, c); err == nil {
			break
		}
	}
	if err != nil {
		return nil, commandOutput{}, err
	}
	out := outputOf(o)
	res := out.shown()
	res.IsError = o.ExitCode != 0
	return res, out, nil
}

// todos is the list of what a client has to do.
type todos struct {
	mu  sync.Mutex
	all []todo
}

type todo struct {
	Content    string `json:"content"`
	Status     string `json:"status" jsonschema:"pending, in_progress or completed"`
	ActiveForm string `json:"activeForm,omitempty" jsonschema:"the same in the form of what is being done"`
}

type todoInput struct {
	Todos []todo `json:"todos,omitempty"`
}

type todoOutput struct {
	Todos []todo `json:"todos"`
}

// maxTodos bounds the list.
const maxTodos = 500

func (s *Server) todo(_ context.Context, _ *mcp.CallToolRequest, in todoInput) (
	*mcp.CallToolResult, todoOutput, error) {
	if len(in.Todos) > maxTodos {
		return nil, todoOutput{}, fmt.Errorf("%d todos; at most %d are kept", len(in.Todos), maxTodos)
	}
	for _, t := range in.Todos {
		if !slices.Contains([]string{"pending", "in_progress", "completed"}, t.Status) {
			return nil, todoOutput{}, fmt.Errorf(
				"status %q is none of pending, in_progress and completed", t.Status)
		}
	}
	s.todos.mu.Lock()
	defer s.todos.mu.Unlock()
	if in.Todos != nil {
		s.todos.all = in.Todos
	}
	return nil, todoOutput{Todos: append([]todo{}, s.todos.all...)}, nil
}
