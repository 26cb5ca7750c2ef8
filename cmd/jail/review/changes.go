package review

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/terminal"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// marks maps each kind of change to its letter and colour.
var marks = map[workspace.Kind][2]string{
	workspace.Added: {"A", terminal.Green}, workspace.Modified: {"M", terminal.Cyan},
	workspace.Deleted: {"D", terminal.Red},
	workspace.Mode:    {"m", terminal.Cyan}, workspace.Retyped: {"T", terminal.Cyan},
	workspace.Relinked: {"L", terminal.Cyan},
}

// shownPath returns a path as the commands show it: escaped, and "." for the directory itself.
func shownPath(p workspace.Name) string {
	if p == "" {
		return "."
	}
	return p.String()
}

// ranks is the number of ranks that attention returns.
const ranks = 5

// attention returns why a change needs attention, or "", and its rank: 0 for refused changes, then
// conflicts, protected names, risks, and 4 for all others.
func attention(c api.Change) (why string, rank int) {
	switch {
	case c.Refused != "":
		return "refused: " + c.Refused, 0
	case c.Conflict != "":
		return "conflict: " + c.Conflict, 1
	case c.Protected != "":
		return "protected: " + c.Protected + moreRisks(c, 1), 2
	case len(c.Risks) > 0 && c.Risks[0].Hold:
		return "protected: " + c.Risks[0].Why + moreRisks(c, 1), 2
	case len(c.Risks) > 0:
		return string(c.Risks[0].Class) + ": " + c.Risks[0].Why + moreRisks(c, 1), 3
	case c.Outside:
		return "the link leads out of the workspace", 3
	}
	return "", 4
}

// moreRisks returns "; " and the classes of c.Risks[n:] that no earlier risk has, "" for none.
func moreRisks(c api.Change, n int) string {
	var more []string
	n = min(n, len(c.Risks))
	for _, r := range c.Risks[n:] {
		known := slices.ContainsFunc(c.Risks[:n],
			func(k workspace.Risk) bool { return k.Class == r.Class })
		if class := string(r.Class); !known && !slices.Contains(more, class) {
			more = append(more, class)
		}
	}
	if more == nil {
		return ""
	}
	return "; " + strings.Join(more, ", ")
}

// sideText describes one side of a conflict. A nil node is "nothing".
func sideText(n *workspace.Node) string {
	switch {
	case n == nil:
		return "nothing"
	case n.Type == workspace.File && n.SHA256 != "":
		return fmt.Sprintf("file %04o, %s, sha256:%s", n.Mode, output.Size(n.Size), n.SHA256)
	case n.Type == workspace.File:
		return fmt.Sprintf("file %04o, %s", n.Mode, output.Size(n.Size))
	case n.Type == workspace.Link:
		return "link to " + n.Target.String()
	case n.Type == workspace.Dir:
		return fmt.Sprintf("directory %04o", n.Mode)
	}
	return fmt.Sprintf("%s %04o", n.Type, n.Mode)
}

// changeLine describes a change in one line: its mark, path, details, and why it needs attention.
func changeLine(colour bool, c api.Change) string {
	mark := marks[c.Kind]
	text := terminal.Paint(colour, mark[1], cmp.Or(mark[0], "?")) + " " + shownPath(c.Path)
	if detail := changeDetail(c.Change); detail != "" {
		text += "  (" + detail + ")"
	}
	if why, _ := attention(c); why != "" {
		text += "  " + terminal.Paint(colour, terminal.Amber, "! "+output.Printable(why))
	}
	return text
}

func changeDetail(c workspace.Change) string {
	var parts []string
	b, a := c.Before, c.After
	switch {
	case a == nil:
	case b == nil || b.Type != a.Type:
		parts = append(parts, nodeText(a))
	case a.Type == workspace.File && b.Size != a.Size:
		parts = append(parts, output.Size(b.Size)+" to "+output.Size(a.Size))
	}
	if a != nil && b != nil && a.Mode != b.Mode && a.Type != workspace.Link {
		parts = append(parts, fmt.Sprintf("mode %04o to %04o", b.Mode, a.Mode))
	}
	if a != nil && c.Binary && a.Type == workspace.File && a.SHA256 != "" {
		parts = append(parts, "binary, sha256:"+a.SHA256[:min(len(a.SHA256), 16)]+"…")
	}
	if c.Merged {
		parts = append(parts, "merged")
	}
	if a != nil && b != nil && a.Type == workspace.Link && b.Type == workspace.Link {
		parts = append(parts, "to "+a.Target.String())
	}
	for _, s := range c.Scripts {
		sign := "~"
		switch {
		case s.Before == nil:
			sign = "+"
		case s.After == nil:
			sign = "-"
		}
		parts = append(parts, sign+output.Printable(s.Name))
	}
	return strings.Join(parts, ", ")
}

func nodeText(n *workspace.Node) string {
	switch n.Type {
	case workspace.File:
		if n.Mode&0o111 != 0 {
			return "executable, " + output.Size(n.Size)
		}
		return output.Size(n.Size)
	case workspace.Link:
		return "link to " + n.Target.String()
	case workspace.Dir:
		return "directory"
	}
	return string(n.Type)
}

// patchPainter colours a patch line by line. The patch comes in parts that may end within a line.
type patchPainter struct{ rest []byte }

func (p *patchPainter) write(w io.Writer, part []byte, colour bool) error {
	if !colour {
		_, err := w.Write(part)
		return err
	}
	p.rest = append(p.rest, part...)
	for {
		line, rest, ok := bytes.Cut(p.rest, []byte("\n"))
		if !ok {
			return nil
		}
		if _, err := io.WriteString(w, paintPatchLine(string(line))+"\n"); err != nil {
			return err
		}
		p.rest = rest
	}
}

func (p *patchPainter) flush(w io.Writer, colour bool) error {
	if len(p.rest) == 0 {
		return nil
	}
	_, err := io.WriteString(w, paintPatchLine(string(p.rest))+"\n")
	p.rest = nil
	return err
}

func paintPatchLine(line string) string {
	switch {
	case strings.HasPrefix(line, "+++ "), strings.HasPrefix(line, "--- "), strings.HasPrefix(line,
		"diff "):
		return terminal.Paint(true, terminal.Bold, line)
	case strings.HasPrefix(line, "+"):
		return terminal.Paint(true, terminal.Green, line)
	case strings.HasPrefix(line, "-"):
		return terminal.Paint(true, terminal.Red, line)
	case strings.HasPrefix(line, "@@"):
		return terminal.Paint(true, terminal.Cyan, line)
	}
	return line
}
