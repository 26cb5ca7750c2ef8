package main

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

const commitAbout = `Write the changes of a run to the real directory: all of them, or those at and beneath each PATH, written as jail diff shows it. A PATH that no
change has may be a pattern: 'src/**', 'docs/*.md'. With --patch each change is asked about, and each hunk of a text file.

Held back are protected names (.git/hooks, .git/config and their like, and those of the policy), unless a PATH names them and
--include-protected says yes; so are links that lead out of the directory. A path that changed on both sides is a conflict, and then nothing is written:
--theirs takes the shadow's side, --merge both, of text that was changed in different places. What is replaced is kept for jail revert.`

func (a *app) commitCommand() *cobra.Command {
	var req supervisor.CommitRequest
	byHand := false
	cmd := &cobra.Command{
		Use:     "commit [flags] ID [PATH...]",
		Short:   "make the changes of a run real",
		Long:    commitAbout,
		Example: "  jail commit 3w5e11264sg0c8v5a9b7k2m4qd\n  jail commit 3w5e11264sg0c8v5a9b7k2m4qd -- src 'docs/*.md'\n  jail commit --class plain 3w5e11264sg0c8v5a9b7k2m4qd",
		Args:    atLeast("ID"),
	}
	cmd.Flags().BoolVar(&req.IncludeProtected, "include-protected", false, "take protected names that a PATH names")
	cmd.Flags().StringVar(&req.Digest, "digest", "", "commit only if the changes are still those with this `DIGEST` of jail diff")
	cmd.Flags().StringSliceVar(&req.Classes, "class", nil, "take only changes with a risk of this `CLASS`; plain are those without any")
	cmd.Flags().BoolVar(&req.Theirs, "theirs", false, "take the shadow's side of conflicts")
	cmd.Flags().BoolVar(&req.Merge, "merge", false, "take both sides of conflicts in text, where they do not touch")
	cmd.Flags().BoolVarP(&byHand, "patch", "p", false, "ask about each change and each hunk")
	asJSON := jsonFlag(cmd, "print an object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := exclusive(cmd, "theirs", "merge"); err != nil {
			return err
		}
		for _, other := range []string{"class", "theirs", "merge", "include-protected", "digest"} {
			if err := exclusive(cmd, "patch", other); err != nil {
				return err
			}
		}
		for _, arg := range args[1:] {
			req.Paths = append(req.Paths, commitPath(arg))
		}
		return a.withDaemon(cmd.Context(), func(c *api.Client) error {
			commit := func(req supervisor.CommitRequest) error { return a.commit(cmd.Context(), c, args[0], req, *asJSON) }
			if !byHand {
				return commit(req)
			}
			if len(args) > 1 {
				return usage("jail commit --patch "+args[0], "jail commit --patch asks about each change, and takes no PATH")
			}
			ch, err := review(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if err := a.ask(a.stdin, ch); err != nil {
				return err
			}
			return a.commitChosen(ch, commit)
		})
	}
	return cmd
}

// exclusive refuses flags of which only one makes sense at a time.
func exclusive(cmd *cobra.Command, names ...string) error {
	var given []string
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) < 2 {
		return nil
	}
	return usage("usage: jail "+cmd.Use, "jail %s: %s exclude each other: give one of them", cmd.Name(), strings.Join(given, " and "))
}

func (a *app) commit(ctx context.Context, c *api.Client, id string, req supervisor.CommitRequest, asJSON bool) error {
	done, err := c.Commit(ctx, id, req)
	if err != nil {
		return a.withConflicts(err, "real", "shadow")
	}
	if err := a.show(asJSON, done, func(w io.Writer) error { return a.writeCommitted(w, id, done) }); err != nil {
		return err
	}
	if len(done.Held) > 0 && !asJSON && !req.Exact {
		say(a.stderr, "hint", "jail commit --include-protected "+id+" PATH... takes protected names, if you have read them")
	}
	if done.NotKept != "" && !asJSON {
		say(a.stderr, "hint", "this commit cannot be reverted: "+done.NotKept)
	}
	return nil
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
		fmt.Fprintf(w, "%s %s\n", paint(colour, amber, "left:"), printable(dir))
	}
	_, err := fmt.Fprintf(w, "committed %s of run %s\n", count(len(r.Committed), "change", "changes"), printable(id))
	return err
}
