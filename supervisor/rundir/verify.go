package rundir

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/jail/verify"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Verification compares the jail of a live run with its plan, as the kernel shows it.
type Verification struct {
	ID string `json:"id"`
	// The run's unique id, if id is the name that its user gave it.
	GlobalID string `json:"global_id,omitempty"`
	// The process id of jail-init.
	PID int `json:"pid"`
	// No finding differs. What the kernel does not show has its own answer.
	OK       bool             `json:"ok"`
	Findings []verify.Finding `json:"findings"`
}

// jailFile is the file in a run's directory with the first process of its jail and the jail's plan.
const jailFile = "jail.json"

// SaveJail writes what Verify needs, also for other daemons.
func (r *Dir) SaveJail(j verify.Jail) error {
	return atomicfile.WriteJSON(filepath.Join(r.Path, jailFile), j, 0o600, atomicfile.Volatile)
}

// Verify compares the jail of a live run, as the kernel shows it, with its plan.
func (s *Store) Verify(st State) (Verification, error) {
	id := st.ID
	var j verify.Jail
	err := atomicfile.ReadJSON(filepath.Join(s.Dir, st.ID, jailFile), &j)
	if errors.Is(err, fs.ErrNotExist) {
		return Verification{}, problem.New(problem.Busy, "run %s has no jail yet, or none any more",
			id).
			WithCause(err).
			WithHint("try again")
	}
	if err != nil {
		return Verification{}, problem.New(problem.Failed, "run %s: %w", id, err)
	}
	others, peers := s.otherJails(st, j)
	findings, err := verify.Look(j, others, peers)
	if errors.Is(err, verify.ErrGone) {
		return Verification{}, problem.New(problem.NotFound, "run %s has ended", id).
			WithHint("jail inspect shows what the log says of it")
	}
	if err != nil {
		return Verification{}, problem.New(problem.Failed, "run %s: %w", id, err)
	}
	differs := slices.ContainsFunc(findings,
		func(f verify.Finding) bool { return f.Answer == verify.Differs })
	return Verification{ID: st.ID, PID: j.PID, OK: !differs, Findings: findings}, nil
}

// otherJails returns the first processes of the other live runs. peers are those of the same
// session that share the network namespace of j, or may share it because they are starting; others
// are the rest.
func (s *Store) otherJails(of State, j verify.Jail) (others, peers []int) {
	all, err := s.Live()
	if err != nil {
		return nil, nil
	}
	for _, st := range all {
		switch {
		// Invocations in a shared engine have the same process.
		case st.ID == of.ID || st.PID == 0 || st.PID == j.PID:
		case of.Session != "" && st.Session == of.Session &&
			slices.Contains([]jail.ID{"", networkOf(j)}, networkOf(s.jailOf(st))):
			peers = append(peers, st.PID)
		default:
			others = append(others, st.PID)
		}
	}
	return others, peers
}

// jailOf returns the saved jail of a live run, or the zero value if there is none.
func (s *Store) jailOf(st State) (j verify.Jail) {
	if atomicfile.ReadJSON(filepath.Join(s.Dir, st.ID, jailFile), &j) != nil {
		return verify.Jail{}
	}
	return j
}

// networkOf returns the id of the jail that owns the network namespace of j.
func networkOf(j verify.Jail) jail.ID { return cmp.Or(j.Plan.NetworkOf, j.Plan.ID) }
