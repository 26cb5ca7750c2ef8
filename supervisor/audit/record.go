package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Record is a record as read. Its texts are as stored: [Original] restores the recorded bytes.
type Record struct {
	Seq  uint64
	Time time.Time
	Type Type
	// Run is the user's name for the run, or its id.
	Run string
	// RunID is the run's id if Run is a name, else "".
	RunID     string
	Session   string
	SessionID string // as RunID
	Actor     Actor
	Policy    string
	Cause     uint64
	Prev      string
	// Fields are the fields of the record's type, in order.
	Fields []Field
	// Line is the whole line without its newline: valid JSON that is safe to print.
	Line []byte
}

// ID returns the unique id of the run. A name is not unique: its user may reuse it.
func (r Record) ID() string { return cmp.Or(r.RunID, r.Run) }

// Field is one field of a record's type.
type Field struct {
	Name  string
	Value json.RawMessage
}

// ParseRecord parses one line of a log, without its newline.
func ParseRecord(text []byte) (Record, error) {
	var p parser
	return p.record(text)
}

func (p *parser) record(text []byte) (Record, error) {
	if _, err := p.form(text); err != nil {
		return Record{}, err
	}
	text = bytes.Clone(text)
	r := Record{Line: text}
	var bad error
	take := func(value []byte, into any) {
		if s, ok := into.(*string); ok && bytes.IndexByte(value, '\\') < 0 && value[0] == '"' {
			*s = string(value[1 : len(value)-1])
			return
		}
		if err := json.Unmarshal(value, into); err != nil && bad == nil {
			bad = fmt.Errorf("%w: %w", errLine, err)
		}
	}
	err := p.parse(text, func(key, value []byte) {
		switch string(key) {
		case "seq":
			take(value, &r.Seq)
		case "time":
			take(value, &r.Time)
		case "type":
			take(value, (*string)(&r.Type))
		case "run":
			take(value, &r.Run)
		case "run_id":
			take(value, &r.RunID)
		case "session":
			take(value, &r.Session)
		case "session_id":
			take(value, &r.SessionID)
		case "actor":
			take(value, &r.Actor)
		case "policy":
			take(value, &r.Policy)
		case "cause":
			take(value, &r.Cause)
		case "prev":
			take(value, &r.Prev)
		default:
			r.Fields = append(r.Fields, Field{string(key), value})
		}
	})
	if err == nil {
		err = bad
	}
	return r, err
}

// Field returns the JSON value of a field of the record's type, or nil.
func (r Record) Field(name string) json.RawMessage {
	for _, f := range r.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// Text returns a text field as the bytes that were recorded, or "".
func (r Record) Text(name string) string {
	var s string
	if json.Unmarshal(r.Field(name), &s) != nil {
		return ""
	}
	return Original(s)
}

// Texts returns a list field as the bytes that were recorded, or nil.
func (r Record) Texts(name string) []string {
	var list []string
	if json.Unmarshal(r.Field(name), &list) != nil {
		return nil
	}
	for i, s := range list {
		list[i] = Original(s)
	}
	return list
}

// Int returns a number field, or 0.
func (r Record) Int(name string) int64 {
	var n int64
	if json.Unmarshal(r.Field(name), &n) != nil {
		return 0
	}
	return n
}

// Decision returns "denied" for a refusal, the decision of a fetch, and "" for other records.
func (r Record) Decision() string {
	switch r.Type {
	case TypeDenied:
		return DecisionDenied
	case TypeFetch:
		return r.Text("decision")
	}
	return ""
}

// paths returns the paths that the record names.
func (r Record) paths() []string {
	var paths []string
	switch r.Type {
	// The text is such as "read /etc/shadow", maybe with more words after the path.
	case TypeDenied:
		if _, path, found := strings.Cut(r.Text("what"), " "); found {
			paths = append(paths, path)
		}
	case TypeExec:
		paths = append(paths, r.Text("program"))
	case TypeFetch, TypeFile:
		paths = append(paths, r.Text("path"))
	case TypeRunStarted:
		paths = append(paths, r.Text("workspace"))
	}
	// Each text is such as "added sha256:… a/b".
	for _, file := range r.Texts("files") {
		if words := strings.SplitN(file, " ", 3); len(words) == 3 {
			paths = append(paths, words[2])
		}
	}
	return append(append(paths, r.Texts("paths")...), r.Texts("held")...)
}

// errLine is wrapped by all errors of the parser.
var errLine = errors.New("not a record")

// parser parses the strict JSON of a line. It can be reused, and then allocates nothing for a line.
// The bounds in encode.go limit the cost of a hostile line.
type parser struct {
	b []byte
	i int
	// keys of the open objects, innermost last.
	keys [][]byte
}

// parse checks the whole line and calls field for each field of the record, in order, with the raw
// JSON of its value.
func (p *parser) parse(line []byte, field func(key, value []byte)) error {
	p.b, p.i, p.keys = line, 0, p.keys[:0]
	if !utf8.Valid(line) {
		return fmt.Errorf("%w: invalid UTF-8", errLine)
	}
	if err := p.object(1, field); err != nil {
		return err
	}
	if p.i != len(p.b) {
		return p.bad("end of line")
	}
	return nil
}

func (p *parser) bad(want string) error {
	return fmt.Errorf("%w: want %s at byte %d", errLine, want, p.i)
}

func (p *parser) eat(c byte) bool {
	if p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *parser) object(depth int, field func(key, value []byte)) error {
	if !p.eat('{') {
		return p.bad("{")
	}
	base := len(p.keys)
	defer func() { p.keys = p.keys[:base] }()
	if p.eat('}') {
		return nil
	}
	for {
		key, err := p.key(base)
		if err != nil {
			return err
		}
		start := p.i
		if err := p.value(depth); err != nil {
			return err
		}
		if field != nil {
			field(key, p.b[start:p.i])
		}
		if p.eat('}') {
			return nil
		}
		if !p.eat(',') {
			return p.bad(", or }")
		}
	}
}

func (p *parser) key(base int) ([]byte, error) {
	if !p.eat('"') {
		return nil, p.bad("a key")
	}
	start := p.i
	for p.i < len(p.b) && (p.b[p.i] >= 'a' && p.b[p.i] <= 'z' || p.b[p.i] >= '0' &&
		p.b[p.i] <= '9' || p.b[p.i] == '_') {
		p.i++
	}
	key := p.b[start:p.i]
	if len(key) == 0 || !p.eat('"') || !p.eat(':') {
		return nil, p.bad("a key of a-z 0-9 _")
	}
	for _, k := range p.keys[base:] {
		if bytes.Equal(k, key) {
			return nil, fmt.Errorf("%w: key %q twice", errLine, key)
		}
	}
	if len(p.keys)-base == maxKeys {
		return nil, fmt.Errorf("%w: more than %d keys", errLine, maxKeys)
	}
	p.keys = append(p.keys, key)
	return key, nil
}

func (p *parser) value(depth int) error {
	if p.i == len(p.b) {
		return p.bad("a value")
	}
	if c := p.b[p.i]; (c == '{' || c == '[') && depth == maxDepth {
		return fmt.Errorf("%w: more than %d levels", errLine, maxDepth)
	}
	switch c := p.b[p.i]; {
	case c == '"':
		return p.str()
	case c == '{':
		return p.object(depth+1, nil)
	case c == '[':
		return p.array(depth + 1)
	case c == '-' || c >= '0' && c <= '9':
		return p.integer()
	}
	for _, w := range []string{"true", "false"} {
		if bytes.HasPrefix(p.b[p.i:], []byte(w)) {
			p.i += len(w)
			return nil
		}
	}
	return p.bad("a value")
}

func (p *parser) array(depth int) error {
	p.i++
	if p.eat(']') {
		return nil
	}
	for {
		if err := p.value(depth); err != nil {
			return err
		}
		if p.eat(']') {
			return nil
		}
		if !p.eat(',') {
			return p.bad(", or ]")
		}
	}
}

// integer parses a 64-bit integer. It accepts only the canonical spelling.
func (p *parser) integer() error {
	negative := p.eat('-')
	start := p.i
	for p.i < len(p.b) && p.b[p.i] >= '0' && p.b[p.i] <= '9' {
		p.i++
	}
	n := p.i - start
	if n == 0 || n > 19 || p.b[start] == '0' && (n > 1 || negative) {
		return p.bad("an integer")
	}
	return nil
}

func (p *parser) str() error {
	p.i++
	for p.i < len(p.b) {
		switch c := p.b[p.i]; {
		case c == '"':
			p.i++
			return nil
		case c == '\\':
			if err := p.escape(); err != nil {
				return err
			}
		case c < 0x20 || c == 0x7f:
			return p.bad("no control character")
		default:
			p.i++
		}
	}
	return p.bad(`a closing "`)
}

func (p *parser) escape() error {
	p.i++
	if p.eat('"') || p.eat('\\') || p.eat('n') {
		return nil
	}
	u, ok := p.unit()
	if ok && u >= 0xd800 && u < 0xdc00 && p.eat('\\') {
		u, ok = p.unit()
		ok = ok && u >= 0xdc00 && u < 0xe000
	} else if u >= 0xd800 && u < 0xe000 {
		ok = false
	}
	if !ok {
		return p.bad("a known escape")
	}
	return nil
}

// unit parses uXXXX, the rest of a JSON escape.
func (p *parser) unit() (u uint16, ok bool) {
	if !p.eat('u') || len(p.b)-p.i < 4 {
		return 0, false
	}
	for _, c := range p.b[p.i : p.i+4] {
		n := nibble(c)
		if n == 255 {
			return 0, false
		}
		u = u<<4 | uint16(n)
	}
	p.i += 4
	return u, true
}
