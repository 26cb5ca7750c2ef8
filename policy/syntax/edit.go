package syntax

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// An Edit is one change to the text of a policy. All other text stays, with comments and order.
type Edit struct {
	// the section, as in "fetch.limits"; "" for the keys above all sections
	Section string
	// the key, as in "allow"; for a Table only a name
	Key string
	// Table is set if the edit appends the lines of a [[section]].
	Table bool
	// Item is set if Value is added to the list in Key.
	Item  bool
	Value string // as TOML
	lines []string
	apply func(*policy.Policy) error
}

// errEdit is wrapped by errors of Apply for a text that it cannot change.
var errEdit = errors.New("the text cannot be changed")

// SetKey returns the edit that sets a key to a word.
func SetKey(section, key, word string) Edit {
	return Edit{Section: section, Key: key, Value: Quote(word),
		apply: func(p *policy.Policy) error {
			if into, ok := policy.FieldOf(section + "." + key).At(p).(policy.Word); ok {
				return into.UnmarshalText([]byte(word))
			}
			return fmt.Errorf("%w: %s.%s", errEdit, section, key)
		}}
}

// SetLimit returns the edit that sets a limit to n.
func SetLimit(section, key string, unit policy.Unit, n int64) Edit {
	return Edit{Section: section, Key: key, Value: Amount(unit, n), apply: func(p *policy.Policy) error {
		if limit, ok := policy.FieldOf(section + "." + key).At(p).(*int64); ok {
			*limit = n
			return nil
		}
		return fmt.Errorf("%w: %s.%s is no limit", errEdit, section, key)
	}}
}

// AddItem returns the edit that adds a text to a list.
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

// AddMount returns the edit that adds a [[mount]].
func AddMount(m policy.Mount) Edit {
	w := &writer{kind: Profile}
	w.mounts(policy.Mounts{m})
	return Edit{Section: "mount", Key: "mount", Table: true, lines: tableLines(w),
		apply: func(p *policy.Policy) error {
			p.Mounts = append(slices.Clone(p.Mounts), m)
			return p.Check()
		}}
}

// AddRule returns the edit that adds a [[fetch.allow]] for one request, or for a host and port if q
// has no method.
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
			// A base sets the limits, which have an effect from the first rule on.
			if len(p.Fetch.Allow) == 0 {
				p.Fetch.Limits = policy.TopFetchLimits()
			}
			p.Fetch.Allow = append(slices.Clone(p.Fetch.Allow), rule)
			return p.Check()
		}}
}

// AddDeny returns the edit that adds a [[fetch.deny]] for the host of q.
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

// Lines returns the lines that the edit writes.
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

// ApplyTo returns a policy with the change made.
func (e Edit) ApplyTo(p policy.Policy) (policy.Policy, error) {
	if e.apply == nil {
		return p, errEdit
	}
	err := e.apply(&p)
	return p, err
}

// Apply returns the text with the change made. It fails if the result would not be TOML, or if
// other text would have to change.
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

// Undo reverses an edit of one key. before is the previous value, or "" if there was none. If the
// key has another value by now, the text is returned unchanged.
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
		// The line may have other keys.
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

// dropHeader removes the header of an empty section, and the empty line above it.
func dropHeader(text []byte, at int) []byte {
	from := bytes.LastIndexByte(text[:at], '\n') + 1
	to := len(text)
	if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
		to = at + i + 1
	}
	return slices.Concat(bytes.TrimSuffix(text[:from], []byte("\n")), text[to:])
}

// Now returns the value of the key as the text has it, or "".
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

// find returns the table of the section and the value of the key; each is nil if it is missing.
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

// valueAt returns the bounds of the value of the key at an offset. ok is false if it finds none.
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

// valueEnd returns the end of the value that starts at an offset.
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

// stringEnd returns the end of the string that starts at an offset. It fails for multi-line
// strings.
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

// intoList inserts an item after the last one of a list.
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
		// Insert after a comment on the line of the last item.
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

// leadOf returns the line break and indentation of a list with one item per line.
func leadOf(text []byte, last, to int) string {
	if !bytes.Contains(text[last:to], []byte("\n")) {
		return ""
	}
	line := bytes.LastIndexByte(text[:last], '\n') + 1
	indent := text[line:last]
	return "\n" + string(indent[:len(indent)-len(bytes.TrimLeft(indent, " \t"))])
}

// intoSection inserts a line below the header of a section, or appends it with a header.
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
