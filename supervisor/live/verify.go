package live

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/names"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
)

// Verify asks the kernel whether the jail of a live run is what its plan says. It reads, and
// attaches to nothing. The run may be another daemon's.
func (s *Runs) Verify(c caller.Caller, id string) (rundir.Verification, error) {
	st, err := s.findRun(c, id)
	if err != nil {
		return rundir.Verification{}, err
	}
	return s.Dirs.Verify(st)
}

// VerifyOwn is Verify for an ordinary user whose runs have private daemons, each in a user
// namespace of its own: none of them may look into the jails of another. The user may, from outside
// of them all, and is who calls it.
func VerifyOwn(c config.Config, id string) (rundir.Verification, error) {
	runs := &rundir.Store{Dir: filepath.Join(c.StateDir, "runs")}
	all, err := runs.Live()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return rundir.Verification{}, problem.New(problem.Failed, "runs: %w", err)
	}
	own := names.Name{UID: uint32(os.Getuid()), Name: id}
	named := names.At(filepath.Join(c.StateDir, "names")).Find(own)
	for _, st := range all {
		if st.ID == id || st.ID == named {
			v, err := runs.Verify(st)
			v.ID = id
			return v, err
		}
	}
	return rundir.Verification{}, noLiveRun(id)
}
