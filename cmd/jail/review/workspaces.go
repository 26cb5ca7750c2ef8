package review

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// workspaceState returns the state of a shadow, with ", cut off" if its run was interrupted.
func workspaceState(i shadows.WorkspaceInfo) string {
	if i.Unfinished {
		return string(i.State) + ", cut off"
	}
	return string(i.State)
}

// revertible returns until when the last commit of a shadow can be reverted, "no" if it cannot, and
// "-" if there is none.
func revertible(i shadows.WorkspaceInfo) string {
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

func newPrune(env *cli.Env) *cobra.Command {
	return command.Show(env, &cobra.Command{
		Use:     "prune",
		Short:   "delete the data for reverts that has been kept long enough",
		Example: "  jail workspaces prune",
		Args:    command.Exactly(),
	}, "print an object",
		func(ctx context.Context, c *api.Client, _ []string) (shadows.Pruned, error) {
			return c.Prune(ctx)
		}, func(w io.Writer, p shadows.Pruned) {
			fmt.Fprintf(w, "forgot %s\n", output.Count(len(p.IDs), "workspace", "workspaces"))
		})
}

// NewWorkspaces returns the command jail workspaces.
func NewWorkspaces(env *cli.Env) *cobra.Command {
	cmd := command.Show(env, &cobra.Command{
		Use:     "workspaces",
		Short:   "list the kept shadows, their sizes, and what can be reverted",
		Example: "  jail workspaces\n  jail workspaces prune",
		Args:    command.NoSuch,
	}, "print a list of objects",
		func(ctx context.Context, c *api.Client, _ []string) ([]shadows.WorkspaceInfo, error) {
			return c.Workspaces(ctx)
		}, func(w io.Writer, all []shadows.WorkspaceInfo) {
			writeWorkspaces(w, env.Colour(), all)
		})
	cmd.AddCommand(newPrune(env))
	return cmd
}

func writeWorkspaces(w io.Writer, colour bool, all []shadows.WorkspaceInfo) {
	heads := []string{"ID", "STATE", "AGE", "SIZE", "COMMIT", "REVERT UNTIL", "TOOL", "DIRECTORY"}
	output.Rows(w, heads, all, func(i shadows.WorkspaceInfo) []string {
		return []string{i.ID, workspaceState(i), output.Age(i.Prepared), output.Size(i.Disk),
			i.Commit, revertible(i), cmp.Or(i.Tool, "-"), i.Path.String()}
	})
	for _, i := range all {
		if i.Stuck != "" {
			fmt.Fprintf(w, "%s %s: the commit was cut off, and is not undone yet: %s\n",
				terminal.Paint(colour, terminal.Amber, "stuck:"), i.ID, output.Printable(i.Stuck))
		}
	}
}
