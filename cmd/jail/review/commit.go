// Package review has the commands that show, commit, discard and revert the changes of runs.
package review

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/jail/tick"
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

// commitPath returns a path argument, ./src/ for example, as an API request has it. A path that is
// not UTF-8 is escaped as jail diff shows it.
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

// A pick is one change, with the choice whether to take it or its hunks.
type pick struct {
	change api.Change
	hunks  []workspace.Hunk
	// taken has one entry for each hunk, or a single one for a change without hunks.
	taken []bool
}

// A choice has all changes of a review, for the user to choose from.
type choice struct {
	picks  []pick
	digest string
}

// maxChoice bounds the changes of a choice.
const maxChoice = 20000

// review reads the changes of a run with their hunks. Changes that need attention come first.
func review(ctx context.Context, c *api.Client, id string) (ch choice, err error) {
	for line, err := range c.Changes(ctx, id, api.PatchHunks) {
		switch {
		case err != nil:
			return ch, err
		case line.Change != nil:
			if len(ch.picks) == maxChoice {
				return ch, exit.Failed(nil, "name paths, patterns or classes instead",
					"there are more than %d changes to choose from by hand", maxChoice)
			}
			ch.picks = append(ch.picks, pick{change: *line.Change, taken: make([]bool, 1)})
		case line.Hunks != nil && len(ch.picks) > 0:
			p := &ch.picks[len(ch.picks)-1]
			p.hunks, p.taken = line.Hunks.Hunks, make([]bool, len(line.Hunks.Hunks))
		case line.Summary != nil:
			ch.digest = line.Summary.Digest
		}
	}
	slices.SortStableFunc(ch.picks, func(a, b pick) int {
		_, x := attention(a.change)
		_, y := attention(b.change)
		return x - y
	})
	return ch, nil
}

// open reports whether the change can be taken.
func (p pick) open() bool { return p.change.Refused == "" }

func (p pick) count() (taken int) {
	for _, t := range p.taken {
		if t {
			taken++
		}
	}
	return taken
}

// request returns the request to commit exactly what the user chose, protected names included. ok
// is false if nothing was chosen.
func (ch choice) request() (req shadows.CommitRequest, ok bool) {
	req = shadows.CommitRequest{Digest: ch.digest, Exact: true, IncludeProtected: true,
		Hunks: map[string][]int{}}
	for _, p := range ch.picks {
		path := p.change.Path.String()
		switch n := p.count(); {
		case n == 0 || !p.open():
		case n == len(p.taken):
			req.Paths = append(req.Paths, path)
		default:
			for i, t := range p.taken {
				if t {
					req.Hunks[path] = append(req.Hunks[path], i)
				}
			}
		}
	}
	return req, len(req.Paths) > 0 || len(req.Hunks) > 0
}

const askHelp = `y  take it
n  leave it
a  take it and all that follows in this file
d  leave it and all that follows in this file
q  leave it and all that follows, and commit what was taken
?  show this
`

// errQuit is returned by a question that the user answered with q.
var errQuit = errors.New("quit")

// ask asks the user about each hunk, and each change without hunks, as git add -p does, and marks
// those to take in ch. The end of the input counts as q.
func ask(env *cli.Env, ch choice) error {
	q := &questions{in: bufio.NewReader(env.Stdin), out: env.Stdout, colour: env.Colour()}
	for i := range ch.picks {
		if err := q.pick(&ch.picks[i]); errors.Is(err, errQuit) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

type questions struct {
	in     *bufio.Reader
	out    io.Writer
	colour bool
}

func (q *questions) pick(p *pick) error {
	fmt.Fprintln(q.out, changeLine(q.colour, p.change))
	for _, r := range p.change.Risks {
		fmt.Fprintf(q.out, "  %s %s\n", terminal.Paint(q.colour, terminal.Amber, string(r.Class)+
			":"), output.Printable(r.Why))
	}
	if !p.open() {
		return nil
	}
	if len(p.hunks) == 0 {
		answer, err := q.question("take this change", "ynq?")
		p.taken[0] = answer == 'y'
		return err
	}
	for i, h := range p.hunks {
		for _, line := range hunkText(h) {
			fmt.Fprintln(q.out, paintHunkLine(q.colour, line))
		}
		answer, err := q.question(fmt.Sprintf("(%d/%d) take this hunk of %s", i+1, len(p.hunks),
			shownPath(p.change.Path)), "ynqad?")
		switch answer {
		case 'y':
			p.taken[i] = true
		case 'a':
			for j := i; j < len(p.hunks); j++ {
				p.taken[j] = true
			}
			return err
		case 'd':
			return err
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// question asks until the answer is one of letters, and returns it. For q, and at the end of the
// input, the error is errQuit.
func (q *questions) question(what, letters string) (byte, error) {
	for {
		fmt.Fprintf(q.out, "%s [%s]? ", what, strings.Join(strings.Split(letters, ""), ","))
		line, err := q.in.ReadString('\n')
		line = strings.TrimSpace(line)
		switch {
		case line == "" && errors.Is(err, io.EOF):
			fmt.Fprintln(q.out)
			return 'q', errQuit
		case err != nil && !errors.Is(err, io.EOF):
			return 0, exit.Failed(err, "", "standard input: %v", exit.Cause(err))
		case line == "q":
			return 'q', errQuit
		case line == "?" || len(line) != 1 || !strings.Contains(letters, line):
			io.WriteString(q.out, askHelp)
			continue
		}
		return line[0], nil
	}
}

// hunkText returns the lines of a hunk with its @@ header.
func hunkText(h workspace.Hunk) []string {
	head := fmt.Sprintf("@@ -%d,%d +%d,%d @@", h.From, h.FromLines, h.To, h.ToLines)
	return append([]string{head}, h.Lines...)
}

func paintHunkLine(colour bool, line string) string {
	if !colour || strings.HasPrefix(line, " ") {
		return line
	}
	switch line[:1] {
	case "+":
		return terminal.Paint(true, terminal.Green, line)
	case "-":
		return terminal.Paint(true, terminal.Red, line)
	}
	return terminal.Paint(true, terminal.Cyan, line)
}

// maxPaths is how many paths a command lists without --verbose.
const maxPaths = 20

// someLines writes the n lines of a list, or, unless all is set, the first maxPaths and the number
// of the others.
func someLines(w io.Writer, all bool, n int, line func(i int) string) {
	shown := n
	if !all {
		shown = min(n, maxPaths)
	}
	for i := range shown {
		fmt.Fprintln(w, line(i))
	}
	if shown < n {
		fmt.Fprintf(w, "... and %d more: --verbose lists all\n", n-shown)
	}
}

// showProgress calls f, which commits or reverts the shadow id, and returns its error. Meanwhile it
// shows the progress, unless silent is set or stderr is no terminal.
func showProgress(ctx context.Context, env *cli.Env, c *api.Client, id string, silent bool,
	f func() error) error {
	if silent || !terminal.Is(env.Stderr) {
		return f()
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pollProgress(ctx, env, c, id)
	}()
	err := f()
	cancel()
	<-ended
	terminal.ClearLine(env.Stderr)
	return err
}

// pollProgress shows the completed steps of the workspace id on stderr until ctx ends. It stops at
// an error, which it ignores.
func pollProgress(ctx context.Context, env *cli.Env, c *api.Client, id string) {
	for range tick.Each(ctx.Done(), 200*time.Millisecond) {
		all, err := c.Workspaces(ctx)
		if err != nil {
			return
		}
		i := slices.IndexFunc(all, func(w shadows.WorkspaceInfo) bool { return w.ID == id })
		if i >= 0 && all[i].Progress != nil {
			p := all[i].Progress
			fmt.Fprintf(env.Stderr, "\r\x1b[Kjail: %d of %d steps (%d%%)", p.Done, p.Total,
				100*p.Done/max(p.Total, 1))
		}
	}
}
