package hosted

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/agents/builtin"
)

const (
	// maxLine bounds a line of a program's output, in bytes.
	maxLine = 16 << 20
	// maxText bounds the text of an answer, in bytes: it must fit into one event.
	maxText = agent.MaxEvent / 2
	// owner is the source of events that the user of an agent sends.
	owner = "user"
	// newConversation is the message with which a user starts a new conversation.
	newConversation = "/new"
)

// A responder is the guest of a built-in agent on one channel.
type responder struct {
	builtin.Agent
	bindings bindings
	// config is a builtin.Config.
	config json.RawMessage
	// dir is a directory for this agent only.
	dir string
}

// OnWake creates the table of the conversation.
func (r *responder) OnWake(string) error {
	return r.bindings.run(`CREATE TABLE IF NOT EXISTS conversation_now (
		one INTEGER PRIMARY KEY CHECK (one = 1), session TEXT NOT NULL)`)
}

// OnSleep does nothing.
func (r *responder) OnSleep() error { return nil }

// OnEvent answers a message from the user, or from agents that the user has named. It ignores all
// others, since the program has the rights of the user.
func (r *responder) OnEvent(ctx context.Context, e agent.Event) error {
	c, err := builtin.ParseConfig(r.config)
	if err != nil {
		return err
	}
	text := textOf(e.Data)
	if !answers(c, e) || text == "" {
		return nil
	}
	if text == newConversation {
		if err := r.bindings.run(`DELETE FROM conversation_now`); err != nil {
			return err
		}
		return r.send(e, "A new conversation begins with your next message.")
	}
	var now struct {
		Session string `json:"session"`
	}
	if err := r.bindings.call(agent.Storage, "get", map[string]any{
		"sql": `SELECT session FROM conversation_now`, "params": []any{}}, &now); err != nil {
		return err
	}
	if err := r.once(e.Seq); err != nil {
		return err
	}
	said, err := r.ask(ctx, c, now.Session, text)
	if err != nil {
		return err
	}
	if err := r.remember(e, text, said); err != nil {
		return err
	}
	return r.send(e, said.Text)
}

// once records that the program is started for an event, and returns an error if it was started
// before. It uses a file, since a rollback of the event would undo a record in the database.
func (r *responder) once(seq uint64) error {
	path := filepath.Join(r.dir, "started")
	number := strconv.FormatUint(seq, 10)
	before, err := os.ReadFile(path)
	switch {
	case err == nil && string(before) == number:
		return fmt.Errorf("%s was started for this message before and did not end: it may have done "+
			"some of its work, so it is not started again by itself", r.Program)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return atomicfile.Write(path, []byte(number), 0o600, atomicfile.Durable)
}

// answers reports whether an event is a message that the agent answers.
func answers(c builtin.Config, e agent.Event) bool {
	if e.Kind != agent.KindNew && e.Kind != agent.KindReplay {
		return false
	}
	mine := e.Type == agent.TypeMention || e.Type == agent.TypeDirect
	if e.Source == owner {
		return mine || e.Type == agent.TypeMessage
	}
	name := e.Source[strings.LastIndexByte(e.Source, ':')+1:]
	return mine && slices.Contains(c.Agents, name)
}

// textOf returns the text of a message: data if it is a JSON string, or its member text, else "".
func textOf(data []byte) string {
	var text string
	if json.Unmarshal(data, &text) == nil {
		return strings.TrimSpace(text)
	}
	var with struct {
		Text string `json:"text"`
	}
	// Other JSON has no text.
	_ = json.Unmarshal(data, &with)
	return strings.TrimSpace(with.Text)
}

// ask runs the program with the message as its standard input and returns its answer.
func (r *responder) ask(ctx context.Context, c builtin.Config, session,
	text string) (said builtin.Answer, err error) {
	program, err := Look(r.Agent, c)
	if err != nil {
		return said, err
	}
	cmd := exec.CommandContext(ctx, program, r.Args(session, c)...)
	if cmd.Dir = c.Dir; cmd.Dir == "" {
		if cmd.Dir, err = os.UserHomeDir(); err != nil {
			return said, err
		}
	}
	words := &agents.Tail{Most: maxSaid}
	cmd.Stdin, cmd.Stderr = strings.NewReader(text), words
	// A process that the program leaves behind may keep its output open.
	cmd.WaitDelay = 5 * time.Second
	out, in := io.Pipe()
	cmd.Stdout = in
	read := make(chan error, 1)
	go func() { read <- r.read(out, &said) }()
	err = cmd.Run()
	in.Close()
	wrong := <-read
	switch {
	case ctx.Err() != nil:
		return said, fmt.Errorf("%s had not ended in time, and was killed", program)
	case said.Failure != "":
		return said, fmt.Errorf("%s: %s", program, said.Failure)
	case err != nil:
		return said, fmt.Errorf("%s: %w: %s", program, err, words)
	case wrong != nil:
		return said, fmt.Errorf("the output of %s: %w", program, wrong)
	case said.Text == "":
		return said, fmt.Errorf("%s ended without an answer: %s", program, words)
	}
	return said, nil
}

// read parses the program's output into said. It reads the output to its end even after an error.
func (r *responder) read(out io.Reader, said *builtin.Answer) (wrong error) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if err := r.Read(lines.Bytes(), said); err != nil && wrong == nil {
			wrong = err
		}
	}
	_, err := io.Copy(io.Discard, out)
	return errors.Join(wrong, lines.Err(), err)
}

// Look returns the path of the program of a built-in agent, or an error if it is not found.
func Look(of builtin.Agent, c builtin.Config) (program string, err error) {
	if c.Program != "" {
		if program, err = exec.LookPath(c.Program); err != nil {
			err = fmt.Errorf("the program of agent %s: %w", of.Name, err)
		}
		return program, err
	}
	if program, err = exec.LookPath(of.Program); err != nil {
		err = fmt.Errorf("agent %s needs the program %s, which is not on the PATH of jail-agentd, %q: "+
			"install it, or give its path as program in the config of the agent", of.Name, of.Program,
			os.Getenv("PATH"))
	}
	return program, err
}

// remember stores a message and its answer in the tables of the agent's memory.
func (r *responder) remember(e agent.Event, text string, said builtin.Answer) error {
	id := said.Session
	if id == "" {
		// Without a session id, each message is a new conversation.
		id = e.ID
	}
	now := time.Now().Unix()
	err := errors.Join(
		r.bindings.run(`INSERT INTO conversations (id, started_at, summary, tokens_used)
			VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE
			SET tokens_used = tokens_used + excluded.tokens_used`, id, now, runners.Cut(text, 200),
			said.Tokens),
		r.bindings.run(`INSERT OR REPLACE INTO messages VALUES (?, ?, 'user', ?, ?)`, e.ID, id, text,
			e.Time.Unix()),
		r.bindings.run(`INSERT OR REPLACE INTO messages VALUES (?, ?, 'assistant', ?, ?)`,
			e.ID+"/answer", id, said.Text, now))
	if err == nil && said.Session != "" {
		err = r.bindings.run(`INSERT INTO conversation_now VALUES (1, ?) ON CONFLICT DO UPDATE
			SET session = excluded.session`, said.Session)
	}
	return err
}

// send sends an answer: on the channel, or to the agent that sent the message.
func (r *responder) send(e agent.Event, text string) error {
	options := map[string]any{"reply_to": e.ID}
	if e.Source != owner {
		options["to"] = e.Source
	}
	return r.bindings.call(agent.PubSub, "send", map[string]any{
		"content": runners.Cut(text, maxText), "options": options}, nil)
}
