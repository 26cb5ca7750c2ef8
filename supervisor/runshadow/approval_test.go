package runshadow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/runlog"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// noLog takes every record.
type noLog struct{}

func (noLog) Append(context.Context, audit.Entry) (uint64, error) { return 1, nil }

var errWaits = errors.New("it waits for an approval")

// A session that merely falls asleep keeps its shadow and asks for nothing; one that ends asks once,
// for what needs no person, and ends its grants after that.
func TestSessionAsksAtItsEnd(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("shadows need root")
	}
	for _, ends := range []bool{false, true} {
		for _, fate := range []message.Fate{message.FateAuto, message.FateCommit} {
			t.Run(fmt.Sprintf("%s, ends %v", fate, ends), func(t *testing.T) {
				asked, ended := endSession(t, fate, ends)
				if !ends {
					if len(asked) != 0 || ended != 0 {
						t.Errorf("asked %+v, ended %d times", asked, ended)
					}
					return
				}
				if len(asked) != 1 || asked[0].Request.Auto != (fate == message.FateAuto) ||
					asked[0].Session || ended != 1 {
					t.Errorf("asked %+v, ended %d times", asked, ended)
				}
			})
		}
	}
}

// endSession ends the jail of a session in which a file was made, and returns the commits that were
// proposed and how often the end of a session was announced.
func endSession(t *testing.T, fate message.Fate, ends bool) (asked []shadows.HeldCommit,
	ended int) {
	t.Helper()
	dir := t.TempDir()
	source, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	kept, err := workspace.Open(filepath.Join(t.TempDir(), "workspaces"))
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	store := shadows.New(kept, shadows.Options{Terms: filepath.Join(t.TempDir(), "terms"),
		Log: noLog{},
		Permissions: func(c caller.Caller) caller.Permissions {
			return caller.PermissionsOf(syntax.Host{}, c)
		},
		Live: func(string) shadows.Live { return nil },
		Ask: func(_ context.Context, _ caller.Caller, h shadows.HeldCommit) (string, error) {
			if ended > 0 {
				t.Error("the grants of the session ended before its last proposal")
			}
			asked = append(asked, h)
			return "", errWaits
		},
		Ended:      func(string) error { ended++; return nil },
		PruneNames: func() error { return nil },
		Check: func(what string, err error) {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}})
	p := policy.Top()
	p.Workspace.Commit = policy.CommitAuto
	p.Approve = policy.Approve{{Action: policy.ActionCommit, Mode: policy.ApproveAsk}}
	effective, err := policy.Resolve(policy.Layer{Name: "test", Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	j := &prepare.Job{ID: jail.ID("s"), Source: source, Holds: prepare.Holding{For: time.Hour}, Policy: effective}
	j.Plan.Workspace = &jail.Workspace{Shadow: true, Bytes: 16 << 20, Files: 500}
	s, err := Prepare(Options{Store: store, Job: j, Records: runlog.New(nil, audit.Entry{}),
		Failed: func(task, _ string, err error) {
			if err != nil && !errors.Is(err, errWaits) {
				t.Errorf("%s: %v", task, err)
			}
		},
		CleanUp: func(f func()) { f() }})
	if err != nil {
		t.Fatal(err)
	}
	upper, err := s.Workspace().Upper()
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("/proc/self/fd/%d/upper/made", upper.Fd())
	if err := errors.Join(os.WriteFile(at, []byte("text\n"), 0o644), upper.Close()); err != nil {
		t.Fatal(err)
	}
	if ends {
		s.Ends()
	}
	end, err := s.Review(fate, true, nil, func() {})
	if err != nil && (!ends || !errors.Is(err, errWaits)) || end.Workspace != "kept" {
		t.Errorf("%+v, %v", end, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "made")); err == nil {
		t.Error("something was committed")
	}
	return asked, ended
}
