package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/verify"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy/learn"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/hostpolicy"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/runlog"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

var update = flag.Bool("update", false, "write openapi.json as the Go types say")

// TestOpenAPIIsCurrent: openapi.json is what the routes, the Go types and their doc comments say.
func TestOpenAPIIsCurrent(t *testing.T) {
	g := &generator{t: t, schemas: map[string]object{}, docs: map[string]map[string]typeDoc{}}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(g.document()); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("openapi.json", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, b.Bytes()) {
		t.Error("openapi.json is not current: go test ./supervisor/api -run OpenAPIIsCurrent " +
			"-update")
	}
}

const aboutAPI = "The API of jaild: HTTP and JSON over the Unix socket /run/jail/jail.sock. The " +
	"host in a " +
	"URL has no meaning. The caller is the user that the kernel reports for the connection; no " +
	"field of " +
	"a request names the caller. Members of the group jail and root may connect. A caller sees, " +
	"ends, " +
	"reviews and commits only its own runs; root all runs.\n\n" +
	"An unknown field in the body of a request is an error. Clients ignore fields that they do not " +
	"know; version 1 may get new ones."

// schemaNames are the names of types whose own name is another schema's.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[struct{}]():           "Empty",
	reflect.TypeFor[json.RawMessage]():    "Record",
	reflect.TypeFor[message.Output]():     "Text",
	reflect.TypeFor[workspace.Result]():   "CommitResult",
	reflect.TypeFor[workspace.Change]():   "CommittedChange",
	reflect.TypeFor[workspace.Reverted](): "RevertResult",
	reflect.TypeFor[workspace.Script]():   "PackageScript",
	reflect.TypeFor[learn.File]():         "ObservedFile",
	reflect.TypeFor[verify.Finding]():     "VerifyFinding",
	reflect.TypeFor[hostpolicy.Status]():  "PolicyStatus",
	reflect.TypeFor[runlog.Span]():        "AuditSpan",
	reflect.TypeFor[jail.Fetch]():         "PlanFetch",
	reflect.TypeFor[jail.File]():          "PlanFile",
	reflect.TypeFor[jail.Limits]():        "PlanLimits",
	reflect.TypeFor[jail.Workspace]():     "PlanWorkspace",
}

// written are the schemas of types that write their JSON themselves.
var written = map[reflect.Type]object{
	reflect.TypeFor[workspace.Name](): {
		{"type", "string"},
		{"description",
			"A path or link target. Each byte or character that a terminal would not show as " +
				`itself is an escape of Go's (\n, \x1b, \u202e, \\), so that it can be shown as it is and turned back.`},
	},
	reflect.TypeFor[json.RawMessage](): {
		{"type", "object"},
		{"description",
			"A record of the audit log, byte by byte as it is in the log. Types of record add " +
				"fields of their own."},
		{"properties", object{
			{"seq", object{{"type", "integer"}}},
			{"time", object{{"type", "string"}, {"format", "date-time"}}},
			{"type", object{{"type", "string"}}},
			{"run", object{{"type", "string"}}},
			{"prev", object{{"type", "string"}}},
		}},
		{"required", []string{"seq", "time", "type", "prev"}},
	},
	reflect.TypeFor[message.Output](): {
		{"description", "A string where the bytes are UTF-8, else an object with their base64."},
		{"oneOf", []object{{{"type", "string"}}, {
			{"type", "object"},
			{"properties",
				object{{"base64", object{{"type", "string"}, {"contentEncoding", "base64"}}}}},
			{"required", []string{"base64"}},
			{"additionalProperties", false},
		}}},
	},
}

// An object is a JSON object whose members have an order.
type object []member

type member struct {
	key   string
	value any
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i, m := range o {
		b.WriteByte("{,"[min(i, 1)])
		if err := e.Encode(m.key); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := e.Encode(m.value); err != nil {
			return nil, err
		}
	}
	if len(o) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// A generator makes the document. schemas are those of the types met so far, docs the doc comments
// of the packages met so far.
type generator struct {
	t       *testing.T
	schemas map[string]object
	docs    map[string]map[string]typeDoc
	// strict says that unknown fields of the types that are met are refused.
	strict bool
}

func (g *generator) document() object {
	var paths object
	// Bodies of requests come first: their types are strict, wherever else they are used.
	for _, r := range (&Server{}).routes() {
		if in := operations[r.method+" "+r.path].in; in != nil {
			g.strict = true
			g.schema(in)
			g.strict = false
		}
	}
	for _, r := range (&Server{}).routes() {
		o := member{strings.ToLower(r.method), g.operation(r)}
		if i := slices.IndexFunc(paths, func(m member) bool { return m.key == r.path }); i >= 0 {
			paths[i].value = append(paths[i].value.(object), o)
			continue
		}
		paths = append(paths, member{r.path, object{o}})
	}
	problem := object{
		{"description",
			"Why not. 400 usage, 403 refused or layer, 404 not_found, 409 conflict, 503 busy or " +
				"ending, else 500."},
		{"content",
			object{{"application/json", object{{"schema", g.schema(reflect.TypeFor[Problem]())}}}}},
	}
	var schemas object
	for name, s := range g.schemas {
		schemas = append(schemas, member{name, s})
	}
	slices.SortFunc(schemas, func(a, b member) int { return strings.Compare(a.key, b.key) })
	return object{
		{"openapi", "3.1.0"},
		{"info", object{
			{"title", "jail"},
			{"version", "1"},
			{"license", object{{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}},
			{"description", aboutAPI},
		}},
		{"servers", []object{{{"url", "http://jail"}, {"description", "over the Unix socket"}}}},
		{"paths", paths},
		{"components", object{
			{"parameters", object{
				{"id", inPathParameter("id",
					"Of the run; a shadow has the one of its run. A name that its user gave to it, "+
						"its global id, or USER%2FNAME for another user's.")},
				{"name", inPathParameter("name", "Of the bundle or publisher.")},
			}},
			{"responses", object{{"Problem", problem}}},
			{"schemas", schemas},
		}},
	}
}

func inPathParameter(name, about string) object {
	return object{
		{"name", name}, {"in", "path"}, {"required", true}, {"description", about},
		{"schema", object{{"type", "string"}}},
	}
}

func (g *generator) operation(r route) object {
	key := r.method + " " + r.path
	text, ok := operations[key]
	if !ok {
		g.t.Errorf("%s has no text in operations", key)
	}
	o := object{{"operationId", text.id}, {"summary", text.summary}}
	if text.about != "" {
		o = append(o, member{"description", text.about})
	}
	if parameters := g.parameters(r.path, text); len(parameters) > 0 {
		o = append(o, member{"parameters", parameters})
	}
	if text.in != nil {
		o = append(o, member{"requestBody", object{
			{"required", true},
			{"content", media(text.takes, g.schema(text.in))},
		}})
	}
	if text.upgrade != 0 {
		o = append(o, member{"x-frames", object{
			{"input", string(wire.FrameInput)}, {"inputEnd", string(wire.FrameInputEnd)},
			{"credit", string(wire.FrameCredit)},
			{"output", string(wire.FrameOutput)}, {"errorOutput", string(wire.FrameErrorOutput)},
			{"result", string(wire.FrameResult)}, {"passed", string(wire.FramePassed)},
		}})
	}
	return append(o, member{"responses", g.responses(r.path, text)})
}

func (g *generator) parameters(path string, text operationText) []object {
	var all []object
	for _, m := range inPath.FindAllStringSubmatch(path, -1) {
		all = append(all, object{{"$ref", "#/components/parameters/" + m[1]}})
	}
	if text.upgrade != 0 {
		all = append(all, object{
			{"name", "Upgrade"}, {"in", "header"}, {"required", text.upgrade == always},
			{"schema", upgradeSchema},
		})
	}
	for _, q := range text.query {
		s := object{{"type", "string"}}
		if q.kind != "" {
			s[0].value = q.kind
		}
		if q.format != "" {
			s = append(s, member{"format", q.format})
		}
		if q.enum != nil {
			s = append(s, member{"enum", q.enum})
		}
		all = append(all,
			object{{"name", q.name}, {"in", "query"}, {"description", q.about}, {"schema", s}})
	}
	return all
}

var upgradeSchema = object{{"type", "string"}, {"const", Upgrade}}

func (g *generator) responses(path string, text operationText) object {
	var all object
	done := object{{"description", "Done."}}
	if text.done != "" {
		done[0].value = text.done
	}
	if path == pathEvents {
		done = append(done, member{"headers", object{{afterHeader, object{
			{"description", "Number of the record behind which the stream begins."},
			{"schema", object{{"type", "integer"}}},
		}}}})
	}
	switch {
	case text.out != nil:
		all = append(all,
			member{"200", append(done, member{"content", media(text.gives, g.schema(text.out))})})
	case text.upgrade == onRequest:
		all = append(all, member{"200", object{
			{"description", "The whole run, where the request asks for no streams."},
			{"content", media("", g.schema(text.result))},
		}})
	case text.upgrade == 0 && text.gives != "":
		all = append(all,
			member{"200", append(done, member{"content", object{{text.gives, object{}}}})})
	case text.upgrade == 0:
		all = append(all,
			member{"200", append(done, member{"content", media("", object{{"type", "object"}})})})
	}
	if text.result != nil {
		all = append(all, member{"101", object{
			{"description",
				"The connection now carries frames; the content of the last one is a Result."},
			{"headers", object{{"Upgrade", object{{"required", true}, {"schema", upgradeSchema}}}}},
			{"x-result", g.schema(text.result)},
		}})
	}
	return append(all, member{"default", object{{"$ref", "#/components/responses/Problem"}}})
}

func media(kind string, schema object) object {
	if kind == "" {
		kind = "application/json"
	}
	return object{{kind, object{{"schema", schema}}}}
}

// schema returns the schema of a type, a reference where the type has a name.
func (g *generator) schema(typ reflect.Type) object {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch typ {
	case reflect.TypeFor[time.Time]():
		return object{{"type", "string"}, {"format", "date-time"}}
	case reflect.TypeFor[[]byte]():
		return object{{"type", "string"}, {"contentEncoding", "base64"}}
	case reflect.TypeFor[runners.Texts]():
		typ = reflect.TypeFor[[]message.Output]()
	}
	_, own := written[typ]
	if name := schemaName(typ); name != "" && (typ.Kind() == reflect.Struct || own) {
		if _, ok := g.schemas[name]; !ok {
			// A type may hold itself.
			g.schemas[name] = nil
			g.schemas[name] = g.component(name, typ)
		}
		return object{{"$ref", "#/components/schemas/" + name}}
	}
	o := object{{"type", kinds[typ.Kind()]}}
	switch typ.Kind() {
	case reflect.Slice:
		return append(o, member{"items", g.schema(typ.Elem())})
	case reflect.Map:
		return append(o, member{"additionalProperties", true})
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return append(o, member{"minimum", 0})
	case reflect.Struct:
		return g.component("", typ)
	}
	return o
}

func schemaName(typ reflect.Type) string {
	if name, ok := schemaNames[typ]; ok {
		return name
	}
	return typ.Name()
}

func (g *generator) component(name string, typ reflect.Type) object {
	if s, ok := written[typ]; ok {
		return s
	}
	o := object{{"type", "object"}}
	if about := g.typeDoc(typ).about; about != "" {
		o = append(o, member{"description", oneLine(about)})
	}
	var properties object
	var required []string
	for _, f := range jsonFields(typ) {
		properties = append(properties, member{f.name, g.property(name, f)})
		if !f.optional {
			required = append(required, f.name)
		}
	}
	if len(properties) > 0 {
		o = append(o, member{"properties", properties})
	}
	if len(required) > 0 {
		o = append(o, member{"required", required})
	}
	if g.strict || typ == reflect.TypeFor[struct{}]() {
		o = append(o, member{"additionalProperties", false})
	}
	return o
}

func (g *generator) property(holder string, f jsonField) object {
	s := g.schema(f.typ)
	key := holder + "." + f.name
	null, listed := nullable[key]
	if !listed && !f.optional && f.typ != reflect.TypeFor[message.Output]() {
		switch f.typ.Kind() {
		case reflect.Slice, reflect.Map, reflect.Pointer:
			null = true
		}
	}
	if null && s[0].key == "$ref" {
		s = object{{"oneOf", []object{s, {{"type", "null"}}}}}
	} else if null {
		s = append(object{{"type", []any{s[0].value, "null"}}}, s[1:]...)
	}
	if values, ok := enums[key]; ok {
		s = append(s, member{"enum", values})
	}
	s = append(s, bounds[key]...)
	if about := g.typeDoc(f.holder).fields[f.goName]; about != "" {
		s = append(s, member{"description", fieldText(f.goName, about)})
	}
	return s
}

// A typeDoc is the doc comment of a type and those of its fields.
type typeDoc struct {
	about  string
	fields map[string]string
}

func (g *generator) typeDoc(typ reflect.Type) typeDoc {
	dir, ours := strings.CutPrefix(typ.PkgPath(), "github.com/jail-sandbox/jail/")
	if !ours {
		return typeDoc{}
	}
	if g.docs[dir] == nil {
		g.docs[dir] = g.packageDocs(filepath.Join("..", "..", dir))
	}
	return g.docs[dir][typ.Name()]
}

func (g *generator) packageDocs(dir string) map[string]typeDoc {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		g.t.Fatalf("%s has no Go files: %v", dir, err)
	}
	docs := map[string]typeDoc{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			g.t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range decl.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					docs[s.Name.Name] = docOf(decl, s)
				}
			}
		}
	}
	return docs
}

func docOf(decl *ast.GenDecl, s *ast.TypeSpec) typeDoc {
	d := typeDoc{about: s.Doc.Text(), fields: map[string]string{}}
	if d.about == "" {
		d.about = decl.Doc.Text()
	}
	if st, ok := s.Type.(*ast.StructType); ok {
		for _, f := range st.Fields.List {
			for _, name := range f.Names {
				if d.fields[name.Name] = f.Doc.Text(); d.fields[name.Name] == "" {
					d.fields[name.Name] = f.Comment.Text()
				}
			}
		}
	}
	return d
}

var spaces = regexp.MustCompile(`\s+`)

// fieldText returns the doc comment of a field as a description: without "Name is".
func fieldText(name, comment string) string {
	text := oneLine(comment)
	for _, verb := range []string{" is ", " are ", ": "} {
		if after, ok := strings.CutPrefix(text, name+verb); ok {
			text = after
			break
		}
	}
	// A value, such as "wasi:" or "bundle.json", stays as it is.
	if word, _, _ := strings.Cut(text, " "); !strings.ContainsAny(strings.TrimSuffix(word, "."),
		".:") {
		first, size := utf8.DecodeRuneInString(text)
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

func oneLine(comment string) string {
	return strings.TrimSpace(spaces.ReplaceAllString(comment, " "))
}

// enums are the values of fields, by schema and field.
var enums = map[string][]string{
	"Change.kind":          {"added", "modified", "deleted", "mode", "type", "link"},
	"Command.runner":       {"wasi", "shell", "compile", "native"},
	"CommittedChange.kind": {"added", "modified", "deleted", "mode", "type", "link"},
	"DetachRequest.fate":   {"", "keep", "discard", "commit"},
	"Error.code": {"failed", "refused", "layer", "not_found", "usage", "conflict", "busy",
		"ending"},
	"Finding.answer":       {"yes", "no", "unknown"},
	"Node.type":            {"file", "dir", "link", "fifo", "socket", "device"},
	"PlanFetch.mode":       {"enforce", "report"},
	"PlanFetch.tls":        {"intercept", "opaque"},
	"Request.fate":         {"", "keep", "discard", "commit"},
	"Result.workspace":     {"kept", "discarded", "committed"},
	"SessionRequest.fate":  {"", "keep", "discard", "commit"},
	"StopRequest.fate":     {"", "keep", "discard", "commit"},
	"VerifyFinding.answer": {"ok", "differs", "not readable"},
	"WorkspaceInfo.commit": {"never", "ask", "auto"},
	"WorkspaceInfo.state":  {"prepared", "active", "frozen", "committing", "committed", "reverted"},
}

// nullable says which fields can be null, by schema and field, where it is not a slice, map or
// pointer without omitempty that can.
var nullable = map[string]bool{
	"DiscardRequest.paths": false,
	"FileHunks.hunks":      false,
	"HostStatus.findings":  false,
	"Hunk.lines":           false,
	"Observed.files":       false,
	"Offer.manifest":       false,
	"Problem.error":        false,
	"Result.denied":        false,
	"ScriptNeeds.hosts":    false,
	"ScriptNeeds.mounts":   false,
	"RecordsRequest.uid":   true,
}

// bounds are the limits of numbers, by schema and field.
var bounds = map[string]object{
	"KillRequest.signal": {{"minimum", 0}, {"maximum", 31}},
	"UserCount.value":    {{"minimum", 0}},
}
