package supervisor

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/verify"
)

// A Verification is what the kernel says about a live run's jail, thing by thing.
type Verification struct {
	ID       string           `json:"id"`
	PID      int              `json:"pid"`
	OK       bool             `json:"ok"` // nothing differs; what the kernel shows to nobody is a finding of its own
	Findings []verify.Finding `json:"findings"`
}

// jailFile is the file in a run's directory that says which process is the jail's first and what it is to be.
const jailFile = "jail.json"

// saveJail writes down what Verify needs, for other daemons too. A jail that has ended already needs none.
func (r *runDir) saveJail(j verify.Jail) error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	fresh := filepath.Join(r.path, jailFile+".new")
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(r.path, jailFile))
}

// identify puts down which process the run's jail is.
func (r *run) identify(p *launch.Process) error {
	start, err := p.StartTime()
	if errors.Is(err, launch.ErrEnded) {
		return nil // its end says why
	}
	if err != nil {
		return err
	}
	return r.dir.saveJail(verify.Jail{Plan: r.job.plan, PID: p.PID, Start: start})
}

// Verify asks the kernel whether the jail of a live run is what its plan says. It reads, and attaches to nothing. The run may be another daemon's.
func (s *Supervisor) Verify(c Caller, id string) (Verification, error) {
	st, err := s.findRun(c, id)
	if err != nil {
		return Verification{}, err
	}
	text, err := os.ReadFile(filepath.Join(s.runs.dir, st.ID, jailFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Verification{}, &Error{Code: CodeBusy, Message: "run " + id + " has no jail yet, or none any more", Hint: "try again", Err: err}
	}
	var j verify.Jail
	if err == nil {
		err = json.Unmarshal(text, &j)
	}
	if err != nil {
		return Verification{}, failed(err, "", "run %s: %v", id, err)
	}
	findings, err := verify.Look(j, s.otherJails(st.ID))
	if errors.Is(err, verify.ErrGone) {
		return Verification{}, notFound("jail inspect shows what the log says of it", "run %s has ended", id)
	}
	if err != nil {
		return Verification{}, failed(err, "", "run %s: %v", id, err)
	}
	differs := slices.ContainsFunc(findings, func(f verify.Finding) bool { return f.Answer == verify.Differs })
	return Verification{ID: st.ID, PID: j.PID, OK: !differs, Findings: findings}, nil
}

// otherJails are the first processes of the other live runs. One that ends meanwhile shares nothing with anybody.
func (s *Supervisor) otherJails(id string) []int {
	all, err := s.runs.live()
	if err != nil {
		return nil
	}
	var pids []int
	for _, st := range all {
		if st.ID != id && st.PID != 0 {
			pids = append(pids, st.PID)
		}
	}
	return pids
}
