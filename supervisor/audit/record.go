package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Record is a record as read. Its texts are as stored: [Original] restores the recorded bytes.
type Record struct {
	Seq  uint64
	Time time.Time
	Type Type
	// As its user called it.
	Run string
	// Where that is a name; else "".
	RunID     string
	Session   string
	SessionID string // as RunID
	Actor     Actor
	Policy    string
	Cause     uint64
	Prev      string
	// The type's own, in order.
	Fields []Field
	// The whole, without its newline: valid JSON that is safe to print.
	Line []byte
}

// ID returns the unique id of the run: a name belongs to its user, who may use it again.
func (r Record) ID() string { return cmp.Or(r.RunID, r.Run) }

// Field is one of a type's own fields.
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

// Field returns the value of one of the type's own fields, nil if it has none of that name.
func (r Record) Field(name string) json.RawMessage {
	for _, f := range r.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// Text returns a text field as the bytes that were recorded.
func (r Record) Text(name string) string {
	var s string
	if json.Unmarshal(r.Field(name), &s) != nil {
		return ""
	}
	return Original(s)
}

// Texts returns a list field as the bytes that were recorded.
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

// Decision returns whether the record is about a refusal or about an allowed operation; "" for
// other records.
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
	// The text is "read /etc/shadow", perhaps with more after the last path.
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
	for _, file := range r.Texts("files") { // "added sha256:… a/b"
		if words := strings.SplitN(file, " ", 3); len(words) == 3 {
			paths = append(paths, words[2])
		}
	}
	return append(append(paths, r.Texts("paths")...), r.Texts("held")...)
}
