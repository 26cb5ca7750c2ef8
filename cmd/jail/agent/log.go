package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

const logAbout = `Print what an agent published, oldest first: time, channel and text. Of each instance the last 1,000 messages are kept.
With --follow the command goes on until it is interrupted.`

func newLog(env *cli.Env) *cobra.Command {
	var after int64
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use:     "log [flags] NAME",
		Short:   "show what an agent published",
		Long:    logAbout,
		Example: "  jail agent log -f triage",
		Args:    named("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			return withAgents(ctx, env, func(c *agentapi.Client) error {
				err := c.Log(ctx, args[0], after, follow, func(p agentapi.Publication) error {
					if asJSON {
						return env.PrintLine(p)
					}
					return env.Print(func(w io.Writer) { writePublication(w, p) })
				})
				// An interrupt is the normal end of --follow.
				if follow && errors.Is(err, context.Canceled) && ctx.Err() != nil {
					return nil
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what the agent publishes")
	cmd.Flags().Int64Var(&after, "after", 0, "begin behind message `N`")
	command.JSON(cmd, &asJSON, "print an object for each message, on a line of its own")
	return cmd
}

func writePublication(w io.Writer, p agentapi.Publication) {
	head := p.Time.Local().Format(time.DateTime) + "  " + output.Printable(cmp.Or(p.To, p.Channel))
	if p.Kind != agent.KindNew {
		head += " (" + output.Printable(p.Kind) + ")"
	}
	if p.Kind == agent.KindComplete && len(p.Data) == 0 {
		fmt.Fprintln(w, head)
		return
	}
	fmt.Fprint(w, head+"  ")
	writeData(w, p.Data)
}

func newEvents(env *cli.Env) *cobra.Command {
	return ask(env, &cobra.Command{
		Use:   "events NAME",
		Short: "list the events that wait, and the dead letters",
		Long: "List the events that an agent has not handled: those that wait in its inbox, and the " +
			"dead letters, which failed too often.",
		Example: "  jail agent events triage",
		Args:    named("NAME"),
	}, "print an object of two lists",
		func(ctx context.Context, c *agentapi.Client, args []string) (agentapi.Events, error) {
			return c.Events(ctx, args[0])
		}, writeEvents)
}

func writeEvents(w io.Writer, e agentapi.Events) {
	rows := [][]string{{"SEQ", "STATE", "CHANNEL", "TYPE", "FROM", "TRIES", "AGE", "DATA"}}
	add := func(state string, all []agentapi.Event) {
		for _, e := range all {
			rows = append(rows, []string{strconv.FormatUint(e.Seq, 10), state, e.Channel, e.Type,
				e.Source, strconv.Itoa(e.Attempt), output.Age(e.Time),
				shortened(cmp.Or(e.Reason, string(e.Data)), 60)})
		}
	}
	add("waiting", e.Waiting)
	add("dead", e.Dead)
	output.Table(w, rows)
}

func newRetry(env *cli.Env) *cobra.Command {
	var channel string
	var seq uint64
	cmd := &cobra.Command{
		Use:     "retry [flags] NAME SEQ",
		Short:   "deliver a dead letter again",
		Long:    "Put a dead letter into the inbox again, and print its new number.",
		Example: "  jail agent retry triage 17",
		Args:    named("NAME", "SEQ"),
		PreRunE: func(cmd *cobra.Command, args []string) (err error) {
			if seq, err = strconv.ParseUint(args[1], 10, 64); err != nil {
				return exit.Usage("jail agent events "+args[0], "%s: %.80q is no number of an event",
					cmd.CommandPath(), args[1])
			}
			return nil
		},
	}
	channelFlag(cmd, &channel)
	return ask(env, cmd, "print an object",
		func(ctx context.Context, c *agentapi.Client, args []string) (agentapi.Retry, error) {
			return c.Retry(ctx, args[0], channel, seq)
		}, func(w io.Writer, r agentapi.Retry) {
			fmt.Fprintln(w, r.Seq)
		})
}
