package review

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"unicode/utf8"

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

const commitAbout = `Write the changes of a run to the real directory: all changes, or those at and below each PATH, written as in jail diff. A PATH may be a pattern, such as
'src/**' or 'docs/*.md', if no change has that name. --patch asks about each change, and about each hunk of a text file.

A commit holds back protected names (.git/hooks, .git/config and others, and those of the policy), unless a PATH names them and --include-protected is
given; the PATH .git names all of them below it. It holds back links that lead out of the directory. It takes objects, refs and index of a git repository together.
A path that changed on both sides is a conflict, and nothing is written: --theirs takes the side of the shadow, --merge takes both sides of text that changed
in different places. jail revert undoes a commit.

The processes of an open session or a live run are stopped during the commit, and go on with their own files.

--git-only REF takes a branch or tag as git fetch would: the ref and the objects that the real repository lacks, each checked, and nothing else of the
change set. REF is [+]NAME[:OTHER]: OTHER is the name in the real repository, and + also takes what is not a fast-forward. It refuses a branch that is
checked out there. A PATH names the repository if several changed.

--propose writes nothing: the commit waits until somebody approves it by jail approvals. So does every commit under a policy with
[[approve]] action = "workspace.commit" mode = "ask"; jail commit ends with 126 then.`

type commitOptions struct {
	id             string
	request        shadows.CommitRequest
	patch, verbose bool
	propose        bool
	words          string
	json           bool
}

// NewCommit returns the command jail commit.
func NewCommit(env *cli.Env) *cobra.Command {
	var o commitOptions
	cmd := &cobra.Command{
		Use:   "commit [flags] ID [PATH...]",
		Short: "write the changes of a run to the real directory",
		Long:  commitAbout,
		Example: "  jail commit 3w5e11264sg0c8v5a9b7k2m4qd\n" +
			"  jail commit 3w5e11264sg0c8v5a9b7k2m4qd -- src 'docs/*.md'\n" +
			"  jail commit --class plain 3w5e11264sg0c8v5a9b7k2m4qd",
		Args: command.AtLeast("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := command.Exclusive(cmd, "theirs", "merge"); err != nil {
				return err
			}
			for _, other := range []string{"class", "theirs", "merge", "patch"} {
				if err := command.Exclusive(cmd, "git-only", other); err != nil {
					return err
				}
			}
			if o.words != "" && !o.propose {
				return exit.Usage("jail commit --propose --words TEXT "+args[0],
					"--words is what the proposer says, and goes with --propose")
			}
			for _, other := range []string{"class", "theirs", "merge", "include-protected",
				"digest"} {
				if err := command.Exclusive(cmd, "patch", other); err != nil {
					return err
				}
			}
			o.id = args[0]
			for _, arg := range args[1:] {
				o.request.Paths = append(o.request.Paths, commitPath(arg))
			}
			return env.WithDaemon(cmd.Context(),
				func(c *api.Client) error { return runCommit(cmd.Context(), env, c, o) })
		},
	}
	cmd.Flags().BoolVar(&o.request.IncludeProtected, "include-protected", false,
		"take protected names that a PATH gives")
	cmd.Flags().StringVar(&o.request.Digest, "digest", "",
		"commit only if the changes still have this `DIGEST` of jail diff")
	cmd.Flags().StringSliceVar(&o.request.Classes, "class", nil,
		"take only changes with a risk of this `CLASS`; plain means no risk")
	cmd.Flags().BoolVar(&o.request.Theirs, "theirs", false, "take the shadow's side of conflicts")
	cmd.Flags().BoolVar(&o.request.Merge, "merge", false,
		"take both sides of conflicts in text, where they do not touch")
	cmd.Flags().StringVar(&o.request.GitOnly, "git-only", "",
		"take the branch or tag `REF` as git fetch would, and nothing else")
	cmd.Flags().BoolVarP(&o.patch, "patch", "p", false, "ask about each change and each hunk")
	cmd.Flags().BoolVar(&o.propose, "propose", false,
		"write nothing, and print the ID of an action that waits for jail approvals approve")
	cmd.Flags().StringVar(&o.words, "words", "", "with --propose: `TEXT` to show with the action")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "list all paths, not the first 20")
	command.JSON(cmd, &o.json, "print an object")
	return cmd
}

func runCommit(ctx context.Context, env *cli.Env, c *api.Client, o commitOptions) error {
	if o.patch {
		if len(o.request.Paths) > 0 {
			return exit.Usage("jail commit --patch "+o.id,
				"jail commit --patch asks about each change, and takes no PATH")
		}
		ch, err := review(ctx, c, o.id)
		if err != nil {
			return err
		}
		if err := ask(env, ch); err != nil {
			return err
		}
		var some bool
		if o.request, some = ch.request(); !some {
			_, err := fmt.Fprintln(env.Stdout, "nothing was taken, and nothing is committed")
			return err
		}
	}
	if o.propose {
		return propose(ctx, env, c, o)
	}
	var done workspace.Result
	err := showProgress(ctx, env, c, o.id, o.json, func() (err error) {
		done, err = c.Commit(ctx, o.id, o.request)
		return err
	})
	if err != nil {
		return withConflicts(env, err, o.json, "real", "shadow")
	}
	if err := env.Show(o.json, done, func(w io.Writer) {
		writeCommitted(w, env.Colour(), o, done)
	}); err != nil {
		return err
	}
	if slices.ContainsFunc(done.Held, func(h workspace.Held) bool { return !h.Never }) && !o.json &&
		!o.request.Exact {
		output.Say(env.Stderr, "hint", "jail commit --include-protected "+o.id+
			" PATH... takes protected names, if you have read them")
	}
	if done.NotKept != "" && !o.json {
		output.Say(env.Stderr, "hint", "this commit cannot be reverted: "+done.NotKept)
	}
	return nil
}

// commitPath cleans a path as people write it, ./src/ for example. A path that is not UTF-8 gets
// the escapes with which jail diff shows it.
func commitPath(arg string) string {
	if !utf8.ValidString(arg) {
		arg = workspace.Name(arg).String()
	}
	if arg = path.Clean(arg); arg == "." {
		return ""
	}
	return arg
}

func writeCommitted(w io.Writer, colour bool, o commitOptions, r workspace.Result) {
	if r.Git != "" {
		fmt.Fprintf(w, "%s %s\n", terminal.Paint(colour, terminal.Cyan, "git:"),
			output.Printable(r.Git))
	}
	someLines(w, o.verbose, len(r.Committed), func(i int) string {
		return changeLine(colour, api.Change{Change: r.Committed[i]})
	})
	someLines(w, o.verbose, len(r.Held), func(i int) string {
		h := r.Held[i]
		return fmt.Sprintf("%s %s  (%s)", terminal.Paint(colour, terminal.Amber, "held back:"),
			shownPath(h.Path), output.Printable(h.Why))
	})
	for _, dir := range r.Left {
		fmt.Fprintf(w, "%s %s\n",
			terminal.Paint(colour, terminal.Amber, "left:"), output.Printable(dir))
	}
	if len(r.Committed)+len(r.Held) == 0 && r.ID != "" {
		fmt.Fprintf(w, "committed run %s, as a grant of jail approvals allows\n",
			output.Printable(o.id))
		return
	}
	fmt.Fprintf(w, "committed %s of run %s\n",
		output.Count(len(r.Committed), "change", "changes"), output.Printable(o.id))
}
