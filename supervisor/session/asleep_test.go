package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/run"
)

// sleepers are the sessions of a daemon that has records, and no shadows.
func sleepers(t *testing.T) *Sessions {
	t.Helper()
	s := New(&run.Runner{}, false, func(c caller.Caller) caller.Permissions {
		return caller.PermissionsOf(syntax.Host{}, c)
	}, 0, t.TempDir())
	s.store.shadow = func(string) (*workspace.Workspace, error) {
		return nil, workspace.ErrNotFound
	}
	s.store.shadows = func() ([]workspace.Info, error) { return nil, nil }
	return s
}

// sleeps writes the record of a session that left nothing to review.
func (s *Sessions) sleeps(t *testing.T, uid uint32, id string, used time.Time) recordName {
	t.Helper()
	r := &record{Format: recordFormat, Request: requestNamed(id), UID: uid,
		Digest: requestNamed(id).Digest(), Used: used, Untouched: true}
	if err := s.store.save(r, atomicfile.Volatile); err != nil {
		t.Fatal(err)
	}
	return r.name()
}

func (s *Sessions) has(t *testing.T, n recordName) bool {
	t.Helper()
	_, err := os.Stat(s.store.path(n))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// A sweep that cannot list the records forgets no session.
func TestSweepWithoutAList(t *testing.T) {
	s := sleepers(t)
	info := workspace.Info{ID: "s", State: workspace.Frozen, Resumable: true}
	info.Caller.UID = 7
	n := s.sleeps(t, 7, "s", time.Now())
	s.store.shadows = func() ([]workspace.Info, error) { return []workspace.Info{info}, nil }
	var forgotten []string
	s.store.ended = func(id string) error { forgotten = append(forgotten, id); return nil }
	dir := s.store.dir
	// No directory: it cannot be listed.
	s.store.dir = s.store.path(n)
	if err := s.Sweep(); err == nil || len(forgotten) > 0 {
		t.Errorf("%v, forgotten %q", err, forgotten)
	}
	if s.store.dir = dir; !s.has(t, n) {
		t.Error("the record is gone")
	}
	// The control: one without a record is forgotten.
	if err := s.store.drop(n); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(); err != nil || len(forgotten) != 1 {
		t.Errorf("%v, forgotten %q", err, forgotten)
	}
}

func TestRecordNames(t *testing.T) {
	for _, want := range []recordName{{0, "s"}, {4294967295, "a.b.json"}, {7, "1.2"}} {
		if got, ok := parseRecordName(want.String()); !ok || got != want {
			t.Errorf("%s: %+v", want, got)
		}
	}
	for _, file := range []string{"", ".json", "7.json", "7..json", "s.json", "-1.s.json",
		"4294967296.s.json", "7.s", "7.a b.json"} {
		if got, ok := parseRecordName(file); ok {
			t.Errorf("%s: %+v", file, got)
		}
	}
}

// TestRecordsOfOthers: a list shows the sessions of the users that the caller may see, and the
// records of others are not read.
func TestRecordsOfOthers(t *testing.T) {
	s := sleepers(t)
	now := time.Now()
	s.sleeps(t, 7, "mine", now)
	s.sleeps(t, 7, "old", now.Add(-untouchedTime-time.Hour))
	// The name alone says whose it is.
	other := s.sleeps(t, 7, "other", now)
	if err := os.Rename(s.store.path(other), s.store.path(recordName{8, "other"})); err != nil {
		t.Fatal(err)
	}
	all := s.List(callerNumber(7))
	if len(all) != 1 || all[0].ID != "mine" {
		t.Errorf("listed: %+v", all)
	}
	if r, err := s.store.sleeping("mine"); err != nil || r == nil || r.UID != 7 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := s.store.sleeping("old"); err != nil || r != nil {
		t.Errorf("one that nobody can wake: %+v, %v", r, err)
	}
	if _, err := s.store.sleeping("other"); err == nil {
		t.Error("a record that says something else than its name was read")
	}
}

// TestSleepersAreBounded: a user who has as many sessions asleep as there may be starts no other,
// and still wakes each of them.
func TestSleepersAreBounded(t *testing.T) {
	s := sleepers(t)
	now := time.Now()
	for n := range maxUserAsleep {
		s.sleeps(t, 7, fmt.Sprintf("s%d", n), now)
	}
	admit := func(uid uint32, id string) error {
		h := s.newSession(id, asked{uid: uid, digest: requestNamed(id).Digest()})
		_, err := s.admit(callerNumber(uid), requestNamed(id), h)
		return err
	}
	if e := problem.From(admit(7, "more")); e == nil || e.Code != problem.Busy || e.Hint == "" {
		t.Errorf("one more: %v", e)
	}
	if err := admit(8, "another"); err != nil {
		t.Errorf("another user: %v", err)
	}
	if err := admit(7, "s0"); err != nil {
		t.Errorf("one that sleeps: %v", err)
	}
	s.remove("s0", s.open["s0"])
	// One that nobody can wake is no hindrance.
	old := s.sleeps(t, 7, "s1", now.Add(-untouchedTime-time.Hour))
	if err := admit(7, "more"); err != nil {
		t.Errorf("with one of the past: %v", err)
	}
	if s.has(t, old) {
		t.Error("the record of a session that nobody can wake is left")
	}
}

// TestSweep: records of sessions that nobody can wake go, those of open sessions and of those that
// sleep stay.
func TestSweep(t *testing.T) {
	s := sleepers(t)
	now := time.Now()
	past := now.Add(-untouchedTime - time.Hour)
	sleeping, dead, open := s.sleeps(t, 7, "sleeping", now), s.sleeps(t, 7, "dead", past),
		s.sleeps(t, 0, "open", past)
	openedSession(s, "open")
	// Its shadow was discarded by a daemon that was killed then.
	lost := &record{Format: recordFormat, Request: requestNamed("lost"), UID: 7, Used: now}
	if err := s.store.save(lost, atomicfile.Volatile); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if !s.has(t, sleeping) || s.has(t, dead) || !s.has(t, open) || s.has(t, lost.name()) {
		t.Error("sweep leaves what is dead, or takes what is not")
	}
	// A discarded shadow takes its session with it, and not that of another user.
	other := s.sleeps(t, 8, "sleeping", now)
	if err := errors.Join(s.Forget("sleeping", 7), s.Forget("open", 0)); err != nil {
		t.Fatal(err)
	}
	if s.has(t, sleeping) || !s.has(t, other) || !s.has(t, open) {
		t.Error("forget leaves the session, or takes another")
	}
}
