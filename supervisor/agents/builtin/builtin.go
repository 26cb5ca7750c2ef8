// Package builtin has the agents that are a part of jail. They run outside of any jail, with all
// rights of their user, so none is found by looking at files: this table is all there are, and no
// agent of a user can have one of their names.
//
// A built-in agent passes a message on to a coding agent that its user has installed, as if the user
// had typed it, and sends the answer. It is on a channel only when its user has put it there.
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

// An Agent is one that is a part of jail.
type Agent struct {
	Name  string
	About string
	// Program is the name of the program that answers, which the PATH has.
	Program string
	// handle is its name in messages, unless its user gives it another.
	handle string
	// args are those of the program for one message, which is its standard input. session is the
	// conversation to go on with, empty for a new one; more are those of its user.
	args func(session string, more []string) []string
	// read takes a line of the program's output.
	read func(line []byte, to *Answer) error
}

// An Answer is what a program says to one message.
type Answer struct {
	Text string
	// Session names the conversation.
	Session string
	// Tokens are those that the model used.
	Tokens int64
	// Failure is why there is no answer, in the program's words.
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
			// What Codex may do is decided by its sandbox, in a repository and outside of one.
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

// Find returns the built-in agent of a name.
func Find(name string) (Agent, bool) {
	for _, a := range all {
		if a.Name == name {
			return a, true
		}
	}
	return Agent{}, false
}

// A Place is a channel that a built-in agent was put on by its user.
type Place struct {
	// Handle is its name in messages on the channel; empty: its usual one.
	Handle string `json:"handle,omitempty"`
	// Config is a Config; empty: nothing is set.
	Config json.RawMessage `json:"config,omitempty"`
}

// A Config is what the user of a built-in agent sets.
type Config struct {
	// Program is the path of the program, in place of what the PATH has.
	Program string `json:"program,omitempty"`
	// Args are further arguments of the program.
	Args []string `json:"args,omitempty"`
	// Dir is where the program works; empty: the home directory.
	Dir string `json:"dir,omitempty"`
	// Agents are the names of agents whose messages it answers, too, if they are for it: each of
	// them can have done whatever the program does for a message.
	Agents []string `json:"agents,omitempty"`
}

// maxConfig bounds the JSON of a Config, in bytes.
const maxConfig = 64 << 10

// ParseConfig reads a Config, strictly.
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

// CheckPlace returns what is wrong with a place on a channel.
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

// How a built-in agent is delivered to. One message is one run of a program, which is not to be
// repeated by itself: it may have done half of its work.
const (
	storage  = 64 << 20
	idle     = 30 * time.Second
	deadline = time.Hour
)

// Manifest returns what the agent is, on the channels that its user has put it on, as seen from one
// of them.
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

// HandleAt returns the agent's name in messages at a place.
func (a Agent) HandleAt(p Place) string {
	if p.Handle != "" {
		return p.Handle
	}
	return a.handle
}

// Args are the arguments of the agent's program for one message.
func (a Agent) Args(session string, c Config) []string { return a.args(session, c.Args) }

// Read takes a line of the program's output. What is of no use for the answer is left out.
func (a Agent) Read(line []byte, to *Answer) error {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return nil
	}
	return a.read(line, to)
}

// readClaude reads the one object that Claude Code prints.
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

// readCodex reads the events that Codex prints.
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
			// The last one is the answer.
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
