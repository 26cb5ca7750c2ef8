package shadows

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
)

// noLog takes every record.
type noLog struct{}

func (noLog) Append(context.Context, audit.Entry) (uint64, error) { return 1, nil }

// A shelf is a store of shadows of one directory.
type shelf struct {
	*Store
	t        *testing.T
	real     string
	asked    []HeldCommit
	approved map[string]bool
	ended    []string
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("shadows need root")
	}
	dir := t.TempDir()
	kept, err := workspace.Open(filepath.Join(dir, "workspaces"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	s := &shelf{t: t, real: filepath.Join(dir, "real"), approved: map[string]bool{}}
	if err := os.Mkdir(s.real, 0o755); err != nil {
		t.Fatal(err)
	}
	s.Store = New(kept, Options{Terms: filepath.Join(dir, "terms"), Log: noLog{},
		Permissions: func(c caller.Caller) caller.Permissions {
			return caller.PermissionsOf(syntax.Host{}, c)
		},
		Live: func(string) Live { return nil },
		Ask: func(_ context.Context, _ caller.Caller, h HeldCommit) (string, error) {
			s.asked = append(s.asked, h)
			return "", errors.New("it waits")
		},
		Approved:   func(id string) bool { return s.approved[id] },
		Ended:      func(id string) error { s.ended = append(s.ended, id); return nil },
		PruneNames: func() error { return nil },
		Check: func(what string, err error) {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		},
		Background: func(f func()) { f() }})
	return s
}

// keep makes the shadow of a run, in which the file name was made.
func (s *shelf) keep(id, name string) {
	s.t.Helper()
	source, err := os.Open(s.real)
	if err != nil {
		s.t.Fatal(err)
	}
	defer source.Close()
	w, err := s.Kept.Prepare(workspace.Spec{ID: id, Source: source, Bytes: 16 << 20, Inodes: 500})
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Close()
	upper, err := w.Upper()
	if err != nil {
		s.t.Fatal(err)
	}
	at := fmt.Sprintf("/proc/self/fd/%d/upper/%s", upper.Fd(), name)
	if err := errors.Join(os.WriteFile(at, []byte("text\n"), 0o644), upper.Close(), w.Freeze(),
		w.Keep(), s.SaveTerms(id, asking("p"))); err != nil {
		s.t.Fatal(err)
	}
}

func asking(digest string) Terms {
	return Terms{Policy: digest, Tool: "t", Commit: policy.CommitAsk, Ask: true}
}

// ask asks for the commit of a shadow, and returns what waits then.
func (s *shelf) ask(id string) HeldCommit {
	s.t.Helper()
	n := len(s.asked)
	if _, err := s.Commit(s.t.Context(), caller.Caller{}, id, CommitRequest{}); err == nil ||
		len(s.asked) != n+1 {
		s.t.Fatalf("%s was not asked for: %v", id, err)
	}
	return s.asked[n]
}

func (s *shelf) has(name string) bool {
	_, err := os.Lstat(filepath.Join(s.real, name))
	return err == nil
}

// An approved commit is made of the very shadow that was proposed, under the policy that it had.
func TestCommitApproved(t *testing.T) {
	s := newShelf(t)
	ctx, by := t.Context(), audit.Actor{}
	s.keep("one", "a")
	h := s.ask("one")
	if h.Run != "one" || h.Directory != s.real || h.Policy != "p" || h.Prepared.IsZero() ||
		h.Session || h.Request.Digest == "" {
		t.Errorf("%+v", h)
	}
	if err := s.SaveTerms("one", asking("another")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Approvals().Commit(ctx, by, h); !errors.Is(err, ErrOther) {
		t.Errorf("another policy: %v", err)
	}
	if err := s.Discard(ctx, caller.Caller{}, "one", false); err != nil {
		t.Fatal(err)
	}
	s.keep("one", "a")
	if again := s.ask("one"); again.Request.Digest != h.Request.Digest {
		t.Errorf("the control: the change sets are %s and %s", h.Request.Digest,
			again.Request.Digest)
	}
	if _, err := s.Approvals().Commit(ctx, by, h); !errors.Is(err, ErrOther) {
		t.Errorf("another shadow of that id: %v", err)
	}
	for what, change := range map[string]func(*HeldCommit){
		"directory": func(h *HeldCommit) { h.Directory += "x" },
		"owner":     func(h *HeldCommit) { h.UID++ },
		"digest":    func(h *HeldCommit) { h.Request.Digest = "" },
	} {
		other := s.ask("one")
		change(&other)
		if _, err := s.Approvals().Commit(ctx, by, other); err == nil {
			t.Errorf("another %s was committed", what)
		}
	}
	if s.has("a") {
		t.Fatal("something was committed")
	}
	// What a commit keeps is for its revert, so the shadow stays.
	if err := s.SaveTerms("one", keeping(asking("p"))); err != nil {
		t.Fatal(err)
	}
	h = s.ask("one")
	done, err := s.Approvals().Commit(ctx, by, h)
	if err != nil || done.ID == "" || !s.has("a") {
		t.Fatalf("%+v, %v", done, err)
	}
	info, err := s.Approvals().Commits(ctx, "one")
	if err != nil || h.IsShadow(info) != nil || len(info.Commits) != 1 ||
		info.Commits[0].ID != done.ID {
		t.Errorf("%+v, %v", info, err)
	}
	if err := s.Approvals().Revert(ctx, by, h, ""); err == nil || !s.has("a") {
		t.Errorf("a revert of no commit: %v", err)
	}
	for range 2 {
		if err := s.Approvals().Revert(ctx, by, h, done.ID); err != nil || s.has("a") {
			t.Errorf("revert: %v", err)
		}
	}
}

func keeping(t Terms) Terms {
	t.Revert, t.RevertTime = 1<<20, time.Hour
	return t
}

// A shadow is not forgotten while an approved action needs it, and the grants for it end with it.
func TestPruneApproved(t *testing.T) {
	s := newShelf(t)
	s.keep("one", "a")
	h := s.ask("one")
	s.approved["one"] = true
	if _, err := s.Approvals().Commit(t.Context(), audit.Actor{}, h); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Approvals().Commits(t.Context(), "one"); err != nil || len(s.ended) != 0 {
		t.Errorf("it was forgotten: %v, %v", err, s.ended)
	}
	delete(s.approved, "one")
	s.ForgetOld()
	if _, err := s.Approvals().Commits(t.Context(), "one"); err == nil || len(s.ended) != 1 {
		t.Errorf("it was not forgotten: %v, %v", err, s.ended)
	}
}

// The owner of a shadow commits without the groups that the owner does not have any more.
func TestOwnerNow(t *testing.T) {
	const nobodys = 4_000_000_000
	own := workspace.Caller{UID: nobodys, GID: nobodys, Groups: []uint32{0, nobodys}}
	if got := ownerNow(own); got.UID != nobodys || got.GID != nobodys || len(got.Groups) != 0 {
		t.Errorf("a user whom nobody knows: %+v", got)
	}
	// Root is in its own group, and in no such other.
	own = workspace.Caller{UID: 0, GID: nobodys, Groups: []uint32{0, nobodys}}
	if got := ownerNow(own); got.GID != 0 || len(got.Groups) != 1 || got.Groups[0] != 0 {
		t.Errorf("root: %+v", got)
	}
	if len(own.Groups) != 2 || own.Groups[1] != nobodys {
		t.Errorf("the record was changed: %+v", own)
	}
}
