package syntax

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// takenOut is an item of [without]: an inherited list item to remove.
type takenOut struct {
	// the key of the list and the item's text
	key, item string
	pos       Position
}

// withoutLists are the lists from which items can be removed, with a description of their items.
var withoutLists = []struct{ section, key, about string }{
	{"", "mount", "targets of mounts"},
	{"", "limits", "names of limits"},
	{"", "tool", "patterns of sections of tools"},
	{"workspace", "hide", "patterns"},
	{"workspace", "protect", "patterns"},
	{"tools", "allow", "patterns"},
	{"tools", "modules", "patterns"},
	{"tools", "native", "patterns"},
	{"fetch", "allow", "hosts, as the rules name them"},
	{"fetch", "deny", "hosts, as the rules name them"},
	{"env", "set", "names of variables"},
	{"env", "pass", "patterns"},
	{"env", "allow", "patterns"},
	{"syscalls", "groups", "names of groups"},
	{"agent", "bindings", "names of bindings"},
}

// without reads [without], which has the sections and lists of the file itself, with the items to
// remove.
func (r *reader) without(key string, v *node) {
	sections := map[string]map[string]func(string, *node){}
	known := map[string]func(string, *node){}
	for _, l := range withoutLists {
		read := func(k string, v *node) {
			list := join(l.section, l.key)
			r.texts(k, v, func(string) error { return nil })
			for _, item := range v.items[:min(len(v.items), policy.MaxItems)] {
				if item.text != "" {
					r.draft.without = append(r.draft.without, takenOut{list, item.text, item.pos})
				}
			}
		}
		if l.section == "" {
			known[l.key] = read
			continue
		}
		if sections[l.section] == nil {
			sections[l.section] = map[string]func(string, *node){}
		}
		sections[l.section][l.key] = read
	}
	for section, keys := range sections {
		known[section] = func(k string, v *node) { r.table(k, v, keys) }
	}
	r.table(key, v, known)
}

// takeOut removes the items in d's [without] from what d inherits. An item that is not there is an
// error, since the author believes that it is.
func (d *draft) takeOut(base *draft, errs *Errors) {
	for _, t := range d.without {
		have := base.items(t.key)
		name := sameItem(t.key, t.item)
		if !slices.Contains(have, name) {
			hint := DidYouMean(t.item, have)
			if hint == "" && len(have) > 0 {
				hint = "inherited are " + strings.Join(firstFew(have), ", ")
			}
			errs.add(t.pos, hint,
				"without.%s: %q takes nothing out, since no policy that is included has it", t.key,
				t.item)
			continue
		}
		base.remove(t.key, name)
	}
}

func firstFew(all []string) []string {
	if len(all) > 8 {
		return append(all[:8:8], "…")
	}
	return all
}

// sameItem returns a form of an item that is equal for all its spellings.
func sameItem(key, item string) string {
	if key == "fetch.allow" || key == "fetch.deny" {
		if h, err := policy.ParseHost(item); err == nil {
			return h.String()
		}
	} else if policy.FieldOf(key).CheckGlob != nil {
		if g, err := policy.ParseGlob(item); err == nil {
			return g.String()
		}
	}
	return item
}

// items returns the names of the items in a list.
func (d *draft) items(key string) []string {
	p := &d.policy
	var out []string
	switch key {
	case "mount":
		for _, m := range p.Mounts {
			out = append(out, m.Target)
		}
	case "limits":
		for _, name := range policy.LimitNames() {
			if d.has("limits." + name) {
				out = append(out, name)
			}
		}
	case "tool":
		for _, t := range d.tools {
			out = append(out, t.section.tool.String())
		}
	case "fetch.allow":
		for _, r := range p.Fetch.Allow {
			out = append(out, r.Host.String())
		}
	case "fetch.deny":
		for _, r := range p.Fetch.Deny {
			out = append(out, r.Host.String())
		}
	case "env.set":
		out = slices.Sorted(maps.Keys(p.Env.Set.Values))
	default:
		switch list := policy.FieldOf(key).At(p).(type) {
		case *[]string:
			out = *list
		case *policy.Globs:
			out = list.Strings()
		}
	}
	return slices.Clone(out)
}

// remove removes each item called name from a list, with its positions.
func (d *draft) remove(key, name string) {
	p := &d.policy
	switch key {
	case "mount":
		for i := len(p.Mounts) - 1; i >= 0; i-- {
			if p.Mounts[i].Target == name {
				delete(d.at, "mount "+strconv.Quote(p.Mounts[i].String()))
				p.Mounts, d.mountAt = slices.Delete(p.Mounts, i, i+1), slices.Delete(d.mountAt, i,
					i+1)
			}
		}
	case "limits":
		p.Limits.Put(name, 0)
		delete(d.at, "limits."+name)
	case "tool":
		d.tools = slices.DeleteFunc(d.tools, func(t *draft) bool {
			return t.section.tool.String() == name
		})
	case "fetch.allow":
		p.Fetch.Allow = slices.DeleteFunc(slices.Clone(p.Fetch.Allow),
			func(r policy.FetchRule) bool { return r.Host.String() == name })
	case "fetch.deny":
		p.Fetch.Deny = slices.DeleteFunc(slices.Clone(p.Fetch.Deny),
			func(r policy.FetchDeny) bool { return r.Host.String() == name })
	case "env.set":
		delete(p.Env.Set.Values, name)
		delete(d.at, "env.set."+name)
	default:
		switch list := policy.FieldOf(key).At(p).(type) {
		case *[]string:
			*list = slices.DeleteFunc(slices.Clone(*list),
				func(s string) bool { return s == name })
		case *policy.Globs:
			*list = slices.DeleteFunc(slices.Clone(*list),
				func(g policy.Glob) bool { return g.String() == name })
		}
	}
	delete(d.at, key+" "+strconv.Quote(name))
}

// withoutKeys returns the keys of [without].
func withoutKeys() []Key {
	var out []Key
	for _, l := range withoutLists {
		path := join(l.section, l.key)
		out = append(out, Key{"without." + path, "[…]",
			fmt.Sprintf("takes out of %s what is inherited: %s", path, l.about)})
	}
	return out
}
