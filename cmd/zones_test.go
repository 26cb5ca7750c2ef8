// Package cmd_test holds the tests of the whole: the trust zones here, and in end_to_end_*_test.go
// what a user sees of the built programs.
package cmd_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/jail-sandbox/jail/"

// zones in the order in which they may import: each those after it, and itself.
var zones = []string{"cmd", "supervisor", "runners", "jail", "policy"}

// outside the line: profiles is data with a loader, used by supervisor and cmd; it reads policies.
var beside = map[string][]string{"profiles": {"policy"}}

var mayUse = map[string][]string{"supervisor": {"profiles"}, "cmd": {"profiles"}}

// soleImporters are the packages that wrap a dependency; "/..." stands for all packages below.
var soleImporters = map[string][]string{
	"github.com/opencontainers/runc":       {"jail/runc"},
	"github.com/seccomp/libseccomp-golang": {"jail/seccomp/libseccomp"},
	"github.com/pjbgf/sha1cd":              {"jail/gitrepo"},
	"github.com/containerd/cgroups":        {"jail/cgroup"},
	"github.com/coreos/go-systemd":         {"cmd/jaild", "cmd/jail-agentd"},
	"github.com/coder/websocket":           {"supervisor/agents/server", "supervisor/execserver"},
	"github.com/tetratelabs/wazero":        {"runners/wasi/guest"},
	"github.com/CycloneDX/cyclonedx-go":    {"cmd/dev/sbom"},
	"github.com/fsnotify/fsnotify":         {"profiles", "supervisor/agents"},
	"github.com/landlock-lsm/go-landlock":  {"jail/landlock"},
	"github.com/pelletier/go-toml":         {"policy/syntax"},
	"modernc.org/sqlite": {"supervisor/audit/index", "supervisor/agents/store",
		"runners/agent/store", "supervisor/gatekeepers"},
	"github.com/modelcontextprotocol/go-sdk": {"supervisor/mcp"},
	"github.com/tailscale/hujson":            {"cmd/jail/agents"},
	"github.com/google/renameio":             {"jail/atomicfile"},
	"go.opentelemetry.io/proto/otlp":         {"supervisor/audit/export"},
	"google.golang.org/protobuf":             {"supervisor/audit/export"},
	"golang.org/x/mod": {"supervisor/audit", "supervisor/audit/witnesstest",
		"supervisor/bundle/trust"},
	"oras.land/oras-go":                    {"supervisor/bundle/oci"},
	"github.com/opencontainers/go-digest":  {"supervisor/bundle/oci"},
	"github.com/opencontainers/image-spec": {"supervisor/bundle/oci", "supervisor/images"},
	"github.com/klauspost/compress":        {"supervisor/images"},
	"github.com/aymanbagabas/go-udiff":     {"jail/workspace"},
	"golang.org/x/text":                    {"jail/workspace"},
	"github.com/hashicorp/yamux":           {"jail/streams"},
	// jail/seccomp names constants only: TestSeccompRulesCallNothing.
	"golang.org/x/sys/unix": {"jail/internal/sys", "runners/internal/sys", "jail/seccomp"},
	"unsafe": {"jail/internal/sys", "runners/internal/sys",
		// A library for guests, which is part of no program of the host.
		"runners/wasi/guestlib/agentlib/go/jailagent"},
	"github.com/spf13/cobra": {"cmd/jail/..."},
}

// forTests are the packages that only tests import, and these packages.
var forTests = []string{"cmd/cmdtest", "jail/jailtest", "jail/jailtest/built",
	"policy/policytest", "runners/runnertest", "runners/wasi/wasitest",
	"supervisor/audit/witnesstest", "supervisor/console/consoletest",
	"supervisor/fetch/fetchtest"}

// pure packages touch nothing: they import none of impure.
var pure = []string{
	"policy", "policy/meaning", "policy/learn", "policy/paths", "policy/secret", "policy/strict",
	"policy/syntax",
	"runners", "runners/wasi", "jail", "jail/seccomp",
}

// impure are the parts of the standard library that do more than compute.
var impure = []string{"os", "os/exec", "net", "net/http", "syscall", "unsafe", "time/tzdata",
	"plugin"}

// notLinked says what a program must not contain.
var notLinked = map[string][]string{
	"cmd/jail": {"C", "github.com/opencontainers/runc", "github.com/seccomp",
		"github.com/tetratelabs/wazero"},
	// The front of jail must start fast: TestFrontImports.
	"cmd/jail/front": {"C", "net", "net/http", "regexp", "github.com/spf13", "google.golang.org"},
	"cmd/jaild": {"C", "github.com/opencontainers/runc", "github.com/seccomp",
		"github.com/tetratelabs/wazero", "oras.land", "modernc.org"},
	"cmd/jail-agentd": {"C", "github.com/opencontainers/runc", "github.com/seccomp",
		"github.com/tetratelabs/wazero", "oras.land"},
	"cmd/jail-init": {"C", "github.com/opencontainers/runc", "github.com/seccomp",
		"github.com/containerd", "net/http"},
	"cmd/jail-shim": {"github.com/tetratelabs/wazero", "net/http"},
	"cmd/jail-oci":  {"github.com/tetratelabs/wazero", "modernc.org"},
}

func TestZones(t *testing.T) {
	eachImport(t, func(file, pkg, path string) {
		to, ours := strings.CutPrefix(path, module)
		if !ours {
			return
		}
		from, into := zone(pkg), zone(to)
		if allowed, ok := beside[from]; ok {
			if into != from && !slices.Contains(allowed, into) {
				t.Errorf("%s imports %s: %s may import only %v", file, to, from, allowed)
			}
			return
		}
		if slices.Contains(mayUse[from], into) {
			return
		}
		i, j := slices.Index(zones, from), slices.Index(zones, into)
		if i < 0 || j < 0 || i > j {
			t.Errorf("%s imports %s: imports run one way, %s", file, to, strings.Join(zones, " → "))
		}
	})
}

func TestSoleImporters(t *testing.T) {
	eachImport(t, func(file, pkg, path string) {
		if strings.HasSuffix(file, "_test.go") || pkg == "cmd/cmdtest" {
			return
		}
		for dep, importers := range soleImporters {
			if (path == dep || strings.HasPrefix(path, dep+"/")) && !slices.ContainsFunc(importers,
				func(pattern string) bool { return matches(pattern, pkg) }) {
				t.Errorf("%s imports %s: only %v may", file, path, importers)
			}
		}
	})
}

// TestImportersOfTestPackages: no program that users have has a package in it that is for tests.
func TestImportersOfTestPackages(t *testing.T) {
	seen := map[string]bool{}
	eachImport(t, func(file, pkg, path string) {
		to := strings.TrimPrefix(path, module)
		if !slices.Contains(forTests, to) {
			return
		}
		seen[to] = true
		if !strings.HasSuffix(file, "_test.go") && !slices.Contains(forTests, pkg) &&
			pkg != "cmd/dev/bench" {
			t.Errorf("%s imports %s, which is for tests", file, to)
		}
	})
	for _, pkg := range forTests {
		if !seen[pkg] {
			t.Errorf("nothing imports %s", pkg)
		}
	}
}

// matches reports whether pkg is the package of the pattern, or lies below a pattern that ends in
// "/...".
func matches(pattern, pkg string) bool {
	parent, below := strings.CutSuffix(pattern, "/...")
	return pkg == parent || below && strings.HasPrefix(pkg, parent+"/")
}

func TestPurePackages(t *testing.T) {
	eachImport(t, func(file, pkg, path string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		if slices.Contains(pure, pkg) {
			if slices.Contains(impure, path) {
				t.Errorf("%s imports %s: package %s is pure", file, path, pkg)
			}
		}
		if first, _, _ := strings.Cut(path, "/"); pkg == "policy" && strings.Contains(first, ".") &&
			path != module+"policy/paths" {
			t.Errorf("%s imports %s: policy uses the standard library and policy/paths only", file,
				path)
		}
	})
}

// TestSeccompRulesCallNothing: the rules take numbers from x/sys/unix and make no system call.
func TestSeccompRulesCallNothing(t *testing.T) {
	files, err := filepath.Glob("../jail/seccomp/*.go")
	if err != nil || len(files) < 3 {
		t.Fatalf("files of jail/seccomp: %v, %v", files, err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := s.X.(*ast.Ident)
			if ok && pkg.Name == "unix" && s.Sel.Name != strings.ToUpper(s.Sel.Name) &&
				!strings.Contains(s.Sel.Name, "_") {
				t.Errorf("%s uses unix.%s, which is no constant", file, s.Sel.Name)
			}
			return true
		})
	}
}

func TestNotLinked(t *testing.T) {
	for program, forbidden := range notLinked {
		list := exec.Command("go", "list", "-deps", "-json=ImportPath,CgoFiles", "-tags",
			"seccomp", module+program)
		list.Env = append(os.Environ(), "CGO_ENABLED=1")
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list %s: %v", program, err)
		}
		d := json.NewDecoder(strings.NewReader(string(out)))
		for d.More() {
			var p struct {
				ImportPath string
				CgoFiles   []string
			}
			if err := d.Decode(&p); err != nil {
				t.Fatal(err)
			}
			for _, f := range forbidden {
				if f != "C" && (p.ImportPath == f || strings.HasPrefix(p.ImportPath, f+"/")) {
					t.Errorf("%s contains %s", program, p.ImportPath)
				}
			}
		}
	}
}

func zone(pkg string) string {
	first, _, _ := strings.Cut(pkg, "/")
	return first
}

// eachImport calls f for every import of every Go file of the project.
func eachImport(t *testing.T, f func(file, pkg, path string)) {
	t.Helper()
	root := ".."
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				// Tests beside this one make and remove directories.
				return nil
			}
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." ||
			d.Name() == "testdata" || d.Name() == "bin") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files++
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			f(rel, filepath.ToSlash(filepath.Dir(rel)), imported)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Fatalf("only %d Go files were found", files)
	}
}
