package cmd_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Bounds of a type that does work, with those that it embeds.
const (
	mostFields  = 12
	mostMethods = 40
)

// largeData are the types that have more fields than a type that does work may have, because they
// hold data only: their methods read it, compare it, or turn it into another form.
var largeData = map[string]string{
	"cmd/jail/internal/request.Flags":     "the flags of a command",
	"cmd/jail/policy.newProfile":          "the flags of a command, and the profile they make",
	"cmd/jail/tool.bundleView":            "what a command prints",
	"jail.Plan":                           "what the kernel is told",
	"jail/oci.Plan":                       "the whole description of a container for the kernel",
	"jail.Request":                        "what a plan is made from: everything that was looked up on the host",
	"jail/workspace.Change":               "one change, as it is shown",
	"jail/workspace.journal":              "a file of the store",
	"jail/workspace.meta":                 "a file of the store",
	"jail/workspace.step":                 "an entry of the journal",
	"policy.Limits":                       "the limits of a policy, one field each",
	"policy/learn.Draft":                  "a policy that was learned, as it is printed",
	"supervisor/agents/manifest.Agent":    "what the directory of an agent holds",
	"supervisor/agents/manifest.Manifest": "the content of a file",
	"supervisor/api.Change":               "a message",
	"supervisor/approvals.Action":         "an action, as it is listed and kept",
	"supervisor/approvals.Grant":          "a grant, as it is listed and kept",
	"supervisor/approvals.stored":         "an action in the journal",
	"supervisor/audit.Fetch":              "a record",
	"supervisor/audit.Placed":             "a record with its place in the log",
	"supervisor/audit.Record":             "a record",
	"supervisor/audit.RunStarted":         "a record",
	"supervisor/audit/report.Run":         "what a report says of a run",
	"supervisor/bundle.Bundle":            "the manifest of a bundle and where it came from",
	"supervisor/config.Config":            "the configuration of a daemon",
	"supervisor/console.action":           "an action, as a page shows it",
	"supervisor/console.decided":          "what a page shows after a decision",
	"supervisor/console.proposal":         "what the page of an action shows",
	"supervisor/console.story":            "what a page shows",
	"supervisor/fetch.Credential":         "an entry of the file of credentials",
	"supervisor/toolsession.Outcome":      "what a call gave",
	"supervisor/message.DetachRequest":    "a message",
	"supervisor/message.EventsRequest":    "a message",
	"supervisor/message.Request":          "a message",
	"supervisor/message.SessionRequest":   "a message",
}

// A structType is one struct of the module, as its source declares it.
type structType struct {
	fields  int
	methods int
	// embeds are the types that it embeds, by package and name.
	embeds []string
}

// total returns the fields and methods of a type with those of all that it embeds. An embedded type
// of another module counts as one field.
func total(types map[string]*structType, name string) (fields, methods int) {
	s := types[name]
	fields, methods = s.fields, s.methods
	for _, e := range s.embeds {
		if types[e] == nil {
			fields++
			continue
		}
		f, m := total(types, e)
		fields, methods = fields+f, methods+m
	}
	return fields, methods
}

// structTypes reads all structs of the product, by package and name: "supervisor/run.Run".
func structTypes(t *testing.T) map[string]*structType {
	t.Helper()
	types := map[string]*structType{}
	at := func(name string) *structType {
		if types[name] == nil {
			types[name] = &structType{}
		}
		return types[name]
	}
	structs := map[string]bool{}
	root := ".."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		skipped := []string{"testdata", "bin", ".git", "jailtest"}
		if err != nil || d.IsDir() && slices.Contains(skipped, d.Name()) {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(rel)
		imports := map[string]string{}
		for _, i := range file.Imports {
			full := strings.Trim(i.Path.Value, `"`)
			name := full[strings.LastIndex(full, "/")+1:]
			if i.Name != nil {
				name = i.Name.Name
			}
			imports[name] = strings.TrimPrefix(full, module)
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv != nil {
					at(typeName(decl.Recv.List[0].Type, pkg, imports)).methods++
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					spec, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					fields, ok := spec.Type.(*ast.StructType)
					if !ok {
						continue
					}
					structs[pkg+"."+spec.Name.Name] = true
					s := at(pkg + "." + spec.Name.Name)
					for _, f := range fields.Fields.List {
						s.fields += len(f.Names)
						if len(f.Names) == 0 {
							s.embeds = append(s.embeds, typeName(f.Type, pkg, imports))
						}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range types {
		if !structs[name] {
			delete(types, name)
		}
	}
	return types
}

// typeName returns the package and the name of a type: of what it points to, without its arguments.
func typeName(e ast.Expr, pkg string, imports map[string]string) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X, pkg, imports)
	case *ast.IndexExpr:
		return typeName(e.X, pkg, imports)
	case *ast.IndexListExpr:
		return typeName(e.X, pkg, imports)
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			return imports[x.Name] + "." + e.Sel.Name
		}
	case *ast.Ident:
		return pkg + "." + e.Name
	}
	return ""
}

// TestTypesAreSmall: no type that does work has more than 12 fields or 40 methods, with those of
// the types that it embeds. A type without a method does no work.
func TestTypesAreSmall(t *testing.T) {
	types := structTypes(t)
	for name := range types {
		fields, methods := total(types, name)
		if methods > mostMethods {
			t.Errorf("%s has %d methods, and may have %d: give a part of its work to a type of "+
				"its own", name, methods, mostMethods)
		}
		large := fields > mostFields && methods > 0
		if large && largeData[name] == "" {
			t.Errorf("%s has %d fields and %d methods, and may have %d fields: give what one step "+
				"needs to that step, or say in largeData why it is data", name, fields, methods,
				mostFields)
		}
		if !large && largeData[name] != "" {
			t.Errorf("largeData has %s, which is small", name)
		}
	}
	for name := range largeData {
		if types[name] == nil {
			t.Errorf("largeData has %s, and there is no such type", name)
		}
	}
}
