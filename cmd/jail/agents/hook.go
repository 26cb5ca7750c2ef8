package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/request"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const hookAbout = `Answer a hook of a coding agent, which is on standard input, as the agent's protocol asks. A call of the agent's shell becomes jail session exec in the
session in which jail mcp works for the same directory, and which is opened if it is not open. A call of an editing tool, an input that is not understood, and a
session that cannot be opened are denied with a sentence.

jail setup CLIENT configures the agent to call it. CLIENT is claude-code, codex or cursor. The agent may let a call pass if its hook fails in another way: a hook is
a convenience, and the denial of the agent's own tools is the wall.`

// Bounds of a hook.
const (
	// hookTime bounds a hook. It is less than hookSeconds, after which agents let a call pass.
	hookTime = 45 * time.Second
	maxHook  = 8 << 20
	// maxCommand bounds the rewritten command, in bytes. It is below the kernel's limit for one
	// argument (execve(2), MAX_ARG_STRLEN).
	maxCommand = 100 << 10
)

// A dialect is the hook protocol of a coding agent.
type dialect struct {
	// shells are the names of the agent's tools that run a shell command.
	shells []string
	// directory returns the directory that the agent works in, "" for the hook's working directory.
	directory func(env *cli.Env, in hookInput) (string, error)
	allow     func(input map[string]json.RawMessage) any
	deny      func(why string) any
}

var dialects = map[string]dialect{
	"claude-code": {[]string{"Bash"}, func(env *cli.Env, _ hookInput) (string, error) {
		return env.Getenv("CLAUDE_PROJECT_DIR"), nil
	}, allowTool, denyTool},
	"codex": {[]string{"Bash"}, func(*cli.Env, hookInput) (string, error) { return "", nil },
		allowTool, denyTool},
	"cursor": {[]string{"Shell"}, rootOf, allowCursor, denyCursor},
}

// hookInput has the used fields of the input of a hook.
type hookInput struct {
	Event string                     `json:"hook_event_name"`
	Tool  string                     `json:"tool_name"`
	Input map[string]json.RawMessage `json:"tool_input"`
	// Of Cursor.
	Command string   `json:"command"`
	Roots   []string `json:"workspace_roots"`
}

// toolAnswer is the output with which a hook of Claude Code or Codex allows or denies a tool call.
// cursorAnswer is the same for Cursor.
type (
	toolAnswer struct {
		Output toolDecision `json:"hookSpecificOutput"`
	}
	toolDecision struct {
		Event    string                     `json:"hookEventName"`
		Decision string                     `json:"permissionDecision"`
		Reason   string                     `json:"permissionDecisionReason,omitempty"`
		Input    map[string]json.RawMessage `json:"updatedInput,omitempty"`
	}
	cursorAnswer struct {
		Permission string                     `json:"permission"`
		User       string                     `json:"user_message,omitempty"`
		Agent      string                     `json:"agent_message,omitempty"`
		Input      map[string]json.RawMessage `json:"updated_input,omitempty"`
	}
)

const preToolUse = "PreToolUse"

func allowTool(input map[string]json.RawMessage) any {
	return toolAnswer{toolDecision{Event: preToolUse, Decision: "allow", Input: input}}
}

func denyTool(why string) any {
	return toolAnswer{toolDecision{Event: preToolUse, Decision: "deny", Reason: why}}
}

func allowCursor(input map[string]json.RawMessage) any {
	return cursorAnswer{Permission: "allow", Input: input}
}

func denyCursor(why string) any { return cursorAnswer{Permission: "deny", User: why, Agent: why} }

// rootOf returns the directory of Cursor's window. No directory, several, or a relative path is an
// error. The hook's working directory cannot be used: Cursor runs the hooks of a user in ~/.cursor.
func rootOf(_ *cli.Env, in hookInput) (string, error) {
	if len(in.Roots) != 1 || !filepath.IsAbs(in.Roots[0]) {
		return "", fmt.Errorf("the window has %d directories, and a session works in one: open one "+
			"directory, or use the tool bash of the MCP server jail", len(in.Roots))
	}
	return in.Roots[0], nil
}

// NewHook returns the command jail hook.
func NewHook(env *cli.Env) *cobra.Command {
	var flags request.Flags
	cmd := &cobra.Command{
		Use:     "hook [flags] CLIENT",
		Short:   "run the shell commands of a coding agent in a session",
		Long:    hookAbout,
		Example: "  jail hook claude-code",
		Args:    command.Exactly("CLIENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, ok := dialects[args[0]]
			if !ok {
				return exit.Usage("claude-code, codex and cursor have hooks",
					"jail hook: there is no client %.80q", args[0])
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), hookTime)
			defer cancel()
			answer, err := answerHook(ctx, env, cmd, &flags, d)
			if err != nil {
				answer = d.deny("jail: " + sentence(err))
			}
			return env.PrintLine(answer)
		},
	}
	flags.AddLasting(cmd, "build")
	return cmd
}

func sentence(err error) string {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Hint == "" {
		return err.Error()
	}
	return p.Message + " (" + p.Hint + ")"
}

// answerHook returns the answer that allows a call, or an error with the reason to deny it.
func answerHook(ctx context.Context, env *cli.Env, cmd *cobra.Command, flags *request.Flags,
	d dialect) (any, error) {
	in, err := readHook(env.Stdin)
	if err != nil {
		return nil, err
	}
	prefix := quote(env.Exe) + " session exec --quiet --keep-env "
	// Cursor calls a second hook for a command that the hook preToolUse has changed.
	if in.Event == "beforeShellExecution" {
		req, err := d.settings(env, cmd, flags, in)
		if err != nil {
			return nil, err
		}
		script, ours := strings.CutPrefix(in.Command, prefix+req.ID+" -- bash -c ")
		if ours && quote(unquote(script)) == script {
			return d.allow(nil), nil
		}
		return nil, errors.New("a shell command of the agent does not run on the host; use the tool " +
			"bash of the MCP server jail")
	}
	if !strings.EqualFold(in.Event, preToolUse) {
		return nil, fmt.Errorf("the hook %s is not known", strconv.Quote(in.Event))
	}
	script, err := d.script(in)
	if err != nil {
		return nil, err
	}
	req, err := d.settings(env, cmd, flags, in)
	if err != nil {
		return nil, err
	}
	command := prefix + req.ID + " -- bash -c " + quote(script)
	if len(command) > maxCommand {
		return nil, fmt.Errorf("the command has %d bytes, quotes included, and at most %d can be given "+
			"to a shell: write it to a file", len(command), maxCommand)
	}
	if err := env.WithLastingDaemon(ctx, func(c *api.Client) error {
		_, err := c.StartSession(ctx, message.SessionRequest{Request: req})
		return err
	}); err != nil {
		return nil, err
	}
	changed := maps.Clone(in.Input)
	if changed["command"], err = json.Marshal(command); err != nil {
		return nil, err
	}
	return d.allow(changed), nil
}

func readHook(r io.Reader) (in hookInput, err error) {
	if r == nil {
		return in, errors.New("the input is empty")
	}
	text, err := io.ReadAll(io.LimitReader(r, maxHook+1))
	switch {
	case err != nil:
		return in, err
	case len(text) > maxHook:
		return in, fmt.Errorf("the input has more than %d bytes", maxHook)
	case !utf8.Valid(text):
		return in, errors.New("the input is not UTF-8")
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return in, fmt.Errorf("the input is not understood: %w", err)
	}
	return in, nil
}

// script returns the shell command of a call, or an error if the tool does not run shell commands.
func (d dialect) script(in hookInput) (script string, err error) {
	for _, tool := range d.shells {
		if in.Tool != tool {
			continue
		}
		err := json.Unmarshal(in.Input["command"], &script)
		switch {
		case err != nil || strings.TrimSpace(script) == "":
			return "", fmt.Errorf("the call of %s has no command", tool)
		case strings.ContainsRune(script, 0):
			return "", errors.New("the command has a NUL byte, which no shell can be given")
		}
		return script, nil
	}
	return "", fmt.Errorf("%s would work on the host, and not in the session; use the tools of the "+
		"MCP server jail", cmp.Or(output.Printable(in.Tool), "the tool"))
}

// settings returns the request for jail mcp's session of the agent's directory.
func (d dialect) settings(env *cli.Env, cmd *cobra.Command, flags *request.Flags,
	in hookInput) (message.Request, error) {
	if !cmd.Flags().Changed("workspace") {
		dir, err := d.directory(env, in)
		if err == nil && dir != "" {
			err = cmd.Flags().Set("workspace", dir)
		}
		if err != nil {
			return message.Request{}, err
		}
	}
	return flags.LastingSettings(env, cmd)
}

// In single quotes, a backslash is literal in a POSIX shell (POSIX.1-2024, XCU 2.2.2), but an
// escape in fish. Outside of quotes, it makes the next character literal in both.
var (
	quoted   = strings.NewReplacer("'", `'\''`, `\`, `'\\'`)
	unquoted = strings.NewReplacer(`'\''`, "'", `'\\'`, `\`)
)

// quote returns text as one word for a POSIX shell and for fish. Neither shell expands anything in
// it.
func quote(text string) string { return "'" + quoted.Replace(text) + "'" }

// unquote is the inverse of quote.
func unquote(word string) string {
	return unquoted.Replace(strings.TrimSuffix(strings.TrimPrefix(word, "'"), "'"))
}
