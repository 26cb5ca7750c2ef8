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
		Long: `Show what policy B allows and policy A does not, and the reverse; each is the name
of a profile or a file. Policies are compared by meaning: notation and order make no difference.
Each line has an example on which the two differ.

The exit code is 1 if there is a difference that --fail-on names (wider: B allows more; narrower;
any), else 0.`,
		Example: "  jail policy diff default ./my.toml\n" +
			"  jail policy diff --fail-on wider old.toml new.toml",
		Args: command.Exactly("A", "B"),
	}
	failOn := cmd.Flags().String("fail-on", "",
		"exit with 1 if B is `WIDER`: wider, narrower or any")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		if len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete.Profiles(env), cobra.ShellCompDirectiveDefault
	}
	return command.Judge(env, cmd, "print an object with a list of changes",
		func(_ *cobra.Command, args []string) (meaning.Difference, bool, error) {
			d, err := diffPolicies(env, args[0], args[1], *failOn)
			// If the comparison is not exact, B may be wider.
			bad := d.Has(*failOn) || *failOn == "any" && len(d.Changes) > 0 ||
				*failOn != "" && !d.Exact
			return d, !bad, err
		}, writeDifference)
}

func diffPolicies(env *cli.Env, one, two, failOn string) (d meaning.Difference, err error) {
	if failOn != "" && failOn != meaning.Wider && failOn != meaning.Narrower && failOn != "any" {
		return d, exit.Usage("", "--fail-on %s: want wider, narrower or any", failOn)
	}
	set, before, err := policies.OpenAlone(env, one)
	if err != nil {
		return d, err
	}
	after, err := policies.Open(set, two)
	if err != nil {
		return d, err
	}
	if before.Kind != after.Kind {
		return d, exit.Usage("", "%s is a %s and %s a %s: they cannot be compared", one, before.Kind,
			two, after.Kind)
	}
	d, err = meaning.DiffLayers(before.Layer(one, before.Source), after.Layer(two, after.Source))
	if err != nil {
		err = exit.Usage("", "%v", err)
	}
	return d, err
}

func writeDifference(w io.Writer, d meaning.Difference) {
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
			fmt.Fprintln(w, output.Printable(text))
		}
	}
	if !d.Exact {
		fmt.Fprintln(w,
			"warning: the patterns are too many to be run through together; something may have "+
				"been overlooked")
		return
	}
}
