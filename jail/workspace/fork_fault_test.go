package workspace

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

// digest names the state of a workspace by its changes, "" if there is no such workspace.
func (m *family) digest(id string) string {
	m.t.Helper()
	w, err := m.store.Get(id)
	if errors.Is(err, ErrNotFound) {
		return ""
	}
	must(m.t, err)
	defer w.Close()
	_, digest, err := w.Review(m.t.Context())
	must(m.t, err)
	return digest
}

// consistent makes sure that each frozen layer is needed, and each that is needed is there.
func (m *family) consistent(what string) {
	m.t.Helper()
	used := map[string]bool{}
	infos, err := m.store.List()
	must(m.t, err)
	for _, info := range infos {
		w, err := m.store.Get(info.ID)
		must(m.t, err)
		for _, id := range w.meta.layersInUse() {
			used[layerPrefix+id] = true
		}
		w.Close()
	}
	for _, name := range m.layers() {
		if !used[name] {
			m.t.Fatalf("%s: layer %s is nobody's", what, name)
		}
		delete(used, name)
	}
	// A merge that was cut off may name layers that never were.
	for name := range used {
		m.t.Fatalf("%s: layer %s is missing", what, name)
	}
}

// A fork, a merge, its revert and a discard end at their system calls, by a kill, with EIO and with
// ENOSPC. After the sweep of the next daemon each has happened or not.
func TestForkFaultAtEverySystemCall(t *testing.T) {
	f := newFixture(t)
	tool := buildInjector(t)
	f.write("keep", "gone", "d/x", "d/y")
	m := newFamily(f, "echo p >>keep; rm gone; mkdir own; echo 1 >own/f; rm -r d; mkdir d; echo n >d/n")
	before := m.digest("p")
	m.fork("p", "b")
	m.in("b", "echo b >>keep; rm -r own; mkdir own; echo 2 >own/g; rm d/n")
	branch := m.digest("b")
	step := 97
	if os.Getenv("JAIL_TEST_LONG") != "" {
		step = 3
	}
	points := 0
	for i, do := range []string{"merge", "revert-merge", "discard", "fork"} {
		for j, fault := range [][]string{{"-kill"}, {"-errno", "EIO"}, {"-errno", "ENOSPC"}} {
			for n := 1 + i + j*step/3; ; n += step {
				m.ready(do, branch)
				p, b := m.digest("p"), m.digest("b")
				what := fmt.Sprintf("%s, %v at call %d", do, fault, n)
				out, hit, killed := injected(t, tool, act{f.dir, do}, n, fault...)
				must(t, m.store.Sweep())
				nowP, nowB := m.digest("p"), m.digest("b")
				var done bool
				switch do {
				case "merge":
					done = nowP == branch
					if nowP != branch && nowP != before || nowB != branch {
						t.Fatalf("%s: p is %s, b is %s", what, nowP, nowB)
					}
				case "revert-merge":
					done = nowP == before
					if nowP != branch && nowP != before || nowB != branch {
						t.Fatalf("%s: p is %s, b is %s", what, nowP, nowB)
					}
				default:
					done = nowB != b
					if nowP != p || nowB != "" && nowB != max(b, p) && nowB != b {
						t.Fatalf("%s: p is %s, b is %s", what, nowP, nowB)
					}
				}
				if !killed && out.Err == "" && !done {
					t.Fatalf("%s: it said that all went well, and nothing happened", what)
				}
				m.consistent(what)
				if !hit {
					break
				}
				points++
			}
		}
	}
	t.Logf("%d points", points)
	if points < 12 {
		t.Errorf("only %d points: the test tests nothing", points)
	}
}

// ready brings the family to where a deed begins.
func (m *family) ready(do, branch string) {
	m.t.Helper()
	has := m.digest("b") != ""
	if do == "fork" {
		if has {
			must(m.t, m.store.discard("b"))
		}
		return
	}
	if !has {
		m.fork("p", "b")
	}
	merged := m.digest("p") == branch
	var err error
	switch {
	case do == "merge" && merged:
		_, err = BranchesOf(m.store).RevertMerge(m.t.Context(), "b", Caller{})
	case do == "revert-merge" && !merged:
		_, err = m.merge("b", CommitOptions{})
	}
	must(m.t, err)
}
