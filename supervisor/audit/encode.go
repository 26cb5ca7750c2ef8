package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of one record. Text is counted before escaping. Escaping makes at most six bytes of one,
// so no text from a tool can make a record longer than maxLine.
const (
	maxText = 4 << 10 // bytes of one string
	// maxAllText bounds the bytes of all strings together.
	maxAllText = 64 << 10
	maxItems   = 256 // items of one list
	// maxLine bounds one line in bytes, with its newline.
	maxLine  = 1 << 20
	maxDepth = 8
	maxKeys  = 64 // keys of one object
)

// timeLayout is RFC 3339 with all nine digits, so that sorting the text sorts the times.
const timeLayout = "2006-01-02T15:04:05.000000000Z07:00"

// appendTime appends t in UTC in timeLayout. It is four times as fast as Time.AppendFormat, whose
// fast path is only for RFC 3339 itself.
func appendTime(to []byte, t time.Time) []byte {
	t = t.UTC()
	to = t.AppendFormat(to, time.RFC3339)
	to = append(to[:len(to)-1], ".000000000Z"...)
	for i, n := len(to)-2, t.Nanosecond(); n > 0; i, n = i-1, n/10 {
		to[i] = byte('0' + n%10)
	}
	return to
}

// encoder writes the fields of one record. Field names are trusted; values are not.
type encoder struct {
	buf    []byte
	budget int
	cuts   []cut
}

// cut describes a shortened text or list.
type cut struct {
	field string
	items int
	bytes int64
	sum   [sha256.Size]byte
}

func (e *encoder) name(name string) {
	if n := len(e.buf); n > 0 && e.buf[n-1] != '{' {
		e.buf = append(e.buf, ',')
	}
	e.buf = append(e.buf, '"')
	e.buf = append(e.buf, name...)
	e.buf = append(e.buf, '"', ':')
}

// text writes a field even if the text is empty; str omits an empty one.
func (e *encoder) text(name, field, s string) {
	e.name(name)
	e.value(field, s)
}

func (e *encoder) str(name, s string) {
	if s != "" {
		e.text(name, name, s)
	}
}

func (e *encoder) value(field, s string) {
	short := clip(s, min(maxText, e.budget))
	if len(short) < len(s) {
		h := sha256.New()
		io.WriteString(h, s)
		c := cut{field: field, bytes: int64(len(s))}
		h.Sum(c.sum[:0])
		e.cuts = append(e.cuts, c)
	}
	e.budget -= len(short)
	e.buf = appendString(e.buf, short)
}

func (e *encoder) list(name string, items []string) {
	if len(items) == 0 {
		return
	}
	e.name(name)
	kept := items[:min(len(items), maxItems)]
	e.buf = append(e.buf, '[')
	for i, s := range kept {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.value(name+"."+strconv.Itoa(i), s)
	}
	e.buf = append(e.buf, ']')
	if len(kept) == len(items) {
		return
	}
	h := sha256.New()
	c := cut{field: name, items: len(items)}
	for _, s := range items {
		io.WriteString(h, s)
		h.Write([]byte{0})
		c.bytes += int64(len(s)) + 1
	}
	h.Sum(c.sum[:0])
	e.cuts = append(e.cuts, c)
}

func (e *encoder) num(name string, n int64) {
	e.name(name)
	e.buf = strconv.AppendInt(e.buf, n, 10)
}

func (e *encoder) opt(name string, n int64) {
	if n != 0 {
		e.num(name, n)
	}
}

func (e *encoder) flag(name string, b bool) {
	if b {
		e.name(name)
		e.buf = append(e.buf, "true"...)
	}
}

func (e *encoder) when(name string, t time.Time) {
	if !t.IsZero() {
		e.name(name)
		e.buf = append(e.buf, '"')
		e.buf = append(appendTime(e.buf, t), '"')
	}
}

func (e *encoder) object(name string, fields func()) {
	e.name(name)
	e.buf = append(e.buf, '{')
	fields()
	e.buf = append(e.buf, '}')
}

// body returns the part of a record's line from "type" to the last field before "prev". It does not
// depend on the record's place in the log, so callers encode in parallel.
func (n Entry) body() []byte {
	e := &encoder{buf: make([]byte, 0, 512), budget: maxAllText}
	e.str("type", string(n.Event.Type()))
	e.str("run", n.Run)
	e.str("run_id", n.RunID)
	e.text("session", "session", n.Session)
	e.str("session_id", n.SessionID)
	e.object("actor", func() {
		e.num("uid", int64(n.Actor.UID))
		e.num("pid", int64(n.Actor.PID))
		e.text("exe", "actor.exe", n.Actor.Exe)
	})
	e.text("policy", "policy", n.Policy)
	e.opt("cause", int64(n.Cause))
	e.event(n.Event)
	if len(e.cuts) > 0 {
		e.writeCuts()
	}
	return e.buf
}

func (e *encoder) writeCuts() {
	cuts := e.cuts
	// Only names and hashes of our own follow, which are short.
	e.budget = maxAllText
	e.name("cut")
	e.buf = append(e.buf, '[')
	for i, c := range cuts {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.buf = append(e.buf, '{')
		e.str("field", c.field)
		e.opt("items", int64(c.items))
		e.num("bytes", c.bytes)
		e.str("sha256", hex.EncodeToString(c.sum[:]))
		e.buf = append(e.buf, '}')
	}
	e.buf = append(e.buf, ']')
}

// Type returns the record type of each event.
func (RunStarted) Type() Type         { return TypeRunStarted }
func (Exec) Type() Type               { return TypeExec }
func (File) Type() Type               { return TypeFile }
func (Denied) Type() Type             { return TypeDenied }
func (Limit) Type() Type              { return TypeLimit }
func (RunFinished) Type() Type        { return TypeRunFinished }
func (Session) Type() Type            { return TypeSession }
func (WorkspaceChanged) Type() Type   { return TypeWorkspaceChanged }
func (WorkspaceCommitted) Type() Type { return TypeWorkspaceCommitted }
func (WorkspaceDiscarded) Type() Type { return TypeWorkspaceDiscarded }
func (WorkspaceReverted) Type() Type  { return TypeWorkspaceReverted }
func (WorkspaceForked) Type() Type    { return TypeWorkspaceForked }
func (WorkspaceMerged) Type() Type    { return TypeWorkspaceMerged }
func (Approval) Type() Type           { return TypeApproval }
func (AgentStep) Type() Type          { return TypeAgent }
func (PolicyLoaded) Type() Type       { return TypePolicyLoaded }
func (ToolInstalled) Type() Type      { return TypeToolInstalled }
func (ToolRemoved) Type() Type        { return TypeToolRemoved }
func (ToolKeys) Type() Type           { return TypeToolKeys }
func (DaemonStarted) Type() Type      { return TypeDaemonStarted }
func (DaemonStopped) Type() Type      { return TypeDaemonStopped }
func (Anchored) Type() Type           { return TypeAnchor }
func (Gap) Type() Type                { return TypeGap }
func (checkpoint) Type() Type         { return TypeCheckpoint }

// event writes the fields of v, by its method encode if it has one.
func (e *encoder) event(v Event) {
	if own, ok := v.(interface{ encode(e *encoder) }); ok {
		own.encode(e)
		return
	}
	e.fields(reflect.ValueOf(v))
}

// columns caches the field names of event types, with a comma after those that are omitted if 0.
var columns sync.Map

func columnsOf(t reflect.Type) []string {
	if known, ok := columns.Load(t); ok {
		return known.([]string)
	}
	var all []string
	for f := range t.Fields() {
		all = append(all, strings.TrimSuffix(f.Tag.Get("json"), "omitzero"))
	}
	columns.Store(t, all)
	return all
}

func (e *encoder) fields(v reflect.Value) {
	for i, name := range columnsOf(v.Type()) {
		name, optional := strings.CutSuffix(name, ",")
		switch x := v.Field(i); x.Kind() {
		case reflect.String:
			e.str(name, x.String())
		case reflect.Bool:
			e.flag(name, x.Bool())
		case reflect.Slice:
			e.list(name, x.Interface().([]string))
		case reflect.Struct:
			if t, ok := reflect.TypeAssert[time.Time](x); ok {
				e.when(name, t)
			} else {
				e.object(name, func() { e.fields(x) })
			}
		default:
			if x.IsZero() && optional {
				continue
			}
			if x.CanInt() {
				e.num(name, x.Int())
			} else {
				e.num(name, int64(x.Uint()))
			}
		}
	}
}

func (v Exec) encode(e *encoder) {
	e.str("program", v.Program)
	e.str("digest", v.Digest)
	e.list("argv", v.Argv)
	e.str("cwd", v.Cwd)
	e.opt("pid", int64(v.PID))
	e.opt("parent", int64(v.Parent))
	if v.Count > 1 {
		e.num("count", v.Count)
	}
}

func (v Denied) encode(e *encoder) {
	e.str("layer", v.Layer)
	e.str("what", v.What)
	e.str("rule", v.Rule)
	if v.Count > 1 {
		e.num("count", v.Count)
		e.when("first", v.First)
		e.when("last", v.Last)
	}
}

func (v checkpoint) encode(e *encoder) { e.str("note", v.note) }
