package syntax

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/jail-sandbox/jail/policy"
)

// values reads values by type, records their positions, and reports those of a wrong type.
type values struct {
	draft *draft
	errs  *Errors
}

// keys calls the function of each key of a table, and reports unknown keys. Case matters.
func (r *values) keys(path string, t *node, known map[string]func(key string, v *node)) {
	for _, name := range t.keys {
		if r.errs.full() {
			return
		}
		v := t.get(name)
		key := join(path, name)
		if read, ok := known[name]; ok {
			r.draft.at[key] = v.pos
			read(key, v)
			continue
		}
		r.errs.add(t.keyAt[name], r.hintFor(path, name, slices.Sorted(maps.Keys(known))),
			"unknown key %s", quoteKey(path, name))
	}
}

func (r *values) hintFor(path, name string, known []string) string {
	if slices.Contains(known, strings.ToLower(name)) {
		return "keys are in lower case: write `" + strings.ToLower(name) + "`"
	}
	if hint := DidYouMean(name, known); hint != "" {
		return hint
	}
	for _, k := range Keys() {
		if section, key, _ := cutLast(k.Path); key == name && section != path {
			return "`" + name + "` belongs to " + sectionName(section)
		}
	}
	return "there are " + strings.Join(known, ", ")
}

func quoteKey(path, name string) string {
	if path == "" {
		return strconv.Quote(name)
	}
	return strconv.Quote(name) + " in [" + path + "]"
}

func sectionName(section string) string {
	if section == "" {
		return "the top of the file, before any [section]"
	}
	return "[" + section + "]"
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func cutLast(path string) (section, key string, found bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

func (r *values) wrongType(key string, v *node, want string) {
	r.errs.add(v.pos, "", "%s is %s, and must be %s", key, v.kindWord(), want)
}

// report adds err as an error about a value. It reports whether err is nil.
func (r *values) report(key string, v *node, err error) bool {
	if err != nil {
		r.errs.add(v.pos, "", "%s: %v", key, err)
	}
	return err == nil
}

func (r *values) str(key string, v *node) (string, bool) {
	if v.kind != unstable.String {
		r.wrongType(key, v, "a string")
		return "", false
	}
	return v.text, true
}

// each calls read for each item of a list, and records the item's position.
func (r *values) each(key string, v *node, of string, read func(key string, v *node)) {
	if v.kind != unstable.Array {
		r.wrongType(key, v, "a list of "+of)
		return
	}
	if r.tooMany(key, v, len(v.items)) {
		return
	}
	for i, item := range v.items {
		if r.errs.full() {
			return
		}
		itemKey := indexed(key, i)
		r.draft.at[itemKey] = item.pos
		read(itemKey, item)
	}
}

// tooMany reports whether a list, or a table with free keys, is longer than a policy allows. It
// adds an error then, and nothing of it is read.
func (r *values) tooMany(key string, v *node, n int) bool {
	if n > policy.MaxItems {
		r.errs.add(v.pos, "", "%s has %d items: at most %d", key, n, policy.MaxItems)
	}
	return n > policy.MaxItems
}

// texts reads a list of distinct strings that check accepts.
func (r *values) texts(key string, v *node, check func(string) error) []string {
	out, seen := []string{}, map[string]bool{}
	r.each(key, v, "strings", func(itemKey string, item *node) {
		text, ok := r.str(itemKey, item)
		if !ok || !r.report(itemKey, item, check(text)) {
			return
		}
		if seen[text] {
			r.errs.add(item.pos, "", "%s: %q is in the list twice", itemKey, text)
			return
		}
		out, seen[text] = append(out, text), true
		r.says(key, text, item.pos)
	})
	return out
}

// says records the position of a list item by its text, in the words in which a policy.Decision
// names the rule.
func (r *values) says(key, text string, pos Position) {
	if !strings.HasPrefix(key, r.draft.section.prefix) {
		key = r.draft.section.prefix + key
	}
	r.draft.at[key+" "+strconv.Quote(text)] = pos
}

// globs reads a list of patterns that check accepts.
func (r *values) globs(key string, v *node, check func(policy.Glob) error) policy.Globs {
	out := policy.Globs{}
	r.texts(key, v, func(text string) error {
		g, err := policy.ParseGlob(text)
		if err == nil {
			err = check(g)
		}
		if err == nil {
			out = append(out, g)
		}
		return err
	})
	return out
}

// table reads a table by its keys.
func (r *values) table(key string, v *node, known map[string]func(string, *node)) {
	if v.kind != unstable.InlineTable {
		r.wrongType(key, v, "a table")
		return
	}
	r.keys(key, v, known)
}

// flag reads a boolean.
func (r *values) flag(key string, v *node, into *bool) {
	if v.kind != unstable.Bool {
		r.wrongType(key, v, "true or false")
		return
	}
	*into = v.text == "true"
}

// A choice is a value of a type with a word for each value.
type choice interface {
	Choices() []string
	UnmarshalText([]byte) error
}

// oneOf returns a function that reads a string that is one of the words of a type.
func (r *values) oneOf(into choice) func(string, *node) {
	return func(key string, v *node) {
		text, ok := r.str(key, v)
		if !ok || into.UnmarshalText([]byte(text)) == nil {
			return
		}
		hint := cmp.Or(DidYouMean(text, into.Choices()),
			"it is one of "+strings.Join(into.Choices(), ", "))
		r.errs.add(v.pos, hint, "%s: %q is no value that it can have", key, text)
	}
}

// limit reads a limit in its unit: counts are whole numbers, CPUs any number, sizes and durations
// strings with a unit.
func (r *values) limit(key string, v *node, unit policy.Unit, into *int64) {
	text, want := v.text, ""
	switch {
	case unit == policy.Count && v.kind == unstable.Integer:
		n, ok := v.integer()
		if !ok {
			r.errs.add(v.pos, "", "%s: %s is too large", key, v.text)
			return
		}
		text = strconv.FormatInt(n, 10)
	case unit == policy.Count:
		want = "a whole number, such as 32"
	case unit == policy.Cores && (v.kind == unstable.Integer || v.kind == unstable.Float):
		text = strings.ReplaceAll(v.text, "_", "")
	case unit == policy.Cores:
		want = "a number, such as 1.5"
	case v.kind == unstable.String:
	case unit == policy.Bytes:
		want = "a string with a unit, such as \"256MiB\""
	default:
		want = "a string with a unit, such as \"30s\""
	}
	if want != "" {
		r.wrongType(key, v, want)
	} else if n, err := unit.Parse(text); r.report(key, v, err) {
		*into = n
	}
}

// indexed returns the name of an item of a list, as key[i].
func indexed(key string, i int) string { return key + "[" + strconv.Itoa(i) + "]" }
