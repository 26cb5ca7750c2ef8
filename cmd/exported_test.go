package cmd_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Why a name is exported that no other package uses.
const (
	oneOfSeveral = "one of several values, of which other packages use others"
	byOwnTests   = "the tests of its package are outside of it, and use it"
	inDocument   = "openapi.json names it"
)

// mostUnused bounds the exported names that no other package uses.
const mostUnused = 60

// unusedNames are the exported names of the product that no other package uses, each with the
// reason why it is exported.
var unusedNames = map[string]string{
	"policy.TopAgents":                        byOwnTests,
	"supervisor/agents/agentapi.Created":      oneOfSeveral,
	"supervisor/agents/agentapi.Initializing": oneOfSeveral,
	"supervisor/agents/agentapi.Terminated":   oneOfSeveral,
	"supervisor/api.AgentRecords":             inDocument,
	"supervisor/api.ClaimRequest":             inDocument,
	"jail/guest.CloseOthers":                  byOwnTests,
	"jail.ErrPlan":                            byOwnTests,
	"jail.RunnerShell":                        oneOfSeveral,
	"jail/launch.ErrLate":                     byOwnTests,
	"jail/seccomp/libseccomp.NameOf":          byOwnTests,
	"jail/seccomp/libseccomp.NumberOf":        byOwnTests,
	"jail/workspace.Device":                   oneOfSeveral,
	"jail/workspace.Executable":               oneOfSeveral,
	"jail/workspace.Folds":                    oneOfSeveral,
	"jail/workspace.GitIndex":                 oneOfSeveral,
	"jail/workspace.GitLogs":                  oneOfSeveral,
	"jail/workspace.Named":                    oneOfSeveral,
	"jail/workspace.SetID":                    oneOfSeveral,
	"jail/workspace.Socket":                   oneOfSeveral,
	"jail/workspace.Split":                    oneOfSeveral,
	"policy.AllPorts":                         byOwnTests,
	"policy.Approve.ForTool":                  byOwnTests,
	"policy.ErrNoLayers":                      byOwnTests,
	"policy.ErrUnknownLimit":                  byOwnTests,
	"policy.GitControl":                       oneOfSeveral,
	"policy.ProtectedRisks":                   byOwnTests,
	"policy.TopEnv":                           byOwnTests,
	"policy.TopMounts":                        byOwnTests,
	"policy.TopSession":                       byOwnTests,
	"policy.TopSyscalls":                      byOwnTests,
	"policy.TopTools":                         byOwnTests,
	"profiles.ErrFragment":                    byOwnTests,
	"profiles.ErrUntrusted":                   byOwnTests,
	"runners/wasi.ErrComponent":               byOwnTests,
	"runners/wasi.LayoutSection":              byOwnTests,
	"runners/wasi.MaxFunctionBytes":           byOwnTests,
	"runners/wasi.MaxFunctions":               byOwnTests,
	"runners/wasi.MaxLocals":                  byOwnTests,
	"runners/wasi.MaxTableElements":           byOwnTests,
	"runners/wasi.MaxTargets":                 byOwnTests,
	"supervisor/api.AttachRequest":            inDocument,
	"supervisor/api.RecordLine":               inDocument,
	"supervisor/audit.TypeApproval":           oneOfSeveral,
	"supervisor/audit.TypeSession":            oneOfSeveral,
	"supervisor/audit/export.OCSF":            oneOfSeveral,
	"supervisor/audit/export.Journald":        oneOfSeveral,
	"supervisor/audit/export.OTLP":            oneOfSeveral,
	"supervisor/fetch.Denied":                 oneOfSeveral,
}

// forOthers are packages whose exported names are for programs outside this module.
var forOthers = []string{"runners/wasi/guestlib/", "supervisor/client"}

// ofInterfaces are methods of interfaces of the standard library and of other modules, which call
// them.
var ofInterfaces = []string{"Accept", "Addr", "As", "Close", "Error", "Format", "GoString", "Is",
	"LogValue", "MarshalJSON", "MarshalText", "Read", "ReadByte", "ReadFrom", "ServeHTTP",
	"String", "Type", "UnmarshalJSON", "UnmarshalText", "Unwrap", "Write", "WriteHeader"}

// exportedNames returns the exported functions, types, constants, variables and methods that the
// product declares: "policy.Limits", and "policy.Limits.Meet" for a method. used are those that the
// code or the tests of another package name. A method is used, too, if another package selects any
// method or field of its name, or if an interface has a method of its name; a type, if an exported
// function, field or variable of its package has it, since other packages hold its values then.
func exportedNames(t *testing.T) (names []string, used func(name string) bool) {
	t.Helper()
	direct := map[string]bool{}
	// The packages that select a field or method of a name.
	selected := map[string][]string{}
	methods, held := map[string]bool{}, map[string]bool{}
	for _, name := range ofInterfaces {
		methods[name] = true
	}
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && slices.Contains([]string{"testdata", "bin", ".git"}, d.Name()) {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if d.IsDir() || !strings.HasSuffix(file, ".go") {
			return nil
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel("..", filepath.Dir(file))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(rel)
		imports := map[string]string{}
		for _, i := range syntax.Imports {
			full := strings.Trim(i.Path.Value, `"`)
			name := path.Base(full)
			if i.Name != nil {
				name = i.Name.Name
			}
			imports[name] = strings.TrimPrefix(full, module)
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if ok && x.Obj == nil && imports[x.Name] != "" {
					if imports[x.Name] != pkg {
						direct[imports[x.Name]+"."+n.Sel.Name] = true
					}
				} else if !slices.Contains(selected[n.Sel.Name], pkg) {
					selected[n.Sel.Name] = append(selected[n.Sel.Name], pkg)
				}
			case *ast.InterfaceType:
				for _, m := range n.Methods.List {
					for _, name := range m.Names {
						methods[name.Name] = true
					}
				}
			}
			return true
		})
		others := slices.ContainsFunc(forOthers, func(p string) bool {
			return strings.HasPrefix(pkg+"/", p)
		})
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(pkg, "test") || others ||
			strings.HasPrefix(pkg, "cmd/dev/") || strings.HasPrefix(pkg, "runners/tools/") ||
			syntax.Name.Name == "main" {
			return nil
		}
		var hold func(ast.Node)
		hold = func(n ast.Node) {
			ast.Inspect(n, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Ident:
					held[pkg+"."+n.Name] = true
				case *ast.StructType:
					for _, f := range n.Fields.List {
						if len(f.Names) == 0 || f.Names[0].IsExported() {
							hold(f.Type)
						}
					}
					return false
				case *ast.Field:
					hold(n.Type)
					return false
				}
				return true
			})
		}
		for _, decl := range syntax.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Name.IsExported() {
					hold(decl.Type)
				}
				if decl.Recv != nil {
					of := typeName(decl.Recv.List[0].Type, pkg, nil)
					if ast.IsExported(of[strings.LastIndex(of, ".")+1:]) && decl.Name.IsExported() {
						names = append(names, of+"."+decl.Name.Name)
					}
				} else if decl.Name.IsExported() {
					names = append(names, pkg+"."+decl.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						if spec.Name.IsExported() {
							names = append(names, pkg+"."+spec.Name.Name)
							hold(spec.Type)
						}
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							if name.IsExported() {
								if spec.Type != nil {
									hold(spec.Type)
								}
								names = append(names, pkg+"."+name.Name)
							}
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
	return names, func(name string) bool {
		folder, last := path.Split(name)
		parts := strings.Split(last, ".")
		if len(parts) < 3 {
			return direct[name] || held[name]
		}
		return methods[parts[2]] || slices.ContainsFunc(selected[parts[2]], func(pkg string) bool {
			return pkg != folder+parts[0]
		})
	}
}

// TestExportedNamesAreUsed: another package uses what a package exports. The names that none uses
// are few, and each has its reason.
func TestExportedNamesAreUsed(t *testing.T) {
	names, used := exportedNames(t)
	unused := 0
	for _, name := range names {
		if used(name) {
			if unusedNames[name] != "" {
				t.Errorf("unusedNames has %s, which another package uses", name)
			}
			continue
		}
		unused++
		if unusedNames[name] == "" {
			t.Errorf("no other package uses %s: do not export it, or say in unusedNames why", name)
		}
	}
	t.Logf("%d exported names, of which no other package uses %d", len(names), unused)
	if unused > mostUnused {
		t.Errorf("%d exported names are used by no other package, and %d may be", unused, mostUnused)
	}
	for name := range unusedNames {
		if !slices.Contains(names, name) {
			t.Errorf("unusedNames has %s, and there is no such name", name)
		}
	}
}
