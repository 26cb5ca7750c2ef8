package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"slices"
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

// Scan reads the log in dir from its beginning and yields the records that f matches. It does not
// check the chain: [Verify] does. It yields an error with the place for a line that is no record,
// and goes on after it. An incomplete line ends the scan.
func Scan(dir string, f Filter) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		read(context.Background(), dir, f, 1, yield, func() bool { return false })
	}
}

// From is Scan from record first on, without reading the segments before it.
func From(dir string, f Filter, first uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		read(context.Background(), dir, f, first, func(r Record, err error) bool {
			return err == nil && r.Seq < first || yield(r, err)
		}, func() bool { return false })
	}
}

// segmentOf returns the first record of the segment that holds a record, or would; 0 if that is
// unknown.
func segmentOf(root *os.Root, seq uint64) uint64 {
	list, err := segments(root)
	if err != nil {
		// The reader of the segments reports the error.
		return 0
	}
	i, found := slices.BinarySearch(list, seq)
	switch {
	case found:
		return seq
	case i == 0:
		return 0
	}
	return list[i-1]
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
