package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"slices"
	"time"
)

// Record is a record as read. Its texts are as stored: [Original] gives the bytes that were recorded.
type Record struct {
	Seq     uint64
	Time    time.Time
	Type    Type
	Run     string
	Session string
	Actor   Actor
	Policy  string
	Cause   uint64
	Prev    string
	Fields  []Field // the type's own, in order
	Line    []byte  // the whole, without its newline: valid JSON that is safe to print
}

// Field is one of a type's own.
type Field struct {
	Name  string
	Value json.RawMessage
}

// Scan reads the log in dir from its beginning and gives what f wants. It checks no chain: that is for
// [Verify]. A line that is no record comes as an error that tells where, and the scan goes on
// behind it. A line that is still being written ends the scan.
func Scan(dir string, f Filter) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		read(context.Background(), dir, f, 1, yield, func() bool { return false })
	}
}

// From is Scan from the record with that number on, without reading the segments before it.
func From(dir string, f Filter, first uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		read(context.Background(), dir, f, first, func(r Record, err error) bool { return err == nil && r.Seq < first || yield(r, err) }, func() bool { return false })
	}
}

// segmentOf returns the first record of the segment that holds a record, or would; 0 where that cannot be told.
func segmentOf(root *os.Root, seq uint64) uint64 {
	list, err := segments(root)
	if err != nil {
		return 0 // whoever reads them meets it
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

// ParseRecord reads one line of a log, without its newline.
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
		case "session":
			take(value, &r.Session)
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
