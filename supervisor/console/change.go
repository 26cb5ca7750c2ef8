package console

import (
	"fmt"
	"strings"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// kindWord returns a word for a kind of change.
func kindWord(k workspace.Kind) string {
	switch k {
	case workspace.Retyped:
		return "another type"
	case workspace.Relinked:
		return "another target"
	}
	return text(string(k))
}

// kindClass returns the CSS class for a kind of change.
func kindClass(k workspace.Kind) string {
	if k == workspace.Added || k == workspace.Deleted {
		return string(k)
	}
	return "other"
}

// describe returns a change as a page shows it, without its differences.
func describe(c api.Change) change {
	out := change{Path: path(c.Path), Value: escaped(c.Path.String()), Kind: c.Kind,
		Detail: detail(c.Change)}
	say := func(grave bool, format string, args ...any) {
		out.Why = append(out.Why, fmt.Sprintf(format, args...))
		out.Grave = out.Grave || grave
	}
	if c.Refused != "" {
		out.Shut = text(c.Refused)
		say(true, "never committed: %s", text(c.Refused))
	}
	if c.Conflict != "" {
		say(true, "conflict: %s", text(c.Conflict))
	}
	if c.Protected != "" {
		out.Held = true
		say(true, "protected: %s", text(c.Protected))
	}
	for _, r := range c.Risks {
		if r.Hold && r.Why == c.Protected {
			continue
		}
		out.Held = out.Held || r.Hold
		say(r.Hold, "%s: %s", text(string(r.Class)), text(r.Why))
	}
	if c.Outside && len(c.Risks) == 0 {
		say(false, "the link leads out of the workspace")
	}
	for _, s := range c.Scripts {
		say(false, "command of a package manager: %s%s", text(s.Name), sides(s))
	}
	switch {
	case c.Binary && c.After != nil && c.After.SHA256 != "":
		out.Note = "Binary: sha256:" + text(c.After.SHA256)
	case c.Kind == workspace.Deleted:
		out.Note = "It is deleted."
	case c.Refused != "":
		out.Note = "It is never committed, and its content is not shown."
	}
	return out
}

func sides(s workspace.Script) string {
	switch {
	case s.Before == nil && s.After != nil:
		return " becomes " + raw(cut(*s.After, maxValue))
	case s.After == nil:
		return " is removed"
	case s.Before != nil:
		return " becomes " + raw(cut(*s.After, maxValue)) + ", it was " + raw(cut(*s.Before,
			maxValue))
	}
	return ""
}

// detail returns what changed besides the content: type, size, target and mode.
func detail(c workspace.Change) string {
	var parts []string
	b, a := c.Before, c.After
	switch {
	case a == nil:
	case b == nil || b.Type != a.Type:
		parts = append(parts, node(a))
	case a.Type == workspace.File && b.Size != a.Size:
		parts = append(parts, size(b.Size)+" to "+size(a.Size))
	case a.Type == workspace.Link:
		parts = append(parts, "to "+escaped(a.Target.String()))
	}
	if a != nil && b != nil && a.Mode != b.Mode && a.Type != workspace.Link {
		parts = append(parts, fmt.Sprintf("mode %04o to %04o", b.Mode, a.Mode))
	}
	if c.Merged {
		parts = append(parts, "merged")
	}
	return strings.Join(parts, ", ")
}

func node(n *workspace.Node) string {
	switch n.Type {
	case workspace.File:
		if n.Mode&0o111 != 0 {
			return fmt.Sprintf("executable file, %04o, %s", n.Mode, size(n.Size))
		}
		return fmt.Sprintf("file, %04o, %s", n.Mode, size(n.Size))
	case workspace.Link:
		return "link to " + escaped(n.Target.String())
	case workspace.Dir:
		return fmt.Sprintf("directory, %04o", n.Mode)
	}
	return text(string(n.Type))
}
