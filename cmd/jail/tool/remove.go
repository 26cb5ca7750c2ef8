package tool

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/bundle"
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
	complete.First(env, cmd, complete.Bundles)
	return command.Show(env, cmd, "print an object",
		func(ctx context.Context, c *api.Client, args []string) (bundle.Installed, error) {
			return c.RemoveTool(ctx, args[0], *forget)
		}, func(w io.Writer, in bundle.Installed) error {
			_, err := fmt.Fprintf(w, "removed %s %s of %s\n", in.Name, in.Version, in.Publisher)
			return err
		})
}
