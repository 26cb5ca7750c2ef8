package api

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// document is the part of an OpenAPI document that the tests look at.
type document struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct {
		Parameters map[string]parameter
		Responses  map[string]response
		Schemas    map[string]*schema
	}
}

type operation struct {
	OperationID string
	Parameters  []parameter
	RequestBody *response
	Responses   map[string]response
	Frames      map[string]string `json:"x-frames"`
}

type parameter struct {
	Ref      string `json:"$ref"`
	Name, In string
	Schema   *schema
}

type response struct {
	Ref     string `json:"$ref"`
	Content map[string]struct{ Schema *schema }
	Result  *schema `json:"x-result"`
}

type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Format               string
	Enum                 []string
	Const                string
	ContentEncoding      string
	Items                *schema
	OneOf                []*schema
	Properties           map[string]*schema
	Required             []string
	AdditionalProperties *bool
}

func readDocument(t *testing.T) document {
	t.Helper()
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Fatalf("openapi %q", d.OpenAPI)
	}
	return d
}

func TestOpenAPIHasEveryRoute(t *testing.T) {
	d := readDocument(t)
	routed := map[string]bool{}
	for _, r := range (&Server{}).routes() {
		key := r.method + " " + r.path
		routed[key] = true
		if _, ok := d.Paths[r.path][strings.ToLower(r.method)]; !ok {
			t.Errorf("%s is routed and not described", key)
		}
		if (r.answer == nil) == (r.stream == nil) {
			t.Errorf("%s: want either an answer or a stream", key)
		}
	}
	ids := map[string]bool{}
	for path, ops := range d.Paths {
		for method, op := range ops {
			if key := strings.ToUpper(method) + " " + path; !routed[key] {
				t.Errorf("%s is described and not routed", key)
			}
			if op.OperationID == "" || ids[op.OperationID] {
				t.Errorf("%s %s: operation id %q is empty or another's", method, path,
					op.OperationID)
			}
			ids[op.OperationID] = true
		}
	}
}

var inPath = regexp.MustCompile(`\{(\w+)\}`)

func TestOpenAPIHasEveryParameter(t *testing.T) {
	d := readDocument(t)
	for path, ops := range d.Paths {
		for method, op := range ops {
			var want, got []string
			for _, m := range inPath.FindAllStringSubmatch(path, -1) {
				want = append(want, m[1])
			}
			for _, p := range op.Parameters {
				if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
					p = d.Components.Parameters[name]
				}
				if p.In == "path" {
					got = append(got, p.Name)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s %s has path parameters %v, want %v", method, path, got, want)
			}
		}
	}
	patch := d.Paths[pathWorkspaces+"/{id}/changes"]["get"].Parameters[1]
	if want := []string{PatchPlain, PatchTerminal}; patch.Name != "patch" ||
		!slices.Equal(patch.Schema.Enum, want) {
		t.Errorf("parameter %s has %v, want patch with %v", patch.Name, patch.Schema.Enum, want)
	}
}

func TestOpenAPIDescribesTheStreams(t *testing.T) {
	op := readDocument(t).Paths[PathRuns]["post"]
	want := map[string]string{"input": string(wire.FrameInput), "inputEnd": string(wire.FrameInputEnd),
		"credit": string(wire.FrameCredit),
		"output": string(wire.FrameOutput), "errorOutput": string(wire.FrameErrorOutput),
		"result": string(wire.FrameResult), "passed": string(wire.FramePassed)}
	if !reflect.DeepEqual(op.Frames, want) {
		t.Errorf("frames %v, want %v", op.Frames, want)
	}
	if p := op.Parameters[0]; p.Name != "Upgrade" || p.Schema.Const != Upgrade {
		t.Errorf("header %s is %q", p.Name, p.Schema.Const)
	}
}

// Every field of what is read and written is described as what it is, and nothing else is.
func TestOpenAPIHasEveryField(t *testing.T) {
	d := readDocument(t)
	c := &schemaCheck{t: t, all: d.Components.Schemas, types: map[string]reflect.Type{}}
	for path, ops := range d.Paths {
		for method, op := range ops {
			key := strings.ToUpper(method) + " " + path
			want := operations[key]
			if want.in != nil {
				c.match(key+" body", want.in, content(op.RequestBody))
				c.strict(key, content(op.RequestBody))
			} else if op.RequestBody != nil {
				t.Errorf("%s has a body", key)
			}
			if want.out != nil {
				ok := op.Responses["200"]
				c.match(key+" answer", want.out, content(&ok))
			}
			if want.result != nil {
				c.match(key+" result", want.result, op.Responses["101"].Result)
			}
			if ref := op.Responses["default"].Ref; ref != "#/components/responses/Problem" {
				t.Errorf("%s: a problem is %q", key, ref)
			}
		}
	}
	problem := d.Components.Responses["Problem"]
	c.match("problem", reflect.TypeFor[Problem](), content(&problem))
	for name := range d.Components.Schemas {
		if _, ok := c.types[name]; !ok {
			t.Errorf("schema %s is of no type", name)
		}
	}
}

func content(r *response) *schema {
	if r != nil {
		for _, c := range r.Content {
			return c.Schema
		}
	}
	return nil
}

// schemaCheck compares Go's types with schemas. A schema belongs to one type.
type schemaCheck struct {
	t     *testing.T
	all   map[string]*schema
	types map[string]reflect.Type
}

func (c *schemaCheck) resolve(where string, typ reflect.Type, s *schema) (_ *schema, seen bool) {
	name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/")
	if !ok {
		return s, false
	}
	target, exists := c.all[name]
	if !exists {
		c.t.Errorf("%s: no schema is called %s", where, name)
		return nil, true
	}
	old, seen := c.types[name]
	if c.types[name] = typ; seen && old != typ {
		c.t.Errorf("%s: schema %s is of %v, and of %v elsewhere", where, name, typ, old)
	}
	return target, seen
}

// strict: a request with a field that nobody knows is refused.
func (c *schemaCheck) strict(where string, s *schema) {
	if s = c.all[strings.TrimPrefix(s.Ref, "#/components/schemas/")]; s == nil ||
		s.AdditionalProperties == nil || *s.AdditionalProperties {
		c.t.Errorf("%s: unknown fields are refused, and the schema does not say so", where)
	}
}

// special are the types whose JSON form is their own; each has a schema of its own.
var special = map[reflect.Type]func(*schema) bool{
	reflect.TypeFor[time.Time](): func(s *schema) bool {
		return s.Type == "string" && s.Format == "date-time"
	},
	reflect.TypeFor[[]byte](): func(s *schema) bool {
		return s.Type == "string" && s.ContentEncoding == "base64"
	},
	reflect.TypeFor[workspace.Name]():  func(s *schema) bool { return s.Type == "string" },
	reflect.TypeFor[json.RawMessage](): func(s *schema) bool { return s.Type == "object" },
	reflect.TypeFor[message.Output]():  isText,
}

func isText(s *schema) bool {
	return len(s.OneOf) == 2 && s.OneOf[0].Type == "string" &&
		s.OneOf[1].Properties["base64"] != nil
}

func (c *schemaCheck) match(where string, typ reflect.Type, s *schema) {
	if s == nil {
		c.t.Errorf("%s: no schema, want one of %v", where, typ)
		return
	}
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if len(s.OneOf) == 2 && s.OneOf[1].Type == "null" {
		s = s.OneOf[0]
	}
	if typ == reflect.TypeFor[runners.Texts]() {
		typ = reflect.TypeFor[[]message.Output]() // the same in JSON
	}
	s, seen := c.resolve(where, typ, s)
	if s == nil || seen {
		return
	}
	if ok := special[typ]; ok != nil {
		if !ok(s) {
			c.t.Errorf("%s: schema %+v is none of %v", where, *s, typ)
		}
		return
	}
	kind := kinds[typ.Kind()]
	if kind == "" {
		c.t.Fatalf("%s: %v is no type that this test knows", where, typ)
	}
	if s.Type != kind && !reflect.DeepEqual(s.Type, []any{kind, "null"}) {
		c.t.Errorf("%s is %v, want %s for %v", where, s.Type, kind, typ)
		return
	}
	switch kind {
	case "array":
		c.match(where+"[]", typ.Elem(), s.Items)
	case "object":
		// Its keys are paths or the like.
		if typ.Kind() == reflect.Map {
			return
		}
		c.fields(where, typ, s)
	}
}

var kinds = map[reflect.Kind]string{
	reflect.Bool: "boolean", reflect.String: "string", reflect.Slice: "array",
	reflect.Struct: "object", reflect.Map: "object",
	reflect.Int: "integer", reflect.Int64: "integer", reflect.Uint: "integer",
	reflect.Uint16: "integer", reflect.Uint32: "integer", reflect.Uint64: "integer",
}

func (c *schemaCheck) fields(where string, typ reflect.Type, s *schema) {
	have := map[string]bool{}
	for _, f := range jsonFields(typ) {
		have[f.name] = true
		property, ok := s.Properties[f.name]
		if !ok {
			c.t.Errorf("%s.%s is not described", where, f.name)
			continue
		}
		if got := slices.Contains(s.Required, f.name); got == f.optional {
			c.t.Errorf("%s.%s: required is %v", where, f.name, got)
		}
		c.match(where+"."+f.name, f.typ, property)
	}
	for name := range s.Properties {
		if !have[name] {
			c.t.Errorf("%s.%s is described, and %v has no such field", where, name, typ)
		}
	}
}

type jsonField struct {
	name     string
	typ      reflect.Type
	optional bool
	// holder is the struct that declares the field, as goName.
	holder reflect.Type
	goName string
}

// jsonFields returns the fields as encoding/json has them; those of an embedded struct are its
// holder's.
func jsonFields(typ reflect.Type) []jsonField {
	var all []jsonField
	for f := range typ.Fields() {
		tag, tagged := f.Tag.Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-":
		case f.Anonymous && !tagged:
			all = append(all, jsonFields(f.Type)...)
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			optional := strings.Contains(options, "omitempty") || strings.Contains(options,
				"omitzero")
			all = append(all, jsonField{name, f.Type, optional, typ, f.Name})
		}
	}
	return all
}
