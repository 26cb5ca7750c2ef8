package tool

import (
	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/supervisor/api"
)

func newRemove(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove [flags] BUNDLE",
		Short: "remove a pulled bundle",
		Long: `Remove a bundle that was pulled. Its version is remembered, and older ones are refused later, unless --forget is given.
Bundles that came with jail are removed with jail.`,
		Example: "  sudo jail tool remove words",
		Args:    command.Exactly("BUNDLE"),
	}
	forget := cmd.Flags().Bool("forget", false,
		"forget which version was installed, so that an older one can be")
	var asJSON bool
	command.JSON(cmd, &asJSON, "print an object")
	complete.First(env, cmd, complete.Bundles)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return env.WithDaemon(cmd.Context(), func(c *api.Client) error {
			in, err := c.RemoveTool(cmd.Context(), args[0], *forget)
			if err != nil {
				return err
			}
			return env.Show(asJSON, in,
				output.Text("removed %s %s of %s\n", in.Name, in.Version, in.Publisher))
		})
	}
	return cmd
}
