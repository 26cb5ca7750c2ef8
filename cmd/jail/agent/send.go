package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const sendAbout = `Put an event into the inbox of an agent, and print the event's id. The event is on the disk when the command returns, and the agent gets it at least once.

The event's data is TEXT, or with --data any JSON value; "-" reads it from standard input. With --wait the command waits until the agent has handled the event, and
prints what the agent published meanwhile. The exit code is 1 if it has not handled the event.`

type sendOptions struct {
	channel, kind, id string
	data, wait, json  bool
	timeout           time.Duration
}

func newSend(env *cli.Env) *cobra.Command {
	var o sendOptions
	cmd := &cobra.Command{
		Use:   "send [flags] NAME TEXT",
		Short: "give an agent an event",
		Long:  sendAbout,
		Example: "  jail agent send --wait triage 'what is new?'\n" +
			"  echo '{\"issue\": 7}' | jail agent send --data --type opened triage -",
		Args: named("NAME", "TEXT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			content, err := content(env, cmd, args[1], o.data)
			if err != nil {
				return err
			}
			if o.timeout < 0 || o.timeout > agentapi.MaxWait {
				return exit.Usage("", "--timeout %v: want 0s to %v", o.timeout, agentapi.MaxWait)
			}
			s := agentapi.Send{Content: content, Channel: o.channel, Type: o.kind, ID: o.id}
			if o.wait {
				s.WaitMS = o.timeout.Milliseconds()
			}
			return withAgents(cmd.Context(), env, func(c *agentapi.Client) error {
				sent, err := c.Send(cmd.Context(), args[0], s)
				if err != nil {
					return err
				}
				return showSent(env, args[0], sent, o.wait, o.json)
			})
		},
	}
	set := cmd.Flags()
	set.SortFlags = false
	set.BoolVar(&o.wait, "wait", false, "wait until the event is handled, and print the answers")
	set.DurationVar(&o.timeout, "timeout", 2*time.Minute, "with --wait, wait at most so `LONG`")
	set.BoolVar(&o.data, "data", false, "TEXT is a JSON value")
	channelFlag(cmd, &o.channel)
	set.StringVar(&o.kind, "type", "", "the event's `TYPE` (default message)")
	set.StringVar(&o.id, "id", "",
		"the event's `ID`: an event that is sent twice with one ID is delivered once")
	command.JSON(cmd, &o.json, "print an object: the event, and what was published")
	return cmd
}

// content returns the data of an event as JSON, from text or standard input.
func content(env *cli.Env, cmd *cobra.Command, text string, isJSON bool) (json.RawMessage, error) {
	if text == "-" {
		in, err := io.ReadAll(io.LimitReader(env.Stdin, agent.MaxEvent+1))
		if err != nil {
			return nil, exit.About(err, "standard input")
		}
		text = strings.TrimSuffix(string(in), "\n")
	}
	if len(text) > agent.MaxEvent {
		return nil, exit.Usage("put it where the agent can fetch it, and send its name",
			"%s: the event is larger than %d KiB", cmd.CommandPath(), agent.MaxEvent>>10)
	}
	if isJSON {
		if !json.Valid([]byte(text)) {
			return nil, exit.Usage("leave --data out for a text", "%s: %.80q is no JSON",
				cmd.CommandPath(), text)
		}
		return json.RawMessage(text), nil
	}
	if !utf8.ValidString(text) {
		return nil, exit.Usage("encode it, as in base64", "%s: the text is not UTF-8",
			cmd.CommandPath())
	}
	return json.Marshal(text)
}

// showSent prints the state of a sent event.
func showSent(env *cli.Env, name string, sent agentapi.Sent, waited, asJSON bool) error {
	err := env.Show(asJSON, sent, func(w io.Writer) {
		if !waited {
			writeID(w, sent)
			return
		}
		for _, p := range sent.Published {
			writeData(w, p.Data)
		}
	})
	if err != nil || !waited || sent.State == agentapi.Committed {
		return err
	}
	why := "it is still in the inbox"
	if sent.Error != "" {
		// The error may already name the event.
		why = strings.TrimPrefix(sent.Error, fmt.Sprintf("event %d: ", sent.Seq))
	}
	e := &problem.Error{Code: problem.Failed, Message: fmt.Sprintf("event %d of agent %q is not "+
		"handled yet: %s", sent.Seq, name, why), Hint: "jail agent status " + name}
	if sent.State == agentapi.Dead {
		e.Message = fmt.Sprintf("agent %q could not handle event %d: %s", name, sent.Seq, why)
		e.Hint = fmt.Sprintf("jail agent retry %s %d delivers it again", name, sent.Seq)
	}
	env.Complain(e)
	// The agent failed, not jail.
	return exit.No
}

// writeData writes the data of a message: a string as text, else JSON, without control characters.
func writeData(w io.Writer, data json.RawMessage) {
	var text string
	if json.Unmarshal(data, &text) != nil {
		// Of an object with a member text, show only the text.
		var with struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(data, &with); with.Text != "" {
			text = with.Text
		} else {
			// The data was a part of a JSON response, so it is valid.
			var b bytes.Buffer
			_ = json.Compact(&b, data)
			text = b.String()
		}
	}
	fmt.Fprintln(w, strings.TrimSuffix(output.PrintableText(text), "\n"))
}

func newTick(env *cli.Env) *cobra.Command {
	var channel string
	cmd := &cobra.Command{
		Use:     "tick [flags] NAME",
		Short:   "wake an agent as its heartbeat does",
		Long:    "Put a tick into the inbox of an agent, and print the event's id.",
		Example: "  jail agent tick triage",
		Args:    named("NAME"),
	}
	channelFlag(cmd, &channel)
	return ask(env, cmd, "print the event as an object",
		func(ctx context.Context, c *agentapi.Client, args []string) (agentapi.Sent, error) {
			return c.Tick(ctx, args[0], channel)
		}, writeID)
}

func writeID(w io.Writer, sent agentapi.Sent) {
	fmt.Fprintln(w, output.Printable(sent.ID))
}
