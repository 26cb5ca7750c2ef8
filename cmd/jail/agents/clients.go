package agents

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// A client is a coding agent with the configuration that jail setup writes for it.
type client struct {
	name string
	// next says what the user has to do after the setup.
	next string
	// files returns the files to change for a project, with paths below its directory, or for a
	// user, with paths below the home. It returns none if the agent reads no such configuration.
	files func(p programs, user bool) []file
}

// A file is a configuration file of a client, with the changes to make.
type file struct {
	path string
	// home names an environment variable with the directory that replaces the first directory of
	// path, or that holds the file if path has none.
	home    string
	changes []change
}

// A change is one value in a file of JSON or TOML.
type change struct {
	// At is the path of names to the value. In TOML it has two: the table and the key.
	At []string `json:"at"`
	// Value is the value in the syntax of the file.
	Value string `json:"value"`
	// Item is true if the change adds Value to the list at the path. Otherwise the change sets the
	// value at the path.
	Item bool `json:"item,omitempty"`
	// Hook is the name of the client if Value is a hook that calls jail, else "". A hook replaces
	// the hooks for the same client that an earlier setup wrote into the list.
	Hook string `json:"-"`
	// Must is true if a different existing value is an error. Otherwise the change replaces it.
	Must bool `json:"-"`

	// Before is set when the change is made, for undo. It is the value that the change replaced, or
	// a JSON list of the items that it replaced; "" if it replaced none.
	Before string `json:"before,omitempty"`
	// Made is set when the change is made in JSON, for undo. It is the number of objects and lists
	// that were created to hold the value.
	Made int `json:"made,omitempty"`
}

// programs is the jail command in a configuration. exe is "jail" or the path of the program, and
// args are the flags for its subcommands.
type programs struct {
	exe  string
	args []string
}

// server returns the arguments for jail mcp.
func (p programs) server() []string { return append([]string{"mcp"}, p.args...) }

// failed is the end of the commands of hooks. Agents let a call pass if a hook prints no answer,
// unless it exits with code 2 and a text on standard error. POSIX shells and fish read it alike.
const failed = " || sh -c 'echo the hook of jail failed >&2; exit 2'"

// hook returns the shell command for the hooks of a client.
func (p programs) hook(client string) string {
	words := []string{p.exe}
	if strings.ContainsFunc(p.exe, func(r rune) bool { return r == '\'' || r <= ' ' || r > '~' }) {
		words[0] = quote(p.exe)
	}
	words = append(append(words, "hook", client), p.args...)
	return strings.Join(words, " ") + failed
}

// wrote matches the commands that hook returns, and that earlier versions returned.
var wrote = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:'(?:[^']*/)?jail'|(?:[^' ]*/)?jail) hook ([a-z-]+)` +
		`(?: --profile [^ ']+)? \|\| (?:exit 2|sh -c 'echo the hook of jail failed >&2; exit 2')$`)
})

// isHook reports whether a JSON item holds one hook, and setup wrote that hook for the client. It
// returns false for an item with further hooks, or one that is not valid JSON.
func isHook(item, client string) bool {
	var v struct {
		Command string
		Hooks   []hookCommand
	}
	if json.Unmarshal([]byte(item), &v) != nil || len(v.Hooks) > 1 {
		return false
	}
	if len(v.Hooks) == 1 && v.Command == "" {
		v.Command = v.Hooks[0].Command
	}
	m := wrote().FindStringSubmatch(v.Command)
	return m != nil && m[1] == client
}

var clients = []client{
	{"claude-code", "start claude anew, and approve the server jail if it asks", claudeFiles},
	{"codex", "trust the directory when codex asks, and the hook by /hooks", codexFiles},
	{"cursor", "turn the server jail on in Cursor's settings of MCP", cursorFiles},
	{"gemini", "start gemini anew", geminiFiles},
	{"openhands", "start openhands anew", openhandsFiles},
}

func set(value any, at ...string) change { return change{At: at, Value: asJSON(value)} }

func item(value any, at ...string) change {
	return change{At: at, Value: asJSON(value), Item: true}
}

func items(values []string, at ...string) (all []change) {
	for _, v := range values {
		all = append(all, item(v, at...))
	}
	return all
}

// asJSON returns the JSON of a value. It panics if the value cannot be encoded.
func asJSON(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

// list returns a TOML array of strings.
func list(words []string) string {
	var all []string
	for _, w := range words {
		all = append(all, asJSON(w))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// stdio is an entry for an MCP server in a JSON configuration.
type stdio struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Trust   bool     `json:"trust,omitempty"`
}

// hookSeconds is the timeout of a hook in the configuration. It is longer than hookTime.
const hookSeconds = 60

// toolHook is an item of the list PreToolUse of Claude Code and Codex.
type toolHook struct {
	Matcher string        `json:"matcher"`
	Hooks   []hookCommand `json:"hooks"`
}

type hookCommand struct {
	Type    string `json:"type"`
	Command string `json:"command"`
	Timeout int    `json:"timeout"`
}

func preTool(p programs, client, matcher string) change {
	c := item(toolHook{matcher, []hookCommand{{"command", p.hook(client), hookSeconds}}},
		"hooks", "PreToolUse")
	c.Hook = client
	return c
}

// claudeTools are the tools of Claude Code that run programs, change files, or read files of the
// real directory.
var claudeTools = []string{"Bash", "Monitor", "Edit", "Write", "NotebookEdit", "EnterWorktree", "Read",
	"Glob", "Grep"}

func claudeFiles(p programs, user bool) []file {
	servers := file{path: ".mcp.json"}
	settings := file{path: ".claude/settings.json", home: "CLAUDE_CONFIG_DIR"}
	if user {
		servers = file{path: ".claude.json", home: "CLAUDE_CONFIG_DIR"}
	} else {
		settings.changes = append(settings.changes, item("jail", "enabledMcpjsonServers"))
	}
	servers.changes = []change{set(stdio{Type: "stdio", Command: p.exe, Args: p.server()},
		"mcpServers", "jail")}
	settings.changes = append(settings.changes, item("mcp__jail", "permissions", "allow"))
	settings.changes = append(settings.changes, items(claudeTools, "permissions", "deny")...)
	settings.changes = append(settings.changes, preTool(p, "claude-code",
		"Bash|Monitor|Edit|MultiEdit|Write|NotebookEdit|EnterWorktree"))
	return []file{servers, settings}
}

func codexFiles(p programs, _ bool) []file {
	// codex exec declines every question itself, so the server must not ask.
	server := append(p.server(), "--no-ask")
	config := file{path: ".codex/config.toml", home: "CODEX_HOME", changes: []change{
		// Refuse edits by apply_patch, and allow questions of MCP servers.
		{At: []string{"", "approval_policy"}, Value: "{ granular = { sandbox_approval = false, " +
			"rules = false, skill_approval = false, request_permissions = false, " +
			"mcp_elicitations = true } }"},
		{At: []string{"", "sandbox_mode"}, Value: `"read-only"`},
		{At: []string{"features", "shell_tool"}, Value: "false"},
		// A new table gets its keys in reverse order.
		{At: []string{"mcp_servers.jail", "tool_timeout_sec"}, Value: "3600"},
		{At: []string{"mcp_servers.jail", "startup_timeout_sec"}, Value: "60"},
		{At: []string{"mcp_servers.jail", "required"}, Value: "true"},
		{At: []string{"mcp_servers.jail", "default_tools_approval_mode"}, Value: `"approve"`},
		// Codex passes only a few variables on to a server by default.
		{At: []string{"mcp_servers.jail", "env_vars"}, Value: `["JAIL_SOCKET", "JAIL_STATE"]`},
		{At: []string{"mcp_servers.jail", "args"}, Value: list(server)},
		{At: []string{"mcp_servers.jail", "command"}, Value: asJSON(p.exe)},
	}}
	hooks := file{path: ".codex/hooks.json", home: "CODEX_HOME",
		changes: []change{preTool(p, "codex", "^(Bash|apply_patch)$")}}
	return []file{config, hooks}
}

// cursorHook is an item in a list of hooks of Cursor.
type cursorHook struct {
	Command    string `json:"command"`
	Matcher    string `json:"matcher,omitempty"`
	Timeout    int    `json:"timeout"`
	FailClosed bool   `json:"failClosed"`
}

func cursorFiles(p programs, user bool) []file {
	hook := func(event, matcher string) change {
		c := item(cursorHook{p.hook("cursor"), matcher, hookSeconds, true}, "hooks", event)
		c.Hook = "cursor"
		return c
	}
	version := set(1, "version")
	version.Must = true
	all := []file{
		{path: ".cursor/mcp.json", changes: []change{
			set(stdio{Type: "stdio", Command: p.exe, Args: p.server()}, "mcpServers", "jail")}},
		{path: ".cursor/hooks.json", changes: []change{version,
			hook("preToolUse", "Shell|Write|Edit|StrReplace|Delete|EditNotebook"),
			hook("beforeShellExecution", "")}},
	}
	if !user {
		all = append(all, file{path: ".cursor/cli.json", changes: append(
			[]change{item("Mcp(jail:*)", "permissions", "allow")},
			items([]string{"Shell(*)", "Write(**)"}, "permissions", "deny")...)})
	}
	return all
}

func geminiFiles(p programs, _ bool) []file {
	return []file{{path: ".gemini/settings.json", changes: append([]change{
		set(stdio{Command: p.exe, Args: p.server(), Trust: true}, "mcpServers", "jail")},
		items([]string{"run_shell_command", "write_file", "replace", "read_file", "read_many_files",
			"list_directory", "glob", "search_file_content", "grep_search"}, "tools", "exclude")...)}}
}

func openhandsFiles(p programs, user bool) []file {
	if !user {
		return nil
	}
	return []file{{path: ".openhands/mcp.json", changes: []change{
		set(stdio{Command: p.exe, Args: p.server()}, "mcpServers", "jail")}}}
}

func clientOf(name string) (client, error) {
	var names []string
	for _, c := range clients {
		if c.name == name {
			return c, nil
		}
		names = append(names, c.name)
	}
	return client{}, fmt.Errorf("there is no client %.80q: it is one of %s", name,
		strings.Join(names, ", "))
}
