package review

import (
	"fmt"

	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/jail/gitrepo"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// gitFold holds back git's own files, until it is known whether jail understood each repository:
// the reports of the repositories sum these files up.
type gitFold struct {
	list, patch spill
	painter     patchPainter
	// count is the number of changes, bytes their size.
	count int
	bytes int64
	// open says that the current change is one of these.
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

// showGit writes what changed in repositories. folded reports whether that replaces the list of the
// changes that were held back.
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

// gitLabel names a repository, unless it is that of the directory.
func gitLabel(r gitrepo.Report) string {
	if r.Path == ".git" {
		return "git:"
	}
	return "git " + output.Printable(r.Path) + ":"
}
