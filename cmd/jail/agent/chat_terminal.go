package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/supervisor/codetools"
	"github.com/jail-sandbox/jail/supervisor/loop"
	"github.com/jail-sandbox/jail/supervisor/shadows"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// A chat is a person who talks to a session of the loop.
type chat struct {
	env     *cli.Env
	session *loop.Session
	jail    *toolsession.Session
	role    namedRole
	id, say string
	profile string
	json    bool
	typed   *typed
	// inText says that a line of the model's text is not ended yet.
	inText bool
	used   transcript.Usage
	events int64
}

const chatHelp = `/status       the session, its model, its tokens, and what is allowed
/diff [PATH]  what changed in the shadow
/commit       take the changes into the real directory, after a question
/revoke TOOL  ask about a tool again; without a name about all
/quit         end; --resume goes on
`

// tell says something that is not the model's.
func (t *chat) tell(format string, args ...any) {
	t.endText()
	fmt.Fprintln(t.env.Stderr, "jail: "+output.PrintableText(fmt.Sprintf(format, args...)))
}

// show prints a part of the conversation.
func (t *chat) show(text string) {
	if !t.json {
		fmt.Fprint(t.env.Stdout, output.PrintableText(text))
	}
}

func (t *chat) endText() {
	if t.inText {
		t.show("\n")
	}
	t.inText = false
}

// delta shows a part of a reply as it comes.
func (t *chat) delta(text string) {
	t.show(text)
	t.inText = !strings.HasSuffix(text, "\n")
}

func (t *chat) again(why string, pause time.Duration) {
	t.tell("%s; asking again in %v", why, pause)
}

// maxInput is how much of a call's input a person sees, in bytes.
const maxInput = 400

// inputOf is the input of a call on one line.
func inputOf(input json.RawMessage) string {
	var fields map[string]any
	if json.Unmarshal(input, &fields) == nil && len(fields) == 1 {
		for _, v := range fields {
			if s, ok := v.(string); ok {
				return clip(s)
			}
		}
	}
	var b bytes.Buffer
	if json.Compact(&b, input) != nil {
		return ""
	}
	return clip(b.String())
}

func clip(s string) string {
	if len(s) > maxInput {
		s = strings.ToValidUTF8(s[:maxInput], "") + " [...]"
	}
	return output.Printable(s)
}

// watch shows an event that was kept.
func (t *chat) watch(e transcript.Event) {
	t.events = e.Seq
	if t.json {
		// What cannot be printed is kept nonetheless.
		_ = t.env.PrintLine(e)
	}
	colour := t.env.Colour()
	switch e.Type {
	case transcript.AssistantMessage:
		t.endText()
		t.used.Input += e.Usage.Input
		t.used.Output += e.Usage.Output
	case transcript.ToolUse:
		t.show(terminal.Paint(colour, terminal.Cyan, "> "+output.Printable(e.Tool)) + " " +
			inputOf(e.Input) + "\n")
	case transcript.ToolResult:
		lines := strings.Count(strings.TrimSuffix(e.Text, "\n"), "\n") + 1
		first, _, _ := strings.Cut(strings.TrimSpace(e.Text), "\n")
		switch {
		case e.IsError:
			t.show(terminal.Paint(colour, terminal.Red, "  failed: ") + clip(first) + "\n")
		case first == "":
			t.show("  nothing\n")
		case lines == 1:
			t.show("  " + clip(first) + "\n")
		default:
			t.show(fmt.Sprintf("  %s [%d lines]\n", clip(first), lines))
		}
	}
}

// question asks whether a tool may be called.
func (t *chat) question(ctx context.Context, q loop.Question) (loop.Answer, error) {
	t.endText()
	for {
		fmt.Fprintf(t.env.Stderr, "Allow %s? [y]es for this session, [o]nce, [n]o: ",
			output.Printable(q.Tool))
		line, ok := t.line(ctx)
		if !ok {
			return loop.Answer{}, errors.New("no answer")
		}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return loop.Answer{Allow: true, Session: true}, nil
		case "o", "once":
			return loop.Answer{Allow: true}, nil
		case "n", "no":
			return loop.Answer{}, nil
		}
	}
}

// line is the next line that somebody types.
func (t *chat) line(ctx context.Context) (string, bool) {
	select {
	case line, ok := <-t.typed.lines:
		return line, ok
	case <-ctx.Done():
		return "", false
	}
}

// turn lets the model work. Ctrl-C interrupts it.
func (t *chat) turn(ctx context.Context,
	do func(context.Context) (transcript.Event, error)) (transcript.Event, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	end, err := do(ctx)
	t.endText()
	return end, err
}

// failed tells how a turn ended that did not end well.
func (t *chat) failed(end transcript.Event) {
	switch end.Status {
	case transcript.Interrupted:
		t.tell("interrupted")
	case transcript.Failed:
		t.tell("%s: %s", end.Code, end.Text)
	}
}

// talk takes messages and commands until there are no more.
func (t *chat) talk(ctx context.Context) error {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	for {
		if t.isTerminal() {
			t.show("\n> ")
		}
		var line string
		var ok bool
		select {
		case line, ok = <-t.typed.lines:
		case <-interrupts:
			t.tell("/quit ends")
			continue
		}
		line = strings.TrimSpace(line)
		switch {
		case !ok:
			t.show("\n")
			return t.typed.err
		case line == "":
		case strings.HasPrefix(line, "/"):
			quit, err := t.command(ctx, line)
			if quit {
				return err
			}
			if err != nil {
				t.env.Complain(exit.Describe(err))
			}
		default:
			end, err := t.turn(ctx, func(ctx context.Context) (transcript.Event, error) {
				return t.session.Say(ctx, line)
			})
			// What interrupted the turn is not for the next one.
			select {
			case <-interrupts:
			default:
			}
			if err != nil {
				return err
			}
			t.failed(end)
		}
	}
}

// command carries out a command of the person's.
func (t *chat) command(ctx context.Context, line string) (quit bool, err error) {
	word, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "/quit", "/exit":
		return true, nil
	case "/help":
		fmt.Fprint(t.env.Stderr, chatHelp)
	case "/status":
		allowed := strings.Join(slices.Sorted(maps.Keys(t.session.Granted())), ", ")
		t.tell("session %s, %d events; %s (%s); %d tokens in, %d out\ndirectory %s, session of jail "+
			"%s\nallowed: %s", t.id, t.events, t.role.name, t.role.Model, t.used.Input,
			t.used.Output, t.jail.Root(), t.jail.Name(), allowed)
	case "/diff":
		_, err = t.diff(ctx, strings.Fields(rest), false)
	case "/commit":
		err = t.commit(ctx)
	case "/revoke":
		err = t.session.Revoke(ctx, rest)
	default:
		err = exit.Usage("/help lists the commands", "%.80q is no command", word)
	}
	return false, err
}

func (t *chat) diff(ctx context.Context, paths []string, stat bool) (codetools.DiffOutput, error) {
	d, err := t.changes(ctx, codetools.DiffInput{Paths: paths, Stat: stat})
	if err != nil {
		return d, err
	}
	fmt.Fprint(t.env.Stderr, output.PrintableText(d.Text))
	if d.Truncated {
		t.tell("there is more: jail diff %s", t.jail.Name())
	}
	t.tell("+%d ~%d -%d", d.Added, d.Modified, d.Deleted)
	return d, t.session.Note(ctx, transcript.Event{Type: transcript.WorkspaceDiff, Text: d.Text,
		Workspace: &transcript.Workspace{Added: d.Added, Modified: d.Modified, Deleted: d.Deleted,
			Digest: d.Digest}})
}

// commit takes what changed into the real directory, if it is still what the person was shown.
func (t *chat) commit(ctx context.Context) error {
	d, err := t.diff(ctx, nil, true)
	if err != nil {
		return err
	}
	if d.Added+d.Modified+d.Deleted == 0 {
		t.tell("nothing changed")
		return nil
	}
	fmt.Fprintf(t.env.Stderr, "Take these changes into %s? [y/N] ", output.Printable(t.jail.Root()))
	line, _ := t.line(ctx)
	if line = strings.ToLower(strings.TrimSpace(line)); line != "y" && line != "yes" {
		t.tell("nothing was committed")
		return nil
	}
	done, err := t.jail.Client().Commit(ctx, t.jail.ID(), shadows.CommitRequest{Digest: d.Digest})
	state := "committed"
	if err != nil {
		state = "failed"
	}
	noteErr := t.session.Note(ctx, transcript.Event{Type: transcript.WorkspaceCommit,
		Workspace: &transcript.Workspace{Added: d.Added, Modified: d.Modified, Deleted: d.Deleted,
			Digest: d.Digest, State: state}})
	if err = errors.Join(err, noteErr); err != nil {
		return err
	}
	t.tell("committed; jail revert %s takes it back", t.jail.Name())
	for _, h := range done.Held {
		t.tell("held back: %s: %s", h.Path, h.Why)
	}
	return nil
}
