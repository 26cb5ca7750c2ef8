package policy

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/cmd/jail/internal/policies"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

func newShow(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [flags] NAME|FILE",
		Short: "show all that a profile or policy file grants",
		Long: `Show what a profile or policy file grants, in its normal form, with all includes.
--effective shows what remains under the ceiling of this host: a run gets this, before its own
flags narrow it.`,
		Example: "  jail policy show default\n  jail policy show --effective ./my.toml",
		Args:    command.Exactly("NAME|FILE"),
	}
	effective := cmd.Flags().Bool("effective", false, "meet the ceiling of this host")
	var asJSON bool
	command.JSON(cmd, &asJSON, "print an object with the policy and its digest")
	complete.First(env, cmd, complete.Profiles)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return showPolicy(env, args[0], *effective, asJSON)
	}
	return cmd
}

func showPolicy(env *cli.Env, arg string, effective, asJSON bool) error {
	set, file, err := policies.OpenAlone(env, arg)
	if err != nil {
		return err
	}
	if effective {
		eff, err := policies.UnderCeiling(env, set,
			policy.Layer{Name: file.Kind.String(), Source: file.Source, Policy: file.Policy})
		if err != nil {
			return err
		}
		file.Policy = eff.Policy()
	}
	view := struct {
		Name     string        `json:"name,omitempty"`
		About    string        `json:"about,omitempty"`
		Source   string        `json:"source"`
		Kind     string        `json:"kind"`
		Digest   string        `json:"digest"`
		Policy   policy.Policy `json:"policy"`
		Warnings []string      `json:"warnings,omitempty"`
	}{file.Name, file.About, file.Source, file.Kind.String(), file.Policy.Digest(), file.Policy,
		nil}
	if file.Kind == syntax.Profile {
		view.Warnings = file.Policy.Warnings()
	}
	return env.Show(asJSON, view, func(w io.Writer) {
		w.Write(syntax.Render(file))
	})
}
