package launch_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/launch"
	runtimes "github.com/jail-sandbox/jail/jail/outer"
	"github.com/jail-sandbox/jail/policy"
)

// runtimeOf returns the runtime of an outer layer. Where the host has none, or one that cannot
// start anything here, the test is skipped.
func runtimeOf(t *testing.T, s *jailtest.Setup, layer string) jail.Runtime {
	t.Helper()
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	found := &runtimes.Runtimes{Dir: bin}
	runtime, err := found.Find(t.Context(), layer)
	if errors.Is(err, runtimes.ErrMissing) {
		t.Skipf("outer layer %s: %v", layer, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := runtimes.Try(t.Context(), layer, runtime, runtimes.Host{Shim: s.Launcher.Shim,
		Init: s.Launcher.Init, Cgroup: jailtest.Slice()}); err != nil {
		t.Skipf("outer layer %s does not work here: %v", layer, err)
	}
	return runtime
}

// within makes the plan of a setup one for an outer layer.
func within(t *testing.T, s *jailtest.Setup, layer string, runtime jail.Runtime) {
	t.Helper()
	ask := policy.NewRequest()
	if err := ask.Outer(layer); err != nil {
		t.Fatal(err)
	}
	eff, err := policy.Resolve(append(s.Policy.Layers(),
		policy.Layer{Name: "request", Policy: ask.Policy()})...)
	if err != nil {
		t.Fatal(err)
	}
	s.Request.Runtime = &runtime
	if s.Plan, err = jail.NewPlan(eff, s.Request); err != nil {
		t.Fatal(err)
	}
}

// soleAttacks returns for each wall the index of the first attack that it alone stops. An ordinary
// test makes these: a jail inside gVisor takes a second of processor time. With -update or
// JAIL_TEST_LONG all attacks are made.
func soleAttacks() map[wall]int {
	sole := map[wall]int{}
	for i, a := range attacks {
		if _, ok := sole[a.walls[0]]; len(a.walls) == 1 && !ok {
			sole[a.walls[0]] = i
		}
	}
	return sole
}

const outerTableHead = `# What stops which attack inside an outer layer

A test writes this page, as root, where every [outer layer](outer.md) works: ` + "`go test ./jail/launch -run 'TestOuterWalls$' -update`" + `. The attacks are
those of [walls.md](walls.md), which shows each of them working where no layer is. Each is made in a fresh jail with the whole stack inside the layer. bwrap, crun and runc make the
namespaces of the plan with the host's kernel and add no wall of their own. The last column is what gVisor adds by itself: both filters let the calls of the attack
through. There ` + "`ok`" + ` is of gVisor's own kernel, and not of the host's.

`

// TestOuterWalls lets every attack meet the whole stack inside each outer layer. TestWalls is the
// control, in which it works.
func TestOuterWalls(t *testing.T) {
	jailtest.Require(t)
	columns, all, sole := map[string][]string{}, *update || os.Getenv("JAIL_TEST_LONG") != "",
		soleAttacks()
	if len(sole) != len(allWalls) {
		t.Errorf("%d of %d walls have an attack that they alone stop", len(sole), len(allWalls))
	}
	const alone = policy.OuterRunsc + ", without the filters"
	for _, l := range policy.OuterLayers() {
		t.Run(l.Name, func(t *testing.T) {
			runtime := runtimeOf(t, jailtest.New(t), l.Name)
			names := []string{l.Name}
			if l.Replaces {
				names = append(names, alone)
			}
			for _, name := range names {
				columns[name] = make([]string, len(attacks))
			}
			t.Run("attacks", func(t *testing.T) {
				for i, a := range attacks {
					if j, ok := sole[a.walls[0]]; !all && (!ok || i != j) {
						continue
					}
					t.Run(strings.ReplaceAll(a.name, "/", "_"), func(t *testing.T) {
						answer := a.meetWithin(t, l.Name, runtime, false)
						columns[l.Name][i] = answer
						// What only Landlock and the counts of the host's kernel stop works inside
						// gVisor: it concerns gVisor's own kernel and the memory of the jail.
						replaced := l.Replaces && len(without(without(a.walls, domain), counts)) == 0
						if answer == "ok" && !replaced {
							t.Errorf("the whole stack inside %s: ok", l.Name)
						}
						// Only the table has it.
						if l.Replaces && *update {
							columns[alone][i] = a.meetWithin(t, l.Name, runtime, true)
						}
					})
				}
			})
		})
	}
	var names []string
	for _, l := range policy.OuterLayers() {
		names = append(names, l.Name)
	}
	names = append(names, alone)
	if t.Failed() || !*update || len(columns) < len(names) {
		return
	}
	var table strings.Builder
	table.WriteString(outerTableHead + "| attack | " + strings.Join(names, " | ") + " |\n" +
		strings.Repeat("|---", 1+len(names)) + "|\n")
	for i, a := range attacks {
		row := []string{a.name}
		for _, name := range names {
			row = append(row, columns[name][i])
		}
		table.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	golden(t, filepath.Join("..", "..", "docs", "walls-outer.md"), table.String())
}

// meetWithin makes the attack in a fresh jail inside a layer; open lets its calls through both
// filters.
func (a attack) meetWithin(t *testing.T, layer string, runtime jail.Runtime, open bool) (answer string) {
	t.Helper()
	t.Run(fmt.Sprintf("filters open %t", open), func(t *testing.T) {
		h := &host{Setup: jailtest.New(t)}
		within(t, h.Setup, layer, runtime)
		for _, w := range a.walls {
			if open && (w == inner || w == outer) {
				a.remove(t, h, w)
			}
		}
		if a.prepare != nil {
			a.prepare(t, h)
		}
		j := h.Start(t)
		results, err := j.Try(a.calls(h)...)
		switch {
		case err != nil:
			answer = a.ended(t, j, err)
		case a.judge != nil:
			answer = a.judge(results)
		default:
			answer = firstError(results)
		}
	})
	return answer
}

// TestOuterFails: a runtime that ends before jail-init runs is a layer that cannot be set up, with
// what the runtime says, and the jail does not wait for its patience.
func TestOuterFails(t *testing.T) {
	jailtest.Require(t)
	for _, l := range policy.OuterLayers() {
		t.Run(l.Name, func(t *testing.T) {
			s := jailtest.New(t)
			path := filepath.Join(t.TempDir(), l.Name)
			if err := os.WriteFile(path, []byte(brokenRuntime), 0o755); err != nil {
				t.Fatal(err)
			}
			within(t, s, l.Name, jail.Runtime{Path: path})
			_, err := s.TryStart(t)
			var layer *launch.LayerError
			if !errors.As(err, &layer) ||
				!strings.Contains(err.Error(), "no such machine") {
				t.Errorf("%v", err)
			}
		})
	}
}

// brokenRuntime writes to its log why it ends, or, if it is given none, to standard error.
const brokenRuntime = `#!/bin/sh
for arg; do
	case $before in --log) log=$arg ;; esac
	case $arg in --log=*) log=${arg#--log=} ;; delete) exit 0 ;; esac
	before=$arg
done
[ -z "$log" ] || exec 2>"$log"
echo no such machine >&2
exit 3
`
