package learn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// A Base is a policy file that what is learned is merged into. Its grants stay.
type Base struct {
	Text   string
	Policy policy.Policy
}

// grants reports whether the base already grants an item.
func (b Base) grants(i Item) bool {
	p := b.Policy
	switch i.Kind {
	case KindMount:
		return policy.Mounts{i.Mount}.LessEq(p.Mounts)
	case KindTool:
		return globbed(p.Tools.Allow, i.Name)
	case KindModule:
		return globbed(p.Tools.Modules, i.Name)
	case KindNative:
		return globbed(p.Tools.Native, i.Name)
	case KindGroup:
		return p.Syscalls.Has(i.Name)
	case KindEnv:
		// The base's value for a variable stays.
		name, _, _ := strings.Cut(i.Name, "=")
		_, ok := p.Env.Set.Values[name]
		return ok
	case KindGiven:
		return p.Env.Allow.Match(i.Name)
	case KindFetch:
		return i.Rule.within(p)
	}
	return false
}

func globbed(all policy.Globs, name string) bool {
	g, err := policy.ParseGlob(name)
	return err == nil && policy.Globs{g}.LessEq(all)
}

// within reports whether a policy grants all requests of a rule.
func (r Rule) within(p policy.Policy) bool {
	for _, port := range r.Ports {
		for _, method := range r.Methods {
			for _, path := range r.Paths {
				ok := false
				for _, have := range p.Fetch.Allow {
					g, err := policy.ParseGlob(path)
					m, merr := policy.ParseGlob(method)
					host, herr := policy.ParseHost(r.Host)
					ok = ok || err == nil && merr == nil && herr == nil && host.LessEq(have.Host) &&
						have.Ports.Has(port) &&
						policy.Globs{m}.LessEq(have.Methods) && policy.Globs{g}.LessEq(have.Paths)
				}
				if !ok {
					return false
				}
			}
		}
	}
	return true
}

// Missing returns the draft with only the items that the base does not grant.
func (b Base) Missing(d Draft) Draft {
	d = d.with(slices.DeleteFunc(slices.Clone(d.Items), b.grants))
	d.Access = max(d.Access, b.Policy.Workspace.Access)
	return d
}

// Merged returns the text of the base with the items of a draft added. All other bytes stay. It
// fails if an item can only be added by hand.
func (b Base) Merged(d Draft) (string, error) {
	text := []byte(b.Text)
	edits, tables := b.edits(d)
	var err error
	for _, e := range edits {
		if text, err = e.Apply(text); err != nil {
			return "", fmt.Errorf("%s: %w", strings.Join(e.Lines(), " "), err)
		}
	}
	out := string(text)
	if len(edits) == 0 && tables == "" {
		return out, nil
	}
	return strings.TrimRight(out, "\n") + "\n\n" + mergedNote(d) + tables, nil
}

func mergedNote(d Draft) string {
	w := &text{}
	w.comment("Learnt besides from " + d.Run)
	if d.Lessons != "" {
		w.comment(d.Lessons)
	}
	for _, i := range d.Items {
		if i.Kind != KindMount && i.Kind != KindFetch {
			w.comment("  " + string(i.Kind) + " " + i.Name + ": " + i.Why)
		}
	}
	if len(d.Person) > 0 {
		w.comment("Not granted, needs a person:")
		for _, n := range d.Person {
			w.comment("  " + n)
		}
	}
	return w.out.String()
}

// edits returns the edits of existing lines, and the tables to append.
func (b Base) edits(d Draft) (edits []syntax.Edit, tables string) {
	if d.Access > b.Policy.Workspace.Access {
		edits = append(edits, syntax.SetKey("workspace", "access", d.Access.String()))
	}
	if d.Writes && d.Access == policy.WorkspaceShadow &&
		b.Policy.Workspace.Commit == policy.CommitNever {
		edits = append(edits, syntax.SetKey("workspace", "commit", "ask"))
	}
	for _, i := range d.Items {
		switch i.Kind {
		case KindTool, KindModule, KindNative, KindGroup, KindGiven:
			section, key, _ := strings.Cut(string(i.Kind), ".")
			edits = append(edits, syntax.AddItem(section, key, i.Name))
		case KindEnv:
			name, value, _ := strings.Cut(i.Name, "=")
			edits = append(edits,
				syntax.Edit{Section: "env.set", Key: name, Value: syntax.Quote(value)})
		}
	}
	for _, l := range d.Limits {
		if f := l.field(); l.Value > f.Amount(b.Policy) {
			edits = append(edits, syntax.SetLimit(l.Section, l.Name, f.Unit, l.Value))
		}
	}
	w := &text{}
	w.mounts(d)
	w.rules(d)
	return edits, w.out.String()
}
