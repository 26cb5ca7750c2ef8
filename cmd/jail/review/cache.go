package review

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// NewCache returns the command jail cache.
func NewCache(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "list and remove the caches that runs keep",
		Long: `List and remove caches: directories that a [[mount]] with access = "cache" keeps
for later runs. A cache is for one user, one profile, and what that profile grants. One that
nobody uses for 30 days is removed.`,
		Example: "  jail cache list\n  jail cache rm ID",
		Args:    command.NoSuch,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCacheList(env), newCacheRemove(env))
	return cmd
}

func newCacheList(env *cli.Env) *cobra.Command {
	heads := []string{"ID", "NAME", "UID", "USED", "DISK", "LIMIT", "IN USE", "PROFILE"}
	return command.List(env, &cobra.Command{
		Use:     "list",
		Short:   "list the caches, and what they take on the disk",
		Example: "  jail cache list",
	}, (*api.Client).Caches, heads, func(i workspace.CacheInfo) []string {
		inUse := "no"
		if i.InUse {
			inUse = "yes"
		}
		return []string{i.ID, i.Name, strconv.FormatUint(uint64(i.UID), 10), output.Age(i.Used),
			output.Size(i.Disk), output.Size(i.Size), inUse, output.Printable(i.Profile)}
	})
}

func newCacheRemove(env *cli.Env) *cobra.Command {
	return command.Show(env, &cobra.Command{
		Use:     "rm [flags] ID...",
		Short:   "remove caches that no run or session uses",
		Example: "  jail cache rm 506760e022d2ee7319ad5bcf992b1e38",
		Args:    command.IDs(command.AtLeast("ID")),
	}, "print a list of the removed ids",
		func(ctx context.Context, c *api.Client, ids []string) ([]string, error) {
			for _, id := range ids {
				if err := c.RemoveCache(ctx, id); err != nil {
					return nil, err
				}
			}
			return ids, nil
		}, func(w io.Writer, ids []string) {
			fmt.Fprintf(w, "removed %s\n", output.Count(len(ids), "cache", "caches"))
		})
}
