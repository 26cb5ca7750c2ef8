package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor/api"
)

func (a *app) workspacesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "workspaces",
		Short:   "list the shadows that are kept",
		Example: "  jail workspaces",
		Args:    exactly(),
	}
	asJSON := jsonFlag(cmd, "print a list of objects")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			all, err := c.Workspaces(cmd.Context())
			if err != nil {
				return err
			}
			return a.show(*asJSON, all, func(w io.Writer) error {
				rows := [][]string{{"ID", "STATE", "AGE", "COMMIT", "TOOL", "DIRECTORY"}}
				for _, i := range all {
					rows = append(rows, []string{i.ID, string(i.State), age(i.Prepared), i.Commit, dash(i.Tool), i.Path.String()})
				}
				return table(w, rows)
			})
		})
	}
	return cmd
}
