package review

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/request"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// NewBranch returns the command jail branch.
func NewBranch(env *cli.Env) *cobra.Command {
	return command.Group("branch", "several attempts that begin with one shadow", newFork(env),
		newBranchList(env), newBranchDiff(env), newMerge(env), newRevertMerge(env),
		newBranchDiscard(env), newTry(env))
}

const forkAbout = `Make a branch of the shadow of a session, or of a run that is kept, and print its ID. The branch is a session in which everything is as in that shadow:
"jail session exec BRANCH" works in it. What is changed in the branch is not in its parent, and the other way round, until jail branch merge.

A session that is open is put to sleep: it wakes with its next invocation, and its /tmp is empty then. A session in which an invocation runs is refused. A branch
takes no room on the disk but for what is changed in it, and its limits count what it shares with its parent.

A branch of a session has the policy of the session. The shadow of a run is worked on with the profile, or policy, that is given here; its limits of the workspace
and its hidden names must be those of the run.`

func newFork(env *cli.Env) *cobra.Command {
	var f request.Flags
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "fork [flags] ID",
		Short:   "make a branch of a shadow",
		Long:    forkAbout,
		Example: "  jail branch fork s1 --id other\n  jail session exec other -- make",
		Args:    command.Exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := f.Settings(env, cmd)
			if err != nil {
				return err
			}
			fork := message.ForkRequest{ID: req.ID, Session: &message.SessionRequest{Request: req}}
			fork.Session.ID, fork.Session.Inherit = "", nil
			// A branch is a session, which outlives this command.
			return env.WithLastingDaemon(cmd.Context(), func(c *api.Client) error {
				b, err := api.BranchesOf(c).Fork(cmd.Context(), args[0], fork)
				if err != nil {
					return err
				}
				return env.Show(asJSON, b, output.Text("%s\n", b.ID))
			})
		},
	}
	addLasting(cmd, &f, "name the branch `NAME` (default a random ID)")
	command.JSON(cmd, &asJSON, "print an object")
	return cmd
}

// addLasting adds the flags of a command that makes a session. id is the usage text of --id.
func addLasting(cmd *cobra.Command, f *request.Flags, id string) {
	f.AddLasting(cmd, "default")
	cmd.Flags().Lookup("id").Usage = id
}

func newBranchList(env *cli.Env) *cobra.Command {
	heads := []string{"ID", "PARENT", "DEPTH", "AGE", "STATE", "DISK", "MERGED", "WORKSPACE"}
	return command.List(env, &cobra.Command{
		Use:     "list",
		Short:   "list the branches",
		Example: "  jail branch list --json",
	}, func(c *api.Client, ctx context.Context) ([]shadows.BranchInfo, error) {
		return api.BranchesOf(c).List(ctx)
	}, heads, func(b shadows.BranchInfo) []string {
		merged := "-"
		for _, m := range b.Merges {
			if m.Reverted.IsZero() {
				merged = output.Count(m.Paths, "path", "paths") + ", " + output.Age(m.Time) + " ago"
			}
		}
		return []string{b.ID, b.Parent, strconv.Itoa(b.Depth), output.Age(b.Forked),
			string(b.State), output.Size(b.Disk), merged, workspace.Name(b.Workspace).String()}
	})
}

const branchDiffAbout = `Show how the shadow B differs from the shadow A, as a patch that makes B of A. Both are of one directory: branches, their parents, or any two. Sessions may be
open: their processes are stopped for the moment.

jail diff B shows how B differs from the directory itself.`

func newBranchDiff(env *cli.Env) *cobra.Command {
	return command.Show(env, &cobra.Command{
		Use:     "diff A B",
		Short:   "compare two shadows",
		Long:    branchDiffAbout,
		Example: "  jail branch diff s1 other",
		Args:    command.IDs(command.Exactly("A", "B")),
	}, "print an object",
		func(ctx context.Context, c *api.Client, args []string) (shadows.Comparison, error) {
			return api.BranchesOf(c).Compare(ctx, args[0], args[1])
		}, func(w io.Writer, r shadows.Comparison) { writeComparison(w, env.Colour(), r) })
}

func writeComparison(w io.Writer, colour bool, r shadows.Comparison) {
	for _, d := range r.Differences {
		mark := marks[workspace.Modified]
		switch {
		case d.A == nil:
			mark = marks[workspace.Added]
		case d.B == nil:
			mark = marks[workspace.Deleted]
		}
		fmt.Fprintf(w, "%s %s\n", terminal.Paint(colour, mark[1], mark[0]), shownPath(d.Path))
	}
	switch {
	case len(r.Differences) == 0:
		fmt.Fprintf(w, "%s and %s are alike\n", output.Printable(r.A), output.Printable(r.B))
	case r.Cut:
		fmt.Fprintln(w, "\n# the differences are too long to be shown")
	default:
		fmt.Fprintln(w)
		_ = (&patchPainter{}).write(w, []byte(output.PrintableText(r.Patch)), colour)
	}
}

const mergeAbout = `Take what a branch changed since its fork into the shadow that it was forked from, all of it, or PATHs with all beneath them. What the parent changed meanwhile
stays. A path that both changed is a conflict: jail shows both sides and writes nothing. --theirs takes the branch's side, --merge both sides of text that was
changed in different places.

Protected names are taken, too: nothing of the host obeys a shadow, and they come before you when the parent is committed. The branch stays as it is. jail branch
revert undoes a merge. Sessions that are open are put to sleep; one in which an invocation runs is refused.

--preview lists what would be taken, and the digest that --digest names.`

type mergeOptions struct {
	request                shadows.MergeRequest
	preview, verbose, json bool
}

func newMerge(env *cli.Env) *cobra.Command {
	var o mergeOptions
	cmd := &cobra.Command{
		Use:     "merge [flags] ID [PATH...]",
		Short:   "take a branch's changes into its parent",
		Long:    mergeAbout,
		Example: "  jail branch merge --preview other\n  jail branch merge other src",
		Args:    command.AtLeast("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := command.Exclusive(cmd, "theirs", "merge"); err != nil {
				return err
			}
			for _, arg := range args[1:] {
				o.request.Paths = append(o.request.Paths, commitPath(arg))
			}
			return env.WithDaemon(cmd.Context(), func(c *api.Client) error {
				return runMerge(cmd.Context(), env, c, args[0], o)
			})
		},
	}
	set := cmd.Flags()
	set.BoolVar(&o.preview, "preview", false, "list what would be taken, and take nothing")
	set.StringVar(&o.request.Digest, "digest", "", "merge only if the changes are still those of `SHA256`")
	set.BoolVar(&o.request.Theirs, "theirs", false, "take the branch's side of conflicts")
	set.BoolVar(&o.request.Merge, "merge", false, "take both sides of conflicts, line by line")
	set.BoolVarP(&o.verbose, "verbose", "v", false, "list all paths, not the first 20")
	command.JSON(cmd, &o.json, "print an object")
	return cmd
}

func runMerge(ctx context.Context, env *cli.Env, c *api.Client, id string, o mergeOptions) error {
	colour := env.Colour()
	if o.preview {
		p, err := api.BranchesOf(c).PreviewMerge(ctx, id)
		if err != nil {
			return err
		}
		return env.Show(o.json, p, func(w io.Writer) {
			for _, change := range p.Changes {
				fmt.Fprintln(w, changeLine(colour, api.Change{Change: change}))
			}
			fmt.Fprintf(w, "%s for %s, digest %s\n",
				output.Count(len(p.Changes), "change", "changes"), output.Printable(p.Parent), p.Digest)
		})
	}
	r, err := api.BranchesOf(c).Merge(ctx, id, o.request)
	if err != nil {
		return withConflicts(env, err, o.json, "parent", "branch")
	}
	return env.Show(o.json, r, func(w io.Writer) {
		someLines(w, o.verbose, len(r.Committed), func(i int) string {
			return changeLine(colour, api.Change{Change: r.Committed[i]})
		})
		for _, h := range r.Held {
			fmt.Fprintf(w, "%s %s: %s\n", terminal.Paint(colour, terminal.Amber, "held:"),
				shownPath(h.Path), output.Printable(h.Why))
		}
		fmt.Fprintf(w, "merged %s of %s\n",
			output.Count(len(r.Committed), "change", "changes"), output.Printable(id))
	})
}

func newRevertMerge(env *cli.Env) *cobra.Command {
	var cmd *cobra.Command
	cmd = command.Show(env, &cobra.Command{
		Use:   "revert ID",
		Short: "undo the last merge of a branch",
		Long: "Undo the last merge of a branch: in the shadow that it was forked from, the merged paths " +
			"become what they were. A path that was changed there since is a conflict, and then nothing " +
			"is written.",
		Example: "  jail branch revert other",
		Args:    command.Exactly("ID"),
	}, "print an object",
		func(ctx context.Context, c *api.Client, args []string) (workspace.MergeRecord, error) {
			r, err := api.BranchesOf(c).RevertMerge(ctx, args[0])
			if err != nil {
				// The command has this flag.
				asJSON, _ := cmd.Flags().GetBool("json")
				err = withConflicts(env, err, asJSON, "now", "merged")
			}
			return r, err
		}, func(w io.Writer, r workspace.MergeRecord) {
			fmt.Fprintf(w, "reverted the merge of %s into %s\n",
				output.Count(r.Paths, "path", "paths"), output.Printable(r.Into))
		})
	return cmd
}

func newBranchDiscard(env *cli.Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "discard [flags] ID...",
		Short: "throw branches away",
		Long: "Throw branches away: their sessions end with what runs in them, and what was changed in " +
			"them and not merged is gone. A branch that has branches of its own is refused.",
		Example: "  jail branch discard other",
		Args:    command.IDs(command.AtLeast("ID")),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.WithDaemon(cmd.Context(), func(c *api.Client) (err error) {
				done := []string{}
				for _, id := range args {
					if err = api.BranchesOf(c).Discard(cmd.Context(), id); err != nil {
						break
					}
					done = append(done, id)
				}
				return errors.Join(err, env.Show(asJSON, done, func(w io.Writer) {
					for _, id := range done {
						fmt.Fprintf(w, "discarded %s\n", output.Printable(id))
					}
				}))
			})
		},
	}
	command.JSON(cmd, &asJSON, "print a list of the discarded ids")
	return cmd
}
