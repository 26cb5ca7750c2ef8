package review

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

const revertAbout = `Undo the last commit of a run's shadow: the real directory becomes what it was before the commit, as a whole or not at all. With PATHs,
written as in jail commit, only these paths of the last commit that changed one of them become what they were; the rest stays committed, and can be undone later.

A path that is not as the commit left it is a conflict, and then nothing is written. What a commit replaced is kept for a time and up to a size, which
jail workspaces shows. A commit of a part can be undone, and then the one before it. The processes of an open
session or a live run are stopped during the revert.`

type revertOptions struct {
	id            string
	request       shadows.RevertRequest
	verbose, json bool
}

// NewRevert returns the command jail revert.
func NewRevert(env *cli.Env) *cobra.Command {
	var o revertOptions
	cmd := &cobra.Command{
		Use:     "revert [flags] ID [PATH...]",
		Short:   "undo the commit of a run",
		Long:    revertAbout,
		Example: "  jail revert 3w5e11264sg0c8v5a9b7k2m4qd\n  jail revert 3w5e11264sg0c8v5a9b7k2m4qd src/main.c 'docs/*.md'",
		Args:    command.AtLeast("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.id = args[0]
			for _, arg := range args[1:] {
				o.request.Paths = append(o.request.Paths, commitPath(arg))
			}
			return env.WithDaemon(cmd.Context(),
				func(c *api.Client) error { return runRevert(cmd.Context(), env, c, o) })
		},
	}
	cmd.Flags().StringVar(&o.request.Commit, "commit", "",
		"revert only if `ID` is the last commit that was not reverted; with PATHs, any commit")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "list all paths, not the first 20")
	command.JSON(cmd, &o.json, "print an object")
	return cmd
}

func runRevert(ctx context.Context, env *cli.Env, c *api.Client, o revertOptions) error {
	var done workspace.Reverted
	err := showProgress(ctx, env, c, o.id, o.json, func() (err error) {
		done, err = c.Revert(ctx, o.id, o.request)
		return err
	})
	if err != nil {
		return withConflicts(env, err, o.json, "now", "committed")
	}
	return env.Show(o.json, done, func(w io.Writer) {
		colour := env.Colour()
		someLines(w, o.verbose, len(done.Changes), func(i int) string {
			return changeLine(colour, api.Change{Change: done.Changes[i]})
		})
		for _, left := range done.Left {
			fmt.Fprintf(w, "%s %s\n",
				terminal.Paint(colour, terminal.Amber, "left:"), output.Printable(left))
		}
		rest := ""
		if done.Rest > 0 {
			rest = fmt.Sprintf("; still committed: %s", output.Count(done.Rest, "path", "paths"))
		}
		fmt.Fprintf(w, "reverted %s of run %s%s\n",
			output.Count(len(done.Changes), "change", "changes"), output.Printable(o.id), rest)
	})
}

// withConflicts prints both sides of the conflicts in err, with the labels real and shadow or as
// JSON, and returns err, joined with a write error.
func withConflicts(env *cli.Env, err error, asJSON bool, real, shadow string) error {
	e := exit.Describe(err)
	if conflicts := e.Conflicts; len(conflicts) > 0 {
		err = errors.Join(err, env.Show(asJSON, api.Problem{Error: e}, func(w io.Writer) {
			for _, c := range conflicts {
				fmt.Fprintf(w, "%s %s: %s\n", terminal.Paint(env.Colour(), terminal.Amber,
					"conflict:"), shownPath(c.Path), output.Printable(c.Why))
				fmt.Fprintf(w, "  %-10s %s\n", real+":", sideText(c.Real))
				fmt.Fprintf(w, "  %-10s %s\n", shadow+":", sideText(c.Shadow))
			}
		}))
	}
	return err
}
