package learn

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// Text returns the draft as a policy file, with the evidence next to each line. It fails if the
// draft is no valid policy.
func (d Draft) Text() (string, error) {
	w := &text{}
	w.comment(d.Run)
	if d.Lessons != "" {
		w.line("#")
		w.comment(d.Lessons)
	}
	w.line("")
	w.line("policy = 1")
	w.line("name = %s", syntax.Quote(d.Name))
	w.line("about = %s", syntax.Quote(d.About))
	w.workspace(d)
	w.mounts(d)
	w.limits(d, "limits")
	w.tools(d)
	w.fetch(d)
	w.env(d)
	w.line("")
	w.line("[syscalls]")
	w.list("groups", d.Of(KindGroup))
	w.notes("Not granted, needs a person:", slices.Concat(d.Person, d.Never))
	w.notes("Not observed:", d.Unseen)
	out := w.out.String()
	if _, err := syntax.Parse(syntax.Profile, d.Name+".toml", []byte(out), nil); err != nil {
		return out, err
	}
	return out, nil
}

type text struct{ out strings.Builder }

func (w *text) line(format string, args ...any) { fmt.Fprintf(&w.out, format+"\n", args...) }

// comment writes each line of s as a comment. It escapes unprintable characters, so that text that
// a tool chose cannot end the comment.
func (w *text) comment(s string) {
	for line := range strings.SplitSeq(s, "\n") {
		w.line("# %s", plain(line))
	}
}

// plain escapes unprintable characters.
func plain(s string) string {
	q := strconv.QuoteToGraphic(s)
	q = strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
	return strings.ReplaceAll(q, `\\`, `\`)
}

func (w *text) notes(title string, all []string) {
	if len(all) == 0 {
		return
	}
	w.line("")
	w.comment(title)
	for _, n := range all {
		w.comment("  " + n)
	}
}

func (w *text) workspace(d Draft) {
	if d.Access == policy.WorkspaceNone {
		return
	}
	w.line("")
	w.line("[workspace]")
	if d.Files != "" {
		w.comment(d.Files)
	}
	w.line("access = %s", syntax.Quote(d.Access.String()))
	if d.hides() {
		w.comment("Names that usually hold secrets. The runs that this was learnt from did not " +
			"see them. To show one needs a person.")
		w.line("hide = %s", syntax.List(secrets()))
	}
	switch {
	case d.Access == policy.WorkspaceShadow && d.Writes:
		w.line("commit = \"ask\"")
	case d.Access == policy.WorkspaceShadow:
		w.line("commit = \"never\"")
	}
}

// hides reports whether secrets in the workspace can be hidden. A program of the host that reads
// the directory itself sees everything.
func (d Draft) hides() bool { return !d.Native || d.Access == policy.WorkspaceShadow }

func (w *text) mounts(d Draft) {
	for _, i := range d.Of(KindMount) {
		w.line("")
		w.comment(i.Why)
		w.line("%s", strings.Join(syntax.AddMount(i.Mount).Lines(), "\n"))
	}
}

func (w *text) limits(d Draft, section string) {
	first := true
	for _, l := range d.Limits {
		if l.Section != section {
			continue
		}
		if first {
			w.line("")
			w.line("[%s]", section)
		}
		first = false
		w.line("%-32s # %s", l.Name+" = "+Amount(l), plain(l.Why))
	}
}

// Amount returns the value of a limit as files have it.
func Amount(l LimitLine) string {
	return syntax.Amount(l.field().Unit, l.Value)
}

// list writes a list with each item on its own line, with its evidence.
func (w *text) list(key string, items []Item) {
	if len(items) == 0 {
		w.line("%s = []", key)
		return
	}
	w.line("%s = [", key)
	for _, i := range items {
		w.line("    %-36s # %s", syntax.Quote(i.Name)+",", plain(i.Why))
	}
	w.line("]")
}

func (w *text) tools(d Draft) {
	w.line("")
	w.line("[tools]")
	for _, x := range []struct {
		key  string
		kind Kind
	}{{"allow", KindTool}, {"modules", KindModule}, {"native", KindNative}} {
		if items := d.Of(x.kind); len(items) > 0 {
			w.list(x.key, items)
		}
	}
}

func (w *text) fetch(d Draft) {
	w.rules(d)
	w.limits(d, "fetch.limits")
}

func (w *text) rules(d Draft) {
	for _, i := range d.Of(KindFetch) {
		w.line("")
		w.comment(i.Why)
		w.line("[[fetch.allow]]")
		w.line("host = %s", syntax.Quote(i.Rule.Host))
		var ports []string
		for _, p := range i.Rule.Ports {
			ports = append(ports, strconv.Itoa(int(p)))
		}
		w.line("ports = [%s]", strings.Join(ports, ", "))
		w.line("methods = %s", syntax.List(i.Rule.Methods))
		w.line("paths = %s", syntax.List(i.Rule.Paths))
		if i.Rule.Opaque {
			w.line("tls = \"opaque\"")
		}
	}
}

func (w *text) env(d Draft) {
	if given := d.Of(KindGiven); len(given) > 0 {
		w.line("")
		w.line("[env]")
		w.list("allow", given)
	}
	items := d.Of(KindEnv)
	if len(items) == 0 {
		return
	}
	w.line("")
	w.line("[env.set]")
	for _, i := range items {
		name, value, _ := strings.Cut(i.Name, "=")
		w.line("%-36s # %s", name+" = "+syntax.Quote(value), plain(i.Why))
	}
}
