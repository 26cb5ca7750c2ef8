package agent

import (
	"cmp"
	"context"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

func newProposals(env *cli.Env) *cobra.Command {
	return ask(env, &cobra.Command{
		Use:   "proposals NAME",
		Short: "list the actions that an agent proposes",
		Long: "List the actions that an agent proposes, the newest first. What they say is the agent's " +
			"own word. --json shows them whole.",
		Example: "  jail agent proposals watcher --json",
		Args:    named("NAME"),
	}, "print a list of objects",
		func(ctx context.Context, c *agentapi.Client, args []string) ([]agentapi.Proposal, error) {
			return c.Proposals(ctx, args[0])
		}, writeProposals)
}

func writeProposals(w io.Writer, all []agentapi.Proposal) error {
	rows := [][]string{{"PROPOSAL", "STATE", "AGE", "ACTION"}}
	for _, p := range all {
		rows = append(rows, []string{short(p.ID), cmp.Or(p.Decision, "waits"), output.Age(p.Time),
			shortened(string(p.Data), 100)})
	}
	return output.Table(w, rows)
}

// short is SEQ/N of the id AGENT/SEQ/N.
func short(id string) string {
	_, of, _ := strings.Cut(id, "/")
	return of
}

var proposalID = regexp.MustCompile(`^[0-9]{1,20}/[0-9]{1,10}$`)

func newDecision(env *cli.Env, name, about, decision string) *cobra.Command {
	return &cobra.Command{
		Use:   name + " NAME PROPOSAL",
		Short: about,
		Long: "Decide on an action that an agent proposes, and tell the agent, which then acts or does " +
			"not. PROPOSAL is what \"jail agent proposals\" lists. A decision is final.",
		Example: "  jail agent " + name + " watcher 12/1",
		Args:    named("NAME", "PROPOSAL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := args[1]
			if strings.HasPrefix(id, "agent:") {
				id = short(id)
			}
			if !proposalID.MatchString(id) {
				return exit.Usage("jail agent proposals "+args[0], "%s: %.80q is no proposal such as 12/1",
					cmd.CommandPath(), args[1])
			}
			return withAgents(cmd.Context(), env, func(c *agentapi.Client) error {
				return c.Decide(cmd.Context(), args[0], id, decision)
			})
		},
	}
}
