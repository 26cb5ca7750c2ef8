package main

import (
	"fmt"
	"io"
	"path"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

const commitAbout = `Write the changes of a run to the real directory: all of them, or those at and beneath each PATH, written as jail diff shows it.

Held back are protected names (.git/hooks, .git/config and their like, and those of the policy), unless a PATH names them and
--include-protected says yes. A path that changed on both sides is a conflict, and then nothing is written.`

func (a *app) commitCommand() *cobra.Command {
	var req supervisor.CommitRequest
	cmd := &cobra.Command{
		Use:     "commit [flags] ID [PATH...]",
		Short:   "make the changes of a run real",
		Long:    commitAbout,
		Example: "  jail commit 3w5e11264sg0c8v5a9b7k2m4qd\n  jail commit 3w5e11264sg0c8v5a9b7k2m4qd src README.md",
		Args:    atLeast("ID"),
	}
	cmd.Flags().BoolVar(&req.IncludeProtected, "include-protected", false, "take protected names that a PATH names")
	cmd.Flags().StringVar(&req.Digest, "digest", "", "commit only if the changes are still those with this `DIGEST` of jail diff")
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, arg := range args[1:] {
			req.Paths = append(req.Paths, commitPath(arg))
		}
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			done, err := c.Commit(cmd.Context(), args[0], req)
			if err != nil {
				return err
			}
			if err := a.show(*asJSON, done, func(w io.Writer) error { return a.writeCommitted(w, args[0], done) }); err != nil {
				return err
			}
			if len(done.Held) > 0 && !*asJSON {
				say(a.stderr, "hint", "jail commit --include-protected "+args[0]+" PATH... takes protected names, if you have read them")
			}
			return nil
		})
	}
	return cmd
}

// commitPath takes a path as people write it, ./src/ for example. Bytes that are no text are escaped as jail diff shows them.
func commitPath(arg string) string {
	if !utf8.ValidString(arg) {
		arg = workspace.Name(arg).String()
	}
	if arg = path.Clean(arg); arg == "." {
		return ""
	}
	return arg
}

func (a *app) writeCommitted(w io.Writer, id string, r workspace.Result) error {
	colour := a.colour()
	for _, c := range r.Committed {
		fmt.Fprintln(w, changeLine(colour, api.Change{Change: c}))
	}
	for _, h := range r.Held {
		fmt.Fprintf(w, "%s %s  (%s)\n", paint(colour, amber, "held back:"), shownPath(h.Path), printable(h.Why))
	}
	for _, dir := range r.Left {
		fmt.Fprintf(w, "%s %s  (someone else put something into it meanwhile)\n", paint(colour, amber, "left:"), printable(dir))
	}
	_, err := fmt.Fprintf(w, "committed %s of run %s\n", count(len(r.Committed), "change", "changes"), printable(id))
	return err
}
