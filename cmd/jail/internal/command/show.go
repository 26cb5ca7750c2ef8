package command

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// Show makes cmd ask a daemon, and print the answer: by write, or with --json as JSON. prints says
// what --json prints.
func Show[T any](env *cli.Env, cmd *cobra.Command, prints string,
	ask func(ctx context.Context, c *api.Client, args []string) (T, error),
	write func(w io.Writer, answer T) error) *cobra.Command {
	var asJSON bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return env.WithDaemon(cmd.Context(), func(c *api.Client) error {
			answer, err := ask(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			return env.Show(asJSON, answer, func(w io.Writer) error { return write(w, answer) })
		})
	}
	JSON(cmd, &asJSON, prints)
	return cmd
}
