package records

import (
	"context"
	"errors"
	"testing"

	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// The records of a run that has ended are bounded, are read only once at a time for a user, and no
// longer than somebody waits for them.
func TestInspectIsBounded(t *testing.T) {
	dir := t.TempDir()
	log, err := audit.Open(audit.Options{Dir: dir, KeyDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	entries := make([]audit.Entry, maxOfRun)
	for i := range entries {
		entries[i] = audit.Entry{Run: "many", Event: audit.Denied{Layer: "wasi", What: "open",
			Rule: "nothing", Count: 1}}
	}
	record := func(entries ...audit.Entry) {
		t.Helper()
		if _, _, err := log.AppendAll(entries); err != nil {
			t.Fatal(err)
		}
	}
	record(entries...)
	s := New(dir, log.Extent, func(c caller.Caller) caller.Permissions {
		return caller.PermissionsOf(syntax.Host{}, c)
	})
	root := caller.Caller{}
	if in, err := s.OfRun(t.Context(), root, "many"); err != nil ||
		len(in.Records) != maxOfRun || in.Truncated {
		t.Errorf("%d records, truncated %v, %v", len(in.Records), in.Truncated, err)
	}
	record(entries[0])
	if in, err := s.OfRun(t.Context(), root, "many"); err != nil ||
		len(in.Records) != maxOfRun || !in.Truncated {
		t.Errorf("of one more: %d records, truncated %v, %v", len(in.Records), in.Truncated, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.OfRun(ctx, root, "many"); !errors.Is(err, context.Canceled) {
		t.Errorf("for a caller who went away: %v", err)
	}
	user := caller.Caller{}
	user.UID = 7
	end, _ := s.reading.begin(user)
	defer end()
	var e *problem.Error
	if _, err := s.OfRun(t.Context(), user, "many"); !errors.As(err, &e) ||
		e.Code != problem.Busy {
		t.Errorf("for a user for whom the log is being read: %v", err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}
