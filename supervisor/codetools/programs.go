package codetools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// A BashInput is the input of Bash: a shell command.
type BashInput struct {
	Command string `json:"command"`
	Timeout int    `json:"timeout,omitempty" jsonschema:"milliseconds until the command is ended"`
	Cwd     string `json:"cwd,omitempty" jsonschema:"where it starts, without it the directory itself"`
}

// Bash runs a command with bash -c.
func (t *Tools) Bash(ctx context.Context, in BashInput) (toolsession.Output, error) {
	return t.runText(ctx, in, toolsession.Call{Tool: "bash", Args: []string{"-c", in.Command}})
}

// runText runs c with the timeout and directory of in. An empty command is an error.
func (t *Tools) runText(ctx context.Context, in BashInput,
	c toolsession.Call) (toolsession.Output, error) {
	switch {
	case strings.TrimSpace(in.Command) == "":
		return toolsession.Output{}, errors.New("command is empty")
	case in.Timeout < 0:
		return toolsession.Output{}, fmt.Errorf("timeout %d is negative", in.Timeout)
	}
	if in.Timeout > 0 {
		c.Limits = []string{fmt.Sprintf("wall=%dms", in.Timeout)}
	}
	return t.output(ctx, c, in.Cwd)
}

// output runs a call in the directory cwd, or in the session's directory if cwd is empty.
func (t *Tools) output(ctx context.Context, c toolsession.Call, cwd string) (toolsession.Output, error) {
	if cwd != "" {
		c.Cwd = t.Session.Within(cwd)
	}
	o, err := t.run(ctx, c)
	if err != nil {
		return toolsession.Output{}, err
	}
	return o.Output(), nil
}

// A CommandInput is the input of Command: a program with its arguments.
type CommandInput struct {
	Argv   []string          `json:"argv" jsonschema:"the program and its arguments"`
	Cwd    string            `json:"cwd,omitempty" jsonschema:"where it starts, without it the directory itself"`
	Env    map[string]string `json:"env,omitempty"`
	Stdin  string            `json:"stdin,omitempty"`
	Limits map[string]string `json:"limits,omitempty" jsonschema:"limits that are narrower than those of the policy, such as wall 10s or memory 64MiB"`
}

// Command runs a program without a shell.
func (t *Tools) Command(ctx context.Context, in CommandInput) (toolsession.Output, error) {
	if len(in.Argv) == 0 || in.Argv[0] == "" {
		return toolsession.Output{}, errors.New("argv is empty")
	}
	return t.output(ctx, toolsession.Call{Tool: in.Argv[0], Args: in.Argv[1:], In: []byte(in.Stdin),
		Env: pairs(in.Env), Limits: pairs(in.Limits)}, in.Cwd)
}

// pairs returns the entries of a map as NAME=VALUE, sorted by name.
func pairs(of map[string]string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, name+"="+of[name])
	}
	return all
}

// A ShellInput is the input of Shell: a script for jail's own shell.
type ShellInput struct {
	Command string `json:"command"`
	Timeout int    `json:"timeout,omitempty" jsonschema:"milliseconds until the command is ended"`
}

// Shell runs a script as jail sh does: each of its commands is a tool of jail. If the script has
// unsupported syntax, nothing runs, and the error has the position.
func (t *Tools) Shell(ctx context.Context, in ShellInput) (toolsession.Output, error) {
	return t.runText(ctx, BashInput{Command: in.Command, Timeout: in.Timeout},
		toolsession.Call{Script: in.Command})
}

// A FetchInput is the input of Fetch: an HTTP request.
type FetchInput struct {
	URL     string            `json:"url"`
	Method  string            `json:"method,omitempty" jsonschema:"GET without it, and POST with a body"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
}

// headerName matches common names of HTTP fields (a subset of RFC 9110, section 5.1).
var headerName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
})

// Fetch fetches a URL with the program fetch or curl in the session, through the fetch proxy.
func (t *Tools) Fetch(ctx context.Context, in FetchInput) (out toolsession.Output, err error) {
	if in.URL == "" {
		return out, errors.New("url is empty")
	}
	c := toolsession.Call{Args: []string{"-sS"}}
	if in.Method != "" {
		c.Args = append(c.Args, "-X", in.Method)
	}
	for name, value := range in.Headers {
		if !headerName().MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
			return out, fmt.Errorf("header %q is none of HTTP", name)
		}
		c.Args = append(c.Args, "-H", name+": "+value)
	}
	if in.Body != "" {
		c.Args, c.In = append(c.Args, "--data-binary", "@-"), []byte(in.Body)
	}
	c.Args = append(c.Args, "--", in.URL)
	// Try jail's fetch, then the host's curl: the policy may grant either. Flags are the same.
	for _, c.Tool = range []string{"fetch", "curl"} {
		if out, err = t.output(ctx, c, ""); err == nil {
			break
		}
	}
	return out, err
}

// Todos is a list of tasks that a client keeps for itself.
type Todos struct {
	mu  sync.Mutex
	all []Todo
}

// A Todo is an entry of the list.
type Todo struct {
	Content    string `json:"content"`
	Status     string `json:"status" jsonschema:"pending, in_progress or completed"`
	ActiveForm string `json:"activeForm,omitempty" jsonschema:"the same in the form of what is being done"`
}

// A TodoInput is the input of Keep: a new list, nil to read the list.
type TodoInput struct {
	Todos []Todo `json:"todos,omitempty"`
}

// A TodoOutput is the result of Keep: the current list.
type TodoOutput struct {
	Todos []Todo `json:"todos"`
}

// Shown returns the text that a model gets as the result.
func (o TodoOutput) Shown() string {
	b := &strings.Builder{}
	for _, t := range o.Todos {
		fmt.Fprintf(b, "[%s] %s\n", t.Status, t.Content)
	}
	return b.String()
}

// maxTodos bounds the length of the list.
const maxTodos = 500

// Keep replaces the list if in.Todos is not nil, and returns the current list.
func (t *Todos) Keep(in TodoInput) (TodoOutput, error) {
	if len(in.Todos) > maxTodos {
		return TodoOutput{}, fmt.Errorf("%d todos; at most %d are kept", len(in.Todos), maxTodos)
	}
	for _, todo := range in.Todos {
		if !slices.Contains([]string{"pending", "in_progress", "completed"}, todo.Status) {
			return TodoOutput{}, fmt.Errorf(
				"status %q is none of pending, in_progress and completed", todo.Status)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if in.Todos != nil {
		t.all = in.Todos
	}
	return TodoOutput{Todos: append([]Todo{}, t.all...)}, nil
}
