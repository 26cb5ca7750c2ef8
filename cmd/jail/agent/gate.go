package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

const aboutGate = `A gatekeeper stands between agents and a resource of yours: a SQLite file, or an HTTP API with an OpenAPI document. What reads is answered at once. What writes waits for "jail approvals approve", and can be undone by "jail approvals revert".
The file gatekeepers.toml names the gatekeepers and the agents that may use them. These commands use them as you.`

// NewGate returns the command jail gate.
func NewGate(env *cli.Env) *cobra.Command {
	cmd := command.Group("gate", "read a resource of yours, and propose changes of it",
		newGateList(env), newGateShow(env), newGateRead(env), newGatePropose(env))
	cmd.Long = aboutGate
	for _, sub := range cmd.Commands() {
		if sub.Name() != "list" {
			sub.ValidArgsFunction = gateNames(env)
		}
	}
	return cmd
}

// gateNames returns a completion function for names of gatekeepers.
func gateNames(env *cli.Env) cobra.CompletionFunc {
	return completed(env, cobra.ShellCompDirectiveNoFileComp, (*agentapi.Client).Gatekeepers,
		func(d agentapi.Gatekeeper) string { return d.Name + "\t" + d.Kind })
}

func newGateList(env *cli.Env) *cobra.Command {
	return ask(env, &cobra.Command{
		Use:     "list",
		Short:   "list your gatekeepers",
		Long:    "List the gatekeepers of gatekeepers.toml.",
		Example: "  jail gate list --json",
		Args:    command.Exactly(),
	}, "print a list of objects",
		func(ctx context.Context, c *agentapi.Client, _ []string) ([]agentapi.Gatekeeper, error) {
			return c.Gatekeepers(ctx)
		}, writeGates)
}

func writeGates(w io.Writer, all []agentapi.Gatekeeper) {
	heads := []string{"NAME", "KIND", "RESOURCE", "ABOUT"}
	output.Rows(w, heads, all, func(d agentapi.Gatekeeper) []string {
		about := d.About
		if d.Problem != "" {
			about = "problem: " + d.Problem
		}
		return []string{d.Name, d.Kind, output.Printable(d.Resource), output.Printable(about)}
	})
}

func newGateShow(env *cli.Env) *cobra.Command {
	return ask(env, &cobra.Command{
		Use:     "show NAME",
		Short:   "show what a gatekeeper reads and does",
		Long:    "Show what a gatekeeper reads and does, with the arguments, and the tables of a SQLite file.",
		Example: "  jail gate show crm",
		Args:    named("NAME"),
	}, "print one object",
		func(ctx context.Context, c *agentapi.Client, args []string) (agentapi.Gatekeeper, error) {
			return c.Gatekeeper(ctx, args[0])
		}, writeGate)
}

func writeGate(w io.Writer, d agentapi.Gatekeeper) {
	fmt.Fprintf(w, "%s: %s %s\n", d.Name, d.Kind, output.Printable(d.Resource))
	if d.Problem != "" {
		fmt.Fprintf(w, "problem: %s\n", output.Printable(d.Problem))
		return
	}
	rows := [][]string{{"DOES", "WHEN", "UNDONE", "ARGUMENTS"}}
	for _, m := range d.Reads {
		rows = append(rows, []string{m.Name, "at once", "-", output.Printable(string(m.Args))})
	}
	for _, m := range d.Actions {
		undone := "no"
		if m.Reversible {
			undone = "yes"
		}
		rows = append(rows, []string{m.Name, "approved", undone, output.Printable(string(m.Args))})
	}
	output.Table(w, rows)
	if len(d.Tables) == 0 {
		return
	}
	rows = [][]string{{"TABLE", "COLUMN", "TYPE", "KEY"}}
	for _, t := range d.Tables {
		for _, c := range t.Columns {
			key := ""
			if c.Key {
				key = "key"
			}
			rows = append(rows, []string{output.Printable(t.Name), output.Printable(c.Name),
				output.Printable(c.Type), key})
		}
	}
	fmt.Fprintln(w)
	output.Table(w, rows)
}

// gateOf returns the request for a read or action from the arguments NAME METHOD [JSON].
func gateOf(args []string) (agentapi.Gate, error) {
	g := agentapi.Gate{Method: args[1]}
	if len(args) > 2 {
		if !json.Valid([]byte(args[2])) {
			return g, exit.Usage("jail gate show "+args[0], "gatekeeper %s: the arguments %.80q are no JSON",
				args[0], args[2])
		}
		g.Args = json.RawMessage(args[2])
	}
	return g, nil
}

// gateArgs returns a check that the arguments are NAME, METHOD and at most one more.
func gateArgs(method string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 3 {
			return named("NAME", method, "JSON")(cmd, args)
		}
		return named("NAME", method)(cmd, args)
	}
}

func newGateRead(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "read NAME METHOD [JSON]",
		Short:   "read by a gatekeeper",
		Long:    "Read by a gatekeeper, and print the answer as JSON. \"jail gate show NAME\" has the methods and their arguments.",
		Example: `  jail gate read crm rows '{"table": "customers", "where": {"city": "Bern"}}'`,
		Args:    gateArgs("METHOD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := gateOf(args)
			if err != nil {
				return err
			}
			return withAgents(cmd.Context(), env, func(c *agentapi.Client) error {
				out, err := c.GateRead(cmd.Context(), args[0], g)
				if err != nil {
					return err
				}
				return env.PrintJSON(out)
			})
		},
	}
}

func newGatePropose(env *cli.Env) *cobra.Command {
	var words string
	cmd := ask(env, &cobra.Command{
		Use:   "propose [flags] NAME ACTION [JSON]",
		Short: "propose a change by a gatekeeper",
		Long: "Propose an action of a gatekeeper. Nothing changes before \"jail approvals approve ID\". " +
			"\"jail gate show NAME\" has the actions and their arguments.",
		Example: `  jail gate propose crm update '{"table": "customers", "key": {"id": 1}, "set": {"city": "Zug"}}'`,
		Args:    gateArgs("ACTION"),
	}, "print one object",
		func(ctx context.Context, c *agentapi.Client, args []string) (agentapi.GateProposed, error) {
			g, err := gateOf(args)
			if err != nil {
				return agentapi.GateProposed{}, err
			}
			g.Words = words
			return c.GatePropose(ctx, args[0], g)
		}, func(w io.Writer, p agentapi.GateProposed) {
			fmt.Fprintf(w, "%s %s\n  before: %s\n  after:  %s\n", p.ID, p.State,
				output.Printable(string(p.Before)), output.Printable(string(p.After)))
		})
	cmd.Flags().StringVar(&words, "words", "", "`TEXT` for those who decide")
	return cmd
}
