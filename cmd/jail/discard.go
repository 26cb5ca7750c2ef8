package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor/api"
)

func (a *app) discardCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "discard ID",
		Short:   "throw the shadow of a run away",
		Long:    "Throw the shadow of a run away. The real directory stays as it is.",
		Example: "  jail discard 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    exactly("ID"),
	}
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			if err := c.Discard(cmd.Context(), args[0]); err != nil {
				return err
			}
			answer := struct {
				ID        string `json:"id"`
				Discarded bool   `json:"discarded"`
			}{args[0], true}
			return a.show(*asJSON, answer, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "discarded %s\n", printable(args[0]))
				return err
			})
		})
	}
	return cmd
}
