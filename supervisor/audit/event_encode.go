package audit

import (
	"reflect"
	"strings"
	"sync"
	"time"
)

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
func (Approval) Type() Type           { return TypeApproval }
func (PolicyLoaded) Type() Type       { return TypePolicyLoaded }
func (ToolInstalled) Type() Type      { return TypeToolInstalled }
func (ToolRemoved) Type() Type        { return TypeToolRemoved }
func (ToolKeys) Type() Type           { return TypeToolKeys }
func (DaemonStarted) Type() Type      { return TypeDaemonStarted }
func (DaemonStopped) Type() Type      { return TypeDaemonStopped }
func (Anchored) Type() Type           { return TypeAnchor }
func (Gap) Type() Type                { return TypeGap }
func (checkpoint) Type() Type         { return TypeCheckpoint }

// event writes the fields of an event.
func (e *encoder) event(v Event) {
	if own, ok := v.(interface{ encode(e *encoder) }); ok {
		own.encode(e)
		return
	}
	e.fields(reflect.ValueOf(v))
}

// columns are the names of a type's fields, with a comma behind those that are left out if 0.
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
