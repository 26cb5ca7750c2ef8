package cmd_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// supervisorOrder lists the packages below supervisor/ from the lowest floor to the highest. A
// package may import packages of lower floors only, and none of its own floor. A new package goes
// on the lowest floor above all packages that it imports.
var supervisorOrder = [][]string{
	// They import nothing: the forms of secrets, and what a client must know of the API.
	{"jsonbound", "redact", "transcript", "wire"},
	// They know nothing of other packages of the supervisor but that.
	{"calm", "daemonlog", "ending", "idrange", "loopback", "metrics", "modules", "names", "problem",
		"rungroup", "agents/manifest",
		"bundle/trust", "flock"},
	// The parts below the work: the log, bundles, the fetch proxy.
	{"audit", "bundle", "fetch", "gitview", "hostlayers", "images", "lifetime", "stdio"},
	{"audit/anchor", "audit/export", "audit/index", "audit/report", "bundle/oci", "caller",
		"config",
		"filewatch", "hostpolicy", "mounts", "rundir", "runlog", "lasting"},
	{"admission", "prewarm", "shadows", "agents/agentapi"},
	// What clients and the daemon say to each other.
	{"message", "engine", "agents/store"},
	// The parts beside the work.
	{"approvals", "auditlog", "containers", "detached", "hoststatus", "naming", "records", "recovery", "tools"},
	// The parts of a run.
	{"prepare", "runproxy"},
	{"meters", "runshadow"},
	// The work: a request that was decided becomes a run.
	{"run"},
	// What is made of runs: sessions, and the list of those that live.
	{"live", "session"},
	// The parts wired together.
	{"service"},
	// The faces.
	{"api"},
	{"client", "console", "learn", "toolsession"},
	// What coding agents work with: their tools, and the models.
	{"codetools", "fetchrun"},
	{"models"},
	// What coding agents speak, and the loop of jail's own.
	{"execserver", "loop", "mcp"},
	// jail-agentd and the worker are clients of a daemon.
	{"agents/builtin", "gatekeepers"},
	{"agents", "worker"},
	{"agents/hosted", "agents/jailed"},
	{"agents/server"},
}

// supervisorForTests are the packages below supervisor/ that only tests import.
var supervisorForTests = []string{"audit/witnesstest", "console/consoletest", "fetch/fetchtest"}

// TestSupervisorOrder: the packages of the supervisor import in one direction, tests included, and
// each of them has its place in the order.
func TestSupervisorOrder(t *testing.T) {
	floor := map[string]int{}
	for n, names := range supervisorOrder {
		for _, name := range names {
			floor[name] = n
		}
	}
	name := func(pkg string) (string, bool) {
		// The folder itself holds no package but one that describes the others.
		below, ok := strings.CutPrefix(pkg, "supervisor/")
		return below, ok || pkg == "supervisor"
	}
	seen := map[string]bool{}
	eachImport(t, func(file, pkg, path string) {
		from, ok := name(pkg)
		if !ok || slices.Contains(strings.Split(filepath.ToSlash(file), "/"), "testdata") {
			return
		}
		seen[from] = true
		to, ours := name(strings.TrimPrefix(path, module))
		if !ours || to == from {
			return
		}
		if slices.Contains(supervisorForTests, to) {
			if !strings.HasSuffix(file, "_test.go") && !slices.Contains(supervisorForTests, from) {
				t.Errorf("%s imports %s, which is for tests", file, to)
			}
			return
		}
		below, known := floor[to]
		if !known {
			t.Errorf("%s imports %s, which has no floor in supervisorOrder", file, to)
		} else if below >= floor[from] {
			t.Errorf("%s: %s, on floor %d, imports %s, on floor %d", file, from, floor[from], to,
				below)
		}
	})
	for pkg := range seen {
		if _, ok := floor[pkg]; !ok && !slices.Contains(supervisorForTests, pkg) {
			t.Errorf("package %s has no floor in supervisorOrder", pkg)
		}
	}
	for pkg := range floor {
		// A package that imports nothing has not been seen.
		if _, err := os.Stat(filepath.Join("..", "supervisor", pkg)); !seen[pkg] && err != nil {
			t.Errorf("supervisorOrder names %s, and there is no such package", pkg)
		}
	}
}
