package syntax

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// An Edit is one change to the text of a policy that leaves all the rest of it as it is,
// comments and order included.
type Edit struct {
	// "tools", "fetch.limits", "" for the keys above all sections
	Section string
	// "allow"; of a Table a name for it
	Key string
	// Lines of a [[section]] are put at the end
	Table bool
	// Value is put into the list that Key has, and replaces nothing
	Item  bool
	Value string // as TOML
	lines []string
	apply func(*policy.Policy) error
}

// errEdit is wrapped by what Apply returns for a text that it cannot change.
var errEdit = errors.New("the text cannot be changed")

// SetKey sets a key to a word.
func SetKey(section, key, word string) Edit {
	return Edit{Section: section, Key: key, Value: Quote(word),
		apply: func(p *policy.Policy) error {
			if into, ok := policy.FieldOf(section + "." + key).At(p).(policy.Word); ok {
				return into.UnmarshalText([]byte(word))
			}
			return fmt.Errorf("%w: %s.%s", errEdit, section, key)
		}}
}

// SetLimit sets a limit to an amount.
func SetLimit(section, key string, unit policy.Unit, n int64) Edit {
	return Edit{Section: section, Key: key, Value: Amount(unit, n), apply: func(p *policy.Policy) error {
		if limit, ok := policy.FieldOf(section + "." + key).At(p).(*int64); ok {
			*limit = n
			return nil
		}
		return fmt.Errorf("%w: %s.%s is no limit", errEdit, section, key)
	}}
}

// AddItem puts a text into a list.
func AddItem(section, key, item string) Edit {
	return Edit{Section: section, Key: key, Item: true, Value: Quote(item),
		apply: func(p *policy.Policy) error {
			switch list := policy.FieldOf(section + "." + key).At(p).(type) {
			case *[]string:
				*list = append(slices.Clone(*list), item)
			case *policy.Globs:
				g, err := policy.ParseGlob(item)
				if err != nil {
					return errors.Join(errEdit, err)
				}
				*list = append(slices.Clone(*list), g)
			default:
				return fmt.Errorf("%w: %s.%s is no list", errEdit, section, key)
			}
			return nil
		}}
}

// AddMount adds a [[mount]].
func AddMount(m policy.Mount) Edit {
	w := &writer{kind: Profile}
	w.mounts(policy.Mounts{m})
	return Edit{Section: "mount", Key: "mount", Table: true, lines: tableLines(w),
		apply: func(p *policy.Policy) error {
			p.Mounts = append(slices.Clone(p.Mounts), m)
			return p.Check()
		}}
}

// AddRule adds a [[fetch.allow]] for one request, or for a host and port where no more is asked.
func AddRule(q policy.Connect) Edit {
	host, err := policy.ParseHost(q.Host)
	rule := Profile.emptyRule()
	rule.Host, rule.Ports = host, policy.OnePort(q.Port)
	w := &writer{kind: Profile}
	w.section("[fetch.allow]")
	w.line("host = %s", Quote(q.Host))
	w.line("ports = [%d]", q.Port)
	if q.Method != "" {
		rule.Methods = policy.Globs{}
		if g, gerr := policy.ParseGlob(q.Method); gerr == nil {
			rule.Methods = policy.Globs{g}
		}
		g, gerr := policy.ParseGlob(q.Path)
		if err = errors.Join(err, gerr); gerr == nil {
			rule.Paths = policy.Globs{g}
		}
		w.line("methods = [%s]", Quote(q.Method))
		w.line("paths = [%s]", Quote(q.Path))
	}
	return Edit{Section: "fetch.allow", Key: "fetch.allow", Table: true, lines: tableLines(w),
		apply: func(p *policy.Policy) error {
			if err != nil {
				return err
			}
			// Base says the limits, which count from the first rule on.
			if len(p.Fetch.Allow) == 0 {
				p.Fetch.Limits = policy.TopFetchLimits()
			}
			p.Fetch.Allow = append(slices.Clone(p.Fetch.Allow), rule)
			return p.Check()
		}}
}

// AddDeny adds a [[fetch.deny]] for a host, or for one path of it.
func AddDeny(q policy.Connect) Edit {
	host, err := policy.ParseHost(q.Host)
	w := &writer{kind: Profile}
	w.section("[fetch.deny]")
	w.line("host = %s", Quote(q.Host))
	return Edit{Section: "fetch.deny", Key: "fetch.deny", Table: true, lines: tableLines(w),
		apply: func(p *policy.Policy) error {
			if err == nil {
				p.Fetch.Deny = append(slices.Clone(p.Fetch.Deny), policy.DenyHost(host))
			}
			return err
		}}
}

func tableLines(w *writer) []string {
	return strings.Split(strings.Trim(w.out.String(), "\n"), "\n")
}

// Lines are what the edit writes, as a person would.
func (e Edit) Lines() []string {
	if e.Table {
		return e.lines
	}
	value := e.Value
	if e.Item {
		value = "[…, " + value + "]"
	}
	return []string{"[" + e.Section + "]", e.Key + " = " + value}
}

// ApplyTo makes the change to a policy that was read.
func (e Edit) ApplyTo(p policy.Policy) (policy.Policy, error) {
	if e.apply == nil {
		return p, errEdit
	}
	err := e.apply(&p)
	return p, err
}

// Apply makes the change to a text. What it returns is TOML again, and differs from text in
// nothing else; an edit that cannot be made so is an error.
func (e Edit) Apply(text []byte) ([]byte, error) {
	var errs Errors
	root := parseTree("", text, &errs)
	if root == nil || len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", errEdit, errs)
	}
	var out []byte
	switch section, v := e.find(root); {
	case e.Table:
		out = slices.Concat(endLine(text), []byte("\n"+strings.Join(e.lines, "\n")+"\n"))
	case v != nil && e.Item:
		out = intoList(text, offsetOf(text, section.keyAt[e.Key]), e.Value)
	case v != nil:
		out = replaceValue(text, offsetOf(text, section.keyAt[e.Key]), e.Value)
	default:
		value := e.Value
		if e.Item {
			value = "[" + value + "]"
		}
		out = intoSection(text, e.Section, section, e.Key+" = "+value)
	}
	errs = nil
	if after := parseTree("", out, &errs); out == nil || after == nil || len(errs) > 0 {
		return nil, fmt.Errorf("%w: it is written in a way that only a person can extend: %s",
			errEdit, strings.Join(e.Lines(), " "))
	}
	return out, nil
}

// Undo is the change that takes an edit of one key back: Value is what the key had before, "" where
// it had nothing. A key that has another value by then stays.
func (e Edit) Undo(text []byte, before string) ([]byte, error) {
	now, err := e.Now(text)
	if err != nil || now != e.Value {
		return text, err
	}
	if before != "" {
		e.Value = before
		return e.Apply(text)
	}
	var errs Errors
	section, _ := e.find(parseTree("", text, &errs))
	if e.Section != "" && !section.header {
		// Other keys may be on the line.
		return nil, fmt.Errorf("%w: %s", errEdit, strings.Join(e.Lines(), " "))
	}
	key := offsetOf(text, section.keyAt[e.Key])
	_, to, _ := valueAt(text, key)
	from := bytes.LastIndexByte(text[:key], '\n') + 1
	if i := bytes.IndexByte(text[to:], '\n'); i >= 0 {
		to += i + 1
	} else {
		to = len(text)
	}
	out := slices.Concat(text[:from], text[to:])
	if section.header && len(section.table) == 1 {
		out = dropHeader(out, offsetOf(text, section.pos))
	}
	errs = nil
	if after := parseTree("", out, &errs); after == nil || len(errs) > 0 {
		return nil, fmt.Errorf("%w: %s", errEdit, strings.Join(e.Lines(), " "))
	}
	return out, nil
}

// dropHeader takes out the header of a section that has nothing left in it, and the empty line above.
func dropHeader(text []byte, at int) []byte {
	from := bytes.LastIndexByte(text[:at], '\n') + 1
	to := len(text)
	if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
		to = at + i + 1
	}
	return slices.Concat(bytes.TrimSuffix(text[:from], []byte("\n")), text[to:])
}

// Now returns the value of the key as it is written in a text, "" where there is none.
func (e Edit) Now(text []byte) (string, error) {
	var errs Errors
	root := parseTree("", text, &errs)
	if root == nil || len(errs) > 0 {
		return "", fmt.Errorf("%w: %w", errEdit, errs)
	}
	section, v := e.find(root)
	if v == nil {
		return "", nil
	}
	from, to, ok := valueAt(text, offsetOf(text, section.keyAt[e.Key]))
	if !ok {
		return "", fmt.Errorf("%w: %s", errEdit, strings.Join(e.Lines(), " "))
	}
	return string(text[from:to]), nil
}

// find returns the table of the section, and the value of the key, nil where there is none.
func (e Edit) find(root *node) (section, v *node) {
	section = root
	if e.Section == "" {
		return section, section.get(e.Key)
	}
	for name := range strings.SplitSeq(e.Section, ".") {
		if section = section.get(name); section == nil || section.table == nil {
			return nil, nil
		}
	}
	return section, section.get(e.Key)
}

func endLine(text []byte) []byte {
	if len(text) == 0 || bytes.HasSuffix(text, []byte("\n")) {
		return text
	}
	return append(slices.Clone(text), '\n')
}

func offsetOf(text []byte, at Position) int {
	offset := 0
	for range at.Line - 1 {
		i := bytes.IndexByte(text[offset:], '\n')
		if i < 0 {
			return len(text)
		}
		offset += i + 1
	}
	return min(offset+at.Column-1, len(text))
}

// valueAt finds the value of the key that stands at an offset, ok is false where it cannot.
func valueAt(text []byte, key int) (from, to int, ok bool) {
	i := bytes.IndexByte(text[key:], '=')
	if i < 0 {
		return 0, 0, false
	}
	from = key + i + 1
	for from < len(text) && (text[from] == ' ' || text[from] == '\t') {
		from++
	}
	to, ok = valueEnd(text, from)
	return from, to, ok
}

// valueEnd is the end of the value that starts at an offset.
func valueEnd(text []byte, at int) (int, bool) {
	depth := 0
	for i := at; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' || c == '\'':
			end, ok := stringEnd(text, i)
			if !ok {
				return 0, false
			}
			if i = end - 1; depth == 0 {
				return end, true
			}
		case c == '#' || c == '\n':
			if depth == 0 {
				return len(bytes.TrimRight(text[:i], " \t\r")), true
			}
			for c == '#' && i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			if depth--; depth <= 0 {
				return i + 1, depth == 0
			}
		}
	}
	return len(text), depth == 0
}

// stringEnd is the end of the string that starts at an offset. Strings of several lines are
// left to people.
func stringEnd(text []byte, at int) (int, bool) {
	q := text[at]
	if bytes.HasPrefix(text[at:], []byte{q, q, q}) {
		return 0, false
	}
	for i := at + 1; i < len(text) && text[i] != '\n'; i++ {
		switch {
		case text[i] == '\\' && q == '"':
			i++
		case text[i] == q:
			return i + 1, true
		}
	}
	return 0, false
}

func replaceValue(text []byte, key int, value string) []byte {
	from, to, ok := valueAt(text, key)
	if !ok {
		return nil
	}
	return slices.Concat(text[:from], []byte(value), text[to:])
}

// intoList puts an item behind the last one of a list.
func intoList(text []byte, key int, item string) []byte {
	from, to, ok := valueAt(text, key)
	if !ok || text[from] != '[' {
		return nil
	}
	last, comma, empty := from+1, true, true
	for i := from + 1; i < to-1; i++ {
		switch c := text[i]; {
		case c == '#':
			for i < to-1 && text[i] != '\n' {
				i++
			}
		case c == '"' || c == '\'':
			end, ok := stringEnd(text, i)
			if !ok {
				return nil
			}
			last, comma, empty = end, false, false
			i = end - 1
		case c == ',':
			last, comma = i+1, true
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			last, comma, empty = i+1, false, false
		}
	}
	insert := ", " + item
	switch lead := leadOf(text, last, to); {
	case empty:
		insert = item
	case lead != "":
		// Behind what a comment on the line of the last item says of it.
		end := last + bytes.IndexByte(text[last:], '\n')
		if comma {
			return slices.Concat(text[:end], []byte(lead+item+","), text[end:])
		}
		return slices.Concat(text[:last], []byte(","), text[last:end], []byte(lead+item),
			text[end:])
	case comma:
		insert = " " + item
	}
	return slices.Concat(text[:last], []byte(insert), text[last:])
}

// leadOf is the line break and indentation of a list that has an item to each line.
func leadOf(text []byte, last, to int) string {
	if !bytes.Contains(text[last:to], []byte("\n")) {
		return ""
	}
	line := bytes.LastIndexByte(text[:last], '\n') + 1
	indent := text[line:last]
	return "\n" + string(indent[:len(indent)-len(bytes.TrimLeft(indent, " \t"))])
}

// intoSection puts a line behind the header of a section, or with a header to the end.
func intoSection(text []byte, name string, section *node, line string) []byte {
	if name == "" {
		return slices.Concat([]byte(line+"\n"), text)
	}
	if section == nil || !section.header {
		return slices.Concat(endLine(text), []byte("\n["+name+"]\n"+line+"\n"))
	}
	at := offsetOf(text, section.pos)
	i := bytes.IndexByte(text[at:], '\n')
	if i < 0 {
		return slices.Concat(endLine(text), []byte(line+"\n"))
	}
	return slices.Concat(text[:at+i+1], []byte(line+"\n"), text[at+i+1:])
}
