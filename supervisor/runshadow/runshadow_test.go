package runshadow

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// TestAbandonRestoresTerms: the terms of a shadow that was woken in vain are those of the policy
// that its tools had.
func TestAbandonRestoresTerms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("this machine has no loop devices")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kept, err := workspace.Open(filepath.Join(t.TempDir(), "workspaces"))
	must(err)
	defer kept.Close()
	store := shadows.New(kept, shadows.Options{Terms: t.TempDir()})
	source, err := os.Open(t.TempDir())
	must(err)
	defer source.Close()
	under := func(protect string, wakes bool) *Shadow {
		t.Helper()
		p := policy.Top()
		p.Workspace.Protect = []string{protect}
		eff, err := policy.Resolve(policy.Layer{Name: "profile", Policy: p})
		must(err)
		j := &prepare.Job{ID: "s1", Source: source, Policy: eff,
			Holds: prepare.Holding{For: time.Hour, Wakes: wakes}}
		j.Plan.Workspace = &jail.Workspace{Shadow: true, Bytes: 8 << 20, Files: 100}
		s, err := Prepare(Options{Store: store, Job: j, CleanUp: func(f func()) { f() },
			Failed: func(task, id string, err error) {
				if err != nil {
					t.Errorf("%s: %v", task, err)
				}
			}})
		must(err)
		return s
	}
	wants := func(protect string, unfinished bool) {
		t.Helper()
		got, err := store.LoadTerms("s1")
		must(err)
		if len(got.Protect) != 1 || got.Protect[0] != protect || got.Unfinished != unfinished {
			t.Errorf("protect %q, unfinished %v", got.Protect, got.Unfinished)
		}
	}
	_, err = under("first", false).Review(message.FateKeep, true, nil, func() {})
	must(err)
	wants("first", false)
	s := under("second", true)
	wants("second", true)
	s.Abandon(false)
	wants("first", false)
	// The control: its tools may have run.
	under("third", true).Abandon(true)
	wants("third", true)
}
