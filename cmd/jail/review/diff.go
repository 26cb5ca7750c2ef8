package review

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/jail/gitrepo"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
)

type diffFlags struct{ all, stat, nameOnly, json, patch, tui bool }

const diffAbout = `Show what a run changed: first a list, which begins with changes that a commit would hold back, refuse or find in conflict, then other risks; then
the differences as text. With PATHs it shows only the changes at and below each PATH, which may be a pattern, such as 'src/**'. It runs no program of the
host. The processes of an open session or a live run are stopped while jail collects the changes.

For a git repository it shows branches with their new commits, tags and the stash. It sums up objects, logs and the files of refs in one line; --all
lists them.

With --patch: only the differences, in the format of git apply. With --json: one object a line, first {"info":…}, then {"change":…} for each path, and last
{"summary":…} with the digest for jail commit --digest.`

// NewDiff returns the command jail diff.
func NewDiff(env *cli.Env) *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff [flags] ID [PATH...]",
		Short: "show what a run changed",
		Long:  diffAbout,
		Example: "  jail diff 3w5e11264sg0c8v5a9b7k2m4qd\n" +
			"  jail diff --stat 3w5e11264sg0c8v5a9b7k2m4qd\n" +
			"  jail diff --patch 3w5e11264sg0c8v5a9b7k2m4qd | git apply --check",
		Args: command.AtLeast("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.tui {
				return exit.Usage("jail commit --patch "+args[0]+
					" asks about each change, jail console shows them", "--tui was removed")
			}
			if err := command.Exclusive(cmd, "stat", "name-only", "patch", "json"); err != nil {
				return err
			}
			return env.WithDaemon(cmd.Context(), func(c *api.Client) error {
				return diff(cmd.Context(), env, c, args, f)
			})
		},
	}
	cmd.Flags().BoolVar(&f.all, "all", false, "also list git's objects, logs and refs")
	cmd.Flags().BoolVar(&f.stat, "stat", false, "show the list only")
	cmd.Flags().BoolVar(&f.nameOnly, "name-only", false, "show the names only")
	cmd.Flags().BoolVar(&f.patch, "patch", false,
		"show the differences only, as git apply takes them")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one object a line")
	cmd.Flags().BoolVar(&f.tui, "tui", false, "")
	cmd.Flags().Lookup("tui").Hidden = true
	return cmd
}

// diff shows the changes of the run args[0], limited to the paths in args[1:].
func diff(ctx context.Context, env *cli.Env, c *api.Client, args []string, f diffFlags) error {
	patch := ""
	if !f.stat && !f.nameOnly && !f.json {
		patch = api.PatchPlain
		if terminal.Is(env.Stdout) && !f.patch {
			patch = api.PatchTerminal
		}
	}
	out := bufio.NewWriter(output.Named(env.Stdout, "standard output"))
	show := &diffWriter{w: out, colour: env.Colour(), all: f.all}
	defer show.close()
	for line, err := range c.Changes(ctx, args[0], patch, args[1:]...) {
		if err == nil {
			err = show.line(line, f)
		}
		if err != nil {
			return errors.Join(err, out.Flush())
		}
	}
	return errors.Join(show.end(f), out.Flush())
}

// diffWriter writes a review as text. It buffers the list of changes until the end, since it writes
// changes that need attention first, and the differences after the list.
type diffWriter struct {
	// w returns its first write error again at Flush.
	w      io.Writer
	colour bool
	all    bool
	// ranks has the lines of the list, by rank of attention.
	ranks   [ranks]spill
	patch   spill
	summary *api.ReviewSummary
	painter patchPainter
	git     gitFold
}

func (d *diffWriter) close() {
	for i := range d.ranks {
		d.ranks[i].close()
	}
	d.patch.close()
	d.git.close()
}

func (d *diffWriter) line(l api.ReviewLine, f diffFlags) error {
	switch {
	case f.json:
		return output.WriteJSON(d.w, l, "")
	case l.Info != nil && !f.nameOnly && !f.patch:
		i := l.Info
		fmt.Fprintf(d.w, "# run %s of %s over %s, commit: %s\n", output.Printable(i.ID),
			output.Printable(cmp.Or(i.Tool, "-")), i.Path, output.Printable(i.Commit))
		if i.State == workspace.Active {
			fmt.Fprintln(d.w, "# it is still active: a file that a tool was writing may be incomplete")
		}
		if i.Unfinished {
			fmt.Fprintln(d.w, "# the run was cut off: this is what it had written by then, and a file "+
				"may be half of one")
		}
	case l.Change != nil && f.nameOnly:
		fmt.Fprintln(d.w, shownPath(l.Change.Path))
	case l.Change != nil && !f.patch:
		text := "# " + changeLine(d.colour, *l.Change)
		if d.git.open = !d.all && l.Change.Folds(); d.git.open {
			return d.git.add(*l.Change, text)
		}
		_, rank := attention(*l.Change)
		_, err := fmt.Fprintln(&d.ranks[rank], text)
		return err
	case l.Patch != nil && f.patch:
		_, err := d.w.Write(l.Patch)
		return err
	case l.Patch != nil && d.git.open:
		return d.git.painter.write(&d.git.patch, l.Patch, d.colour)
	case l.Patch != nil && !f.nameOnly:
		return d.painter.write(&d.patch, l.Patch, d.colour)
	case l.Summary != nil:
		d.summary = l.Summary
	}
	return nil
}

func (d *diffWriter) end(f diffFlags) error {
	if f.json || f.nameOnly || f.patch {
		return nil
	}
	folded := d.showGit()
	for i := range d.ranks {
		if err := d.ranks[i].copyTo(d.w); err != nil {
			return err
		}
	}
	if !folded {
		if err := d.git.list.copyTo(d.w); err != nil {
			return err
		}
	}
	if d.summary != nil {
		for _, r := range d.summary.Renames {
			fmt.Fprintf(d.w, "# %s %s -> %s  (the same content)\n",
				terminal.Paint(d.colour, terminal.Cyan, "R"), shownPath(r.From), shownPath(r.To))
		}
	}
	if !folded {
		if err := errors.Join(d.git.painter.flush(&d.git.patch, d.colour),
			d.git.patch.copyTo(d.w)); err != nil {
			return err
		}
	}
	if err := errors.Join(d.painter.flush(&d.patch, d.colour), d.patch.copyTo(d.w)); err != nil ||
		d.summary == nil {
		return err
	}
	s := d.summary
	for _, name := range s.Damaged {
		fmt.Fprintf(d.w, "# %s %s  (damaged: not all of it reached the disk; no commit takes it)\n",
			terminal.Paint(d.colour, terminal.Red, "!"), shownPath(name))
	}
	fmt.Fprintf(d.w, "# %s (+%d ~%d -%d), %s, digest %s\n", output.Count(s.Total(),
		"change", "changes"), s.Added, s.Modified, s.Deleted,
		output.Size(s.Bytes), output.Printable(s.Digest))
	return nil
}

// gitFold buffers the changes to git's own files until the end. If jail understood each repository,
// the reports about them are shown instead.
type gitFold struct {
	list, patch spill
	painter     patchPainter
	// count is the number of buffered changes, bytes the size of their new content.
	count int
	bytes int64
	// open: the current change is buffered here.
	open bool
}

func (g *gitFold) close() {
	g.list.close()
	g.patch.close()
}

func (g *gitFold) add(c api.Change, line string) error {
	g.count++
	if c.After != nil && c.After.Type == workspace.File {
		g.bytes += c.After.Size
	}
	_, err := fmt.Fprintln(&g.list, line)
	return err
}

// showGit writes the reports about repositories. folded: they replace the list in d.git.
func (d *diffWriter) showGit() (folded bool) {
	if d.summary == nil || len(d.summary.Git) == 0 {
		return false
	}
	folded = true
	for _, r := range d.summary.Git {
		folded = folded && r.NotUnderstood == ""
		for _, line := range r.Lines {
			fmt.Fprintf(d.w, "# %s %s\n", terminal.Paint(d.colour, terminal.Cyan, gitLabel(r)),
				output.Printable(line))
		}
	}
	if folded && d.git.count > 0 {
		fmt.Fprintf(d.w, "# %s %s of objects, logs and refs, %s (jail diff --all lists them)\n",
			terminal.Paint(d.colour, terminal.Cyan, "git:"),
			output.Count(d.git.count, "change", "changes"), output.Size(d.git.bytes))
	}
	return folded
}

// gitLabel returns the label of a repository: "git:" for .git, else "git PATH:".
func gitLabel(r gitrepo.Report) string {
	if r.Path == ".git" {
		return "git:"
	}
	return "git " + output.Printable(r.Path) + ":"
}

// maxSpill is how many bytes a spill buffers in memory.
const maxSpill = 1 << 20

// A spill buffers text in memory, and from maxSpill bytes on in an unlinked temporary file.
type spill struct {
	buf  []byte
	file *os.File
}

func (s *spill) Write(p []byte) (int, error) {
	s.buf = append(s.buf, p...)
	if len(s.buf) < maxSpill {
		return len(p), nil
	}
	return len(p), s.flush()
}

func (s *spill) flush() error {
	if s.file == nil {
		f, err := os.CreateTemp("", "jail-diff-")
		if err != nil {
			return exit.Failed(err, "make room below the directory for temporary files, TMPDIR",
				"hold back a long list: %v", exit.Cause(err))
		}
		if err := os.Remove(f.Name()); err != nil {
			return errors.Join(err, f.Close())
		}
		s.file = f
	}
	_, err := s.file.Write(s.buf)
	s.buf = s.buf[:0]
	return err
}

// copyTo writes the buffered text to w and empties the spill.
func (s *spill) copyTo(w io.Writer) error {
	if s.file != nil {
		defer s.close()
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(w, s.file); err != nil {
			return err
		}
	}
	_, err := w.Write(s.buf)
	s.buf = nil
	return err
}

func (s *spill) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}
