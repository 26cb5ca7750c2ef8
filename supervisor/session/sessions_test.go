package session

import (
	"errors"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/run"
)

func callerNumber(uid uint32) caller.Caller {
	return caller.Caller{Caller: asuser.Caller{
		UID: uid}}
}

func requestNamed(id string) message.SessionRequest {
	return message.SessionRequest{Request: message.Request{ID: id}}
}

// noSessions are those of a daemon that has none, under no ceiling.
func noSessions() *Sessions {
	return New(&run.Runner{}, false, func(c caller.Caller) caller.Permissions {
		return caller.PermissionsOf(syntax.Host{}, c)
	}, mostOfUser, "")
}

// mostOfUser is how many sessions a user may have in these tests.
const mostOfUser = 70

// askedBy is a session that a user asks for.
func askedBy(uid uint32, id string) *session {
	return noSessions().newSession(id, asked{uid: uid, digest: requestNamed(id).Digest()})
}

// A thousand sessions are not taken: one user has so many, all users together so many, and who has
// none yet is not kept out by who has.
func TestSessionsAreBounded(t *testing.T) {
	s := noSessions()
	take := func(uid uint32, id string) error {
		_, err := s.admit(callerNumber(uid), requestNamed(id),
			askedBy(uid, id))
		return err
	}
	busy := func(err error) bool {
		var e *problem.Error
		return errors.As(err, &e) && e.Code == problem.Busy && e.Hint != ""
	}
	name := func(n int) string { return "s" + time.Duration(n).String() }
	for n := range 1000 {
		if err := take(7, name(n)); (n < mostOfUser) != (err == nil) || err != nil &&
			!busy(err) {
			t.Fatalf("session %d: %v", n, err)
		}
	}
	if err := take(8, "another"); err != nil {
		t.Errorf("another user: %v", err)
	}
	for uid := uint32(100); len(s.open) < maxSessions; uid++ {
		if err := take(uid, name(int(uid)*1000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := take(9, "one-more"); !busy(err) {
		t.Errorf("beyond all: %v", err)
	}
	// What is there already is given out also then, to whom it belongs.
	open, err := s.admit(callerNumber(8), requestNamed("another"),
		askedBy(8, "another"))
	if err != nil || open != s.open["another"] {
		t.Errorf("the same again: %v, %v", open, err)
	}
	var e *problem.Error
	if err := take(9, "another"); !errors.As(err, &e) || e.Code != problem.Usage {
		t.Errorf("another's: %v", err)
	}
	s.remove("another", &session{})
	if s.open["another"] != open {
		t.Error("a session took another's name away")
	}
	s.remove("another", open)
	if err := take(9, "another"); err != nil {
		t.Errorf("when it has ended: %v", err)
	}
}

func TestSessionTimes(t *testing.T) {
	for _, c := range []struct {
		idle, total         int64
		wantIdle, wantTotal time.Duration
	}{
		{0, 0, message.DefaultIdle, message.DefaultTime},
		{1000, 5000, time.Second, 5 * time.Second},
		{message.MaxTime.Milliseconds(), message.MaxTime.Milliseconds(), message.MaxTime,
			message.MaxTime},
		{999, 0, 0, 0},
		{0, message.MaxTime.Milliseconds() + 1, 0, 0},
		{-1, 0, 0, 0},
		{-1 << 63, 1<<63 - 1, 0, 0},
	} {
		idle, total, err := message.SessionRequest{IdleMS: c.idle, TimeMS: c.total}.Times()
		if c.wantIdle == 0 {
			if err == nil {
				t.Errorf("%+v was taken", c)
			}
		} else if err != nil || idle != c.wantIdle || total != c.wantTotal {
			t.Errorf("%+v: %v, %v, %v", c, idle, total, err)
		}
	}
}

// There is room for the engines of as many invocations as run at one time, and always for one.
func TestSessionPlaces(t *testing.T) {
	for _, c := range []struct {
		pids, memory, want int64
	}{{1, 1, 1}, {12, 1 << 40, 1}, {32, 256 << 20, 2}, {policy.Unlimited, policy.Unlimited,
		maxAtOnce}, {1000, 96 << 20, 3}} {
		if got := placesFor(policy.Limits{PIDs: c.pids, Memory: c.memory}); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
