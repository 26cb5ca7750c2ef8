// Package builtin has the table of built-in agents. They run without a jail, with all rights of
// their user, so they are never loaded from files, and no agent of a user can have one of their
// names.
//
// A built-in agent passes a message to a coding agent that its user has installed, as if the user
// had typed it, and sends the answer. It is on a channel only if its user has put it there.
package builtin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
)

// An Agent is a built-in agent.
type Agent struct {
	Name  string
	About string
	// Program is the name of the program that answers, looked up in PATH.
	Program string
	// handle is the agent's default name in messages.
	handle string
	// args returns the program's arguments for one message, which is its standard input. session is
	// the conversation to continue, empty for a new one; more are arguments that the user has set.
	args func(session string, more []string) []string
	// read parses a line of the program's output into to.
	read func(line []byte, to *Answer) error
}

// An Answer is a program's answer to one message.
type Answer struct {
	Text string
	// Session is the program's id of the conversation.
	Session string
	// Tokens is the number of tokens that the model used.
	Tokens int64
	// Failure is the program's reason if there is no answer.
	Failure string
}

var all = []Agent{
	{
		Name:    "claude-code-responder",
		About:   "answers messages by Claude Code, the program claude",
		Program: "claude",
		handle:  "claude",
		args: func(session string, more []string) []string {
			args := append([]string{"--print", "--output-format", "json"}, more...)
			if session != "" {
				args = append(args, "--resume", session)
			}
			return args
		},
		read: readClaude,
	},
	{
		Name:    "codex-responder",
		About:   "answers messages by Codex, the program codex",
		Program: "codex",
		handle:  "codex",
		args: func(session string, more []string) []string {
			args := append([]string{"exec"}, more...)
			// Codex's own sandbox decides what it may do, inside and outside of a repository.
			args = append(args, "--json", "--skip-git-repo-check")
			if session != "" {
				args = append(args, "resume", session)
			}
			return append(args, "-")
		},
		read: readCodex,
	},
}

// All returns the built-in agents.
func All() []Agent { return slices.Clone(all) }

// Find returns the built-in agent with this name, and whether there is one.
func Find(name string) (Agent, bool) {
	for _, a := range all {
		if a.Name == name {
			return a, true
		}
	}
	return Agent{}, false
}

// A Place holds the settings of a built-in agent on one channel.
type Place struct {
	// Handle is the agent's name in messages on the channel. Empty means the default.
	Handle string `json:"handle,omitempty"`
	// Config is a Config as JSON, or empty.
	Config json.RawMessage `json:"config,omitempty"`
}

// A Config is the user's settings of a built-in agent.
type Config struct {
	// Program is the path of the program, instead of a lookup in PATH.
	Program string `json:"program,omitempty"`
	// Args are further arguments of the program.
	Args []string `json:"args,omitempty"`
	// Dir is the program's working directory. Empty means the home directory.
	Dir string `json:"dir,omitempty"`
	// Agents are the names of agents whose mentions and direct messages it answers, too. Each of
	// them can make the program do anything that a message can.
	Agents []string `json:"agents,omitempty"`
}

// maxConfig bounds the JSON of a Config, in bytes.
const maxConfig = 64 << 10

// ParseConfig decodes a Config, strictly.
func ParseConfig(text []byte) (c Config, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return c, nil
	}
	if len(text) > maxConfig {
		return c, fmt.Errorf("config has %d bytes, more than %d", len(text), maxConfig)
	}
	if err := agent.Strict(text, &c); err != nil {
		return c, fmt.Errorf("config is an object of program, args, dir and agents: %w", err)
	}
	for what, path := range map[string]string{"program": c.Program, "dir": c.Dir} {
		if path != "" && !filepath.IsAbs(path) {
			return c, fmt.Errorf("config: %s %q is no absolute path", what, path)
		}
	}
	for _, name := range c.Agents {
		if err := manifest.CheckName(name); err != nil {
			return c, fmt.Errorf("config: agents: %w", err)
		}
	}
	return c, nil
}

// CheckPlace returns an error if the channel or the place is not valid.
func CheckPlace(channel string, p Place) error {
	if err := manifest.CheckChannel(channel); err != nil {
		return fmt.Errorf("channel: %w", err)
	}
	if err := manifest.CheckHandle(p.Handle); err != nil {
		return fmt.Errorf("handle: %w", err)
	}
	_, err := ParseConfig(p.Config)
	return err
}

// Delivery settings of built-in agents. A message is one run of a program. It is not retried, since
// the program may have done half of its work.
const (
	storage  = 64 << 20
	idle     = 30 * time.Second
	deadline = time.Hour
)

// Manifest returns the manifest of the agent for these places, with the settings of one channel.
func (a Agent) Manifest(places map[string]Place, channel string) manifest.Manifest {
	here := places[channel]
	config := here.Config
	if len(config) == 0 {
		config = json.RawMessage("{}")
	}
	return manifest.Manifest{Name: a.Name, Runtime: manifest.Host, Native: []string{a.Program},
		Channels: slices.Sorted(maps.Keys(places)), Handle: a.HandleAt(here), Config: config,
		Capabilities: manifest.Capabilities{Network: true, AI: true, Storage: true},
		Storage:      storage,
		Wake:         manifest.Wake{Idle: idle, Deadline: deadline, Batch: 1}}
}

// HandleAt returns the agent's name in messages at a place, the default if the place sets none.
func (a Agent) HandleAt(p Place) string {
	if p.Handle != "" {
		return p.Handle
	}
	return a.handle
}

// Args returns the arguments of the agent's program for one message. session is the conversation to
// continue, empty for a new one.
func (a Agent) Args(session string, c Config) []string { return a.args(session, c.Args) }

// Read parses a line of the program's output into to. It ignores lines of no use.
func (a Agent) Read(line []byte, to *Answer) error {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return nil
	}
	return a.read(line, to)
}

// readClaude parses the JSON object that Claude Code prints.
func readClaude(line []byte, to *Answer) error {
	var said struct {
		Type      string   `json:"type"`
		Subtype   string   `json:"subtype"`
		IsError   bool     `json:"is_error"`
		Result    string   `json:"result"`
		Errors    []string `json:"errors"`
		SessionID string   `json:"session_id"`
		Usage     struct {
			Input         int64 `json:"input_tokens"`
			Output        int64 `json:"output_tokens"`
			CacheCreation int64 `json:"cache_creation_input_tokens"`
			CacheRead     int64 `json:"cache_read_input_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(line, &said); err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	if said.Type != "result" {
		return nil
	}
	to.Session = said.SessionID
	u := said.Usage
	to.Tokens = u.Input + u.Output + u.CacheCreation + u.CacheRead
	if !said.IsError {
		to.Text = said.Result
		return nil
	}
	to.Failure = said.Result
	for _, text := range said.Errors {
		to.Failure += "\n" + text
	}
	if to.Failure == "" {
		to.Failure = said.Subtype
	}
	return nil
}

// readCodex parses an event that Codex prints.
func readCodex(line []byte, to *Answer) error {
	var said struct {
		Type     string `json:"type"`
		ThreadID string `json:"thread_id"`
		Message  string `json:"message"`
		Item     struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"item"`
		Usage struct {
			Input  int64 `json:"input_tokens"`
			Output int64 `json:"output_tokens"`
		} `json:"usage"`
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(line, &said); err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	switch said.Type {
	case "thread.started":
		to.Session = said.ThreadID
	case "item.completed":
		if said.Item.Type == "agent_message" {
			// The last message is the answer.
			to.Text = said.Item.Text
		}
	case "turn.completed":
		to.Tokens, to.Failure = said.Usage.Input+said.Usage.Output, ""
	case "error":
		to.Failure = said.Message
	case "turn.failed":
		to.Failure = said.Error.Message
	}
	return nil
}
