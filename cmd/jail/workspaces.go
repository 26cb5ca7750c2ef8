package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// workspaceState marks a shadow whose run was cut off.
func workspaceState(i supervisor.WorkspaceInfo) string {
	if i.Unfinished {
		return string(i.State) + ", cut off"
	}
	return string(i.State)
}

// revertible says until when the last commit of a shadow can be undone.
func revertible(i supervisor.WorkspaceInfo) string {
	for _, c := range slices.Backward(i.Commits) {
		switch {
		case !c.Reverted.IsZero():
			continue
		case c.NotKept != "" || c.Until.IsZero() || time.Now().After(c.Until):
			return "no"
		}
		return c.Until.Local().Format("2006-01-02 15:04")
	}
	return "-"
}

func (a *app) pruneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "prune",
		Short:   "forget what has been kept for a revert for long enough",
		Example: "  jail workspaces prune",
		Args:    exactly(),
	}
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			p, err := c.Prune(cmd.Context())
			if err != nil {
				return err
			}
			return a.show(*asJSON, p, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "forgot %s\n", count(len(p.IDs), "workspace", "workspaces"))
				return err
			})
		})
	}
	return cmd
}

func (a *app) workspacesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "workspaces",
		Short:   "list the shadows that are kept, what they take and what can be reverted",
		Example: "  jail workspaces\n  jail workspaces prune",
		Args:    exactly(),
	}
	cmd.AddCommand(a.pruneCommand())
	asJSON := jsonFlag(cmd, "print a list of objects")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			all, err := c.Workspaces(cmd.Context())
			if err != nil {
				return err
			}
			return a.show(*asJSON, all, func(w io.Writer) error {
				rows := [][]string{{"ID", "STATE", "AGE", "SIZE", "COMMIT", "REVERT UNTIL", "TOOL", "DIRECTORY"}}
				for _, i := range all {
					rows = append(rows, []string{i.ID, workspaceState(i), age(i.Prepared), size(i.Disk), i.Commit, revertible(i), dash(i.Tool), i.Path.String()})
				}
				return table(w, rows)
			})
		})
	}
	return cmd
}
