package launch_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	runtimes "github.com/jail-sandbox/jail/jail/outer"
	"github.com/jail-sandbox/jail/policy"
)

// runtimeOf returns the runtime of an outer layer. Where the host has none, or one that cannot start
// anything here, the test is skipped.
func runtimeOf(t *testing.T, s *jailtest.Setup, layer string) jail.Runtime {
	t.Helper()
	found := &runtimes.Runtimes{Dir: filepath.Join("..", "..", "bin")}
	runtime, err := found.Find(t.Context(), layer)
	if errors.Is(err, runtimes.ErrMissing) {
		t.Skipf("outer layer %s: %v", layer, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := runtimes.Try(t.Context(), layer, runtime, s.Launcher.Init,
		jailtest.Slice()); err != nil {
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

// TestOuterWalls lets every attack meet the whole stack inside each outer layer. TestWalls is the
// control, in which it works.
func TestOuterWalls(t *testing.T) {
	jailtest.Require(t)
	for _, l := range policy.OuterLayers() {
		layer := l.Name
		t.Run(layer, func(t *testing.T) {
			runtime := runtimeOf(t, jailtest.New(t), layer)
			answers := make([]string, len(attacks))
			t.Run("attacks", func(t *testing.T) {
				for i, a := range attacks {
					t.Run(strings.ReplaceAll(a.name, "/", "_"), func(t *testing.T) {
						t.Parallel()
						answers[i] = a.meetWithin(t, layer, runtime)
						// What only Landlock and the counts of the host's kernel stop works inside gVisor:
						// it concerns gVisor's own kernel and the memory of the jail.
						replaced := l.Replaces && len(without(without(a.walls, domain), counts)) == 0
						if answers[i] == "ok" && !replaced {
							t.Errorf("the whole stack inside %s: ok", layer)
						}
					})
				}
			})
			for i, a := range attacks {
				t.Logf("| %s | %s |", a.name, answers[i])
			}
		})
	}
}

func (a attack) meetWithin(t *testing.T, layer string, runtime jail.Runtime) string {
	t.Helper()
	h := &host{Setup: jailtest.New(t)}
	within(t, h.Setup, layer, runtime)
	if a.prepare != nil {
		a.prepare(t, h)
	}
	j := h.Start(t)
	results, err := j.Try(a.calls(h)...)
	if err != nil {
		return a.ended(t, j, err)
	}
	if a.judge != nil {
		return a.judge(results)
	}
	return fmt.Sprint(firstError(results))
}
