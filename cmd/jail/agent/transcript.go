package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/loop"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

func newSessions(env *cli.Env) *cobra.Command {
	var asJSON bool
	var remove string
	cmd := &cobra.Command{
		Use:     "sessions [flags]",
		Short:   "list the sessions of chats and workers",
		Long:    "List the sessions of \"jail agent chat\" and \"jail worker\", the newest first.",
		Example: "  jail agent sessions\n  jail agent sessions --delete 3k7w2m5q9x",
		Args:    command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withAgents(cmd.Context(), env, func(c *agentapi.Client) error {
				if remove != "" {
					return c.DeleteSession(cmd.Context(), remove)
				}
				all, err := c.Sessions(cmd.Context())
				if err != nil {
					return err
				}
				return env.Show(asJSON, all, func(w io.Writer) {
					heads := []string{"SESSION", "STARTED", "CHANGED", "EVENTS", "SIZE"}
					output.Rows(w, heads, all, func(s transcript.Summary) []string {
						return []string{s.ID, output.Age(s.Started), output.Age(s.Changed),
							strconv.FormatInt(s.Events, 10), output.Size(s.Bytes)}
					})
				})
			})
		},
	}
	cmd.Flags().StringVar(&remove, "delete", "",
		"delete the events of this `SESSION`; its shadow stays")
	command.JSON(cmd, &asJSON, "print a list of objects")
	return cmd
}

func newTranscript(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "transcript SESSION",
		Short: "print the events of a session as JSON Lines",
		Long: "Print the events of a session of \"jail agent chat\" or \"jail worker\" as JSON " +
			"Lines.",
		Example: "  jail agent transcript 3k7w2m5q9x > session.jsonl",
		Args:    command.Exactly("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			events, err := eventsOf(cmd, env, args[0])
			if err != nil {
				return err
			}
			for _, e := range events {
				if err := env.PrintLine(e); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newReplay(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "replay SESSION|FILE.jsonl",
		Short: "run a session again from its record, offline",
		Long: "Run a session again: what the model said, what tools answered and what people decided " +
			"come from its events. No model is asked, and no tool runs. The events that come about " +
			"must be those that were recorded: if they are not, the first other one is named, and the " +
			"exit code is 1.",
		Example: "  jail agent replay 3k7w2m5q9x\n  jail agent replay session.jsonl",
		Args:    command.Exactly("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			events, err := eventsOf(cmd, env, args[0])
			if err != nil {
				return err
			}
			if err := loop.Replay(cmd.Context(), events); err != nil {
				env.Complain(exit.Describe(exit.Failed(err,
					"jail agent transcript prints what is recorded of a session", "replay of %s: %v",
					args[0], err)))
				return exit.No
			}
			return env.Print(func(w io.Writer) {
				fmt.Fprintf(w, "%d events, all equal\n", len(events))
			})
		},
	}
}

// eventsOf returns the events of a stored session, or of an exported session in a file.
func eventsOf(cmd *cobra.Command, env *cli.Env, name string) (all []transcript.Event, err error) {
	if strings.HasSuffix(name, ".jsonl") {
		f, err := os.Open(name)
		if err != nil {
			return nil, exit.About(err, "transcript %s", name)
		}
		defer f.Close()
		if all, err = loop.Decode(f); err == nil && len(all) == 0 {
			err = errors.New("it has no events")
		}
		if err != nil {
			return nil, exit.Usage("jail agent transcript SESSION prints one", "transcript %s: %v", name,
				err)
		}
		return all, nil
	}
	if err := transcript.CheckID(name); err != nil {
		return nil, exit.Usage("jail agent sessions", "%v", err)
	}
	err = withAgents(cmd.Context(), env, func(c *agentapi.Client) error {
		all, err = c.SessionEvents(cmd.Context(), name)
		return err
	})
	return all, err
}
