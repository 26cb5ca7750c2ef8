package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

const revertAbout = `Undo the last commit of a run's shadow: what it changed in the real directory becomes what it was, all of it or nothing.

A path that is not as the commit left it is a conflict, and then nothing is written. What a commit replaced is kept for a time and up to a size, which
jail workspaces shows. A commit of a part can be undone, and then the one before it.`

func (a *app) revertCommand() *cobra.Command {
	var req supervisor.RevertRequest
	cmd := &cobra.Command{
		Use:     "revert [flags] ID",
		Short:   "undo the commit of a run",
		Long:    revertAbout,
		Example: "  jail revert 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    exactly("ID"),
	}
	cmd.Flags().StringVar(&req.Commit, "commit", "", "revert only if this commit `ID` is the last that stands")
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			done, err := c.Revert(cmd.Context(), args[0], req)
			if err != nil {
				return a.withConflicts(err, "now", "committed")
			}
			return a.show(*asJSON, done, func(w io.Writer) error {
				for _, c := range done.Changes {
					fmt.Fprintln(w, changeLine(a.colour(), api.Change{Change: c}))
				}
				for _, left := range done.Left {
					fmt.Fprintf(w, "%s %s\n", paint(a.colour(), amber, "left:"), printable(left))
				}
				_, err := fmt.Fprintf(w, "reverted %s of run %s\n", count(len(done.Changes), "change", "changes"), printable(args[0]))
				return err
			})
		})
	}
	return cmd
}

// withConflicts lists both sides of the conflicts that an error has, before the error itself is told.
func (a *app) withConflicts(err error, real, shadow string) error {
	if conflicts := describe(err).Conflicts; len(conflicts) > 0 {
		err = errors.Join(err, a.print(func(w io.Writer) error {
			for _, c := range conflicts {
				fmt.Fprintf(w, "%s %s: %s\n", paint(a.colour(), amber, "conflict:"), shownPath(c.Path), printable(c.Why))
				fmt.Fprintf(w, "  %-10s %s\n", real+":", sideText(c.Real))
				fmt.Fprintf(w, "  %-10s %s\n", shadow+":", sideText(c.Shadow))
			}
			return nil
		}))
	}
	return err
}
