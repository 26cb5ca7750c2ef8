package policy

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/policies"
	"github.com/jail-sandbox/jail/policy/meaning"
)

func newDiff(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff [flags] A B",
		Short: "say what a policy can reach that another cannot",
		Long: `Show what policy B allows and policy A does not, and the reverse; each is the name of a profile or a file. Policies are compared by meaning: notation
and order make no difference. Each line has an example on which the two differ.

The exit code is 1 if there is a difference that --fail-on names (wider: B allows more; narrower; any), else 0.`,
		Example: "  jail policy diff default ./my.toml\n" +
			"  jail policy diff --fail-on wider old.toml new.toml",
		Args: command.Exactly("A", "B"),
	}
	failOn := cmd.Flags().String("fail-on", "",
		"exit with 1 if B is `WIDER`: wider, narrower or any")
	var asJSON bool
	command.JSON(cmd, &asJSON, "print an object with a list of changes")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		if len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete.Profiles(env), cobra.ShellCompDirectiveDefault
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return diffPolicies(env, args[0], args[1], *failOn, asJSON)
	}
	return cmd
}

func diffPolicies(env *cli.Env, one, two, failOn string, asJSON bool) error {
	if failOn != "" && failOn != meaning.Wider && failOn != meaning.Narrower && failOn != "any" {
		return exit.Usage("", "--fail-on %s: want wider, narrower or any", failOn)
	}
	set, err := policies.Load(env)
	if err != nil {
		return err
	}
	before, err := policies.Open(set, one)
	if err != nil {
		return err
	}
	after, err := policies.Open(set, two)
	if err != nil {
		return err
	}
	if before.Kind != after.Kind {
		return exit.Usage("", "%s is a %s and %s a %s: they cannot be compared", one, before.Kind,
			two, after.Kind)
	}
	d, err := meaning.DiffLayers(before.Layer(one, before.Source), after.Layer(two, after.Source))
	if err != nil {
		return exit.Usage("", "%v", err)
	}
	if err := env.Show(asJSON, d, func(w io.Writer) error {
		return writeDifference(w, d)
	}); err != nil {
		return err
	}
	// What could not be told apart exactly may be wider.
	if d.Has(failOn) || failOn == "any" && len(d.Changes) > 0 || failOn != "" && !d.Exact {
		return exit.No
	}
	return nil
}

func writeDifference(w io.Writer, d meaning.Difference) error {
	for _, way := range []struct{ way, mark, lead string }{{meaning.Wider, "+", "can newly"},
		{meaning.Narrower, "-", "can no longer"}} {
		for _, c := range d.Changes {
			if c.Way != way.way {
				continue
			}
			text := way.mark + " " + way.lead + " " + c.What
			if c.Part == "limit" {
				text = way.mark + " may " + c.What
			}
			if c.Tool != "" {
				text += ", as " + c.Tool
			}
			if c.Example != "" {
				text += ": " + c.Example
			}
			if c.Rule != "" {
				text += " (" + c.Rule + ")"
			}
			if _, err := fmt.Fprintln(w, output.Printable(text)); err != nil {
				return err
			}
		}
	}
	if !d.Exact {
		_, err := fmt.Fprintln(w,
			"warning: the patterns are too many to be run through together; something may have "+
				"been overlooked")
		return err
	}
	return nil
}
