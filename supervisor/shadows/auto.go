package shadows

import (
	"context"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/caller"
)

// An AutoCommit is what a session whose policy says commit = "auto" took after an invocation.
type AutoCommit struct {
	// Id of the commit; none if there was nothing to take.
	ID      string  `json:"id,omitempty"`
	Changes Changes `json:"changes"`
	// Changes that are left for a person, and that no earlier invocation of the session named; the
	// first 100.
	Left []workspace.Held `json:"left,omitempty"`
	// Other invocations of the session run, so nothing was taken: their files may be half written.
	// The end of the last of them takes the changes.
	Waits bool `json:"waits,omitempty"`
	// Why nothing could be taken.
	Error string `json:"error,omitempty"`
}

// TakePlain commits what of a live shadow needs no person: changes that are neither protected nor
// risky nor in conflict. The others are left, with the reasons. A commit is on record first and
// last; nothing to take is not.
func (s *Store) TakePlain(ctx context.Context, c caller.Caller, id string) AutoCommit {
	done, err := s.Commit(ctx, c, id, CommitRequest{Auto: true})
	a := AutoCommit{ID: done.ID, Changes: Changes(counted(done.Committed)), Left: done.Held}
	if err != nil {
		a = AutoCommit{Error: err.Error()}
	}
	return a
}
