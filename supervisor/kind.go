package supervisor

import (
	"crypto/sha256"
	"path/filepath"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/runners"
)

// A kindOf is what jails that wait are made from, for runs of one kind.
type kindOf struct {
	standing jail.Plan
	// sum is the digest of the module that is loaded in each of them, where one tool is run and no script. Only an installed module is: a caller's own is
	// kept nowhere.
	sum [sha256.Size]byte
	in  *session // whose calls they wait for; nil: runs of their own
	// Of a session's: with whose rights what they mount of the host is opened, and which programs were found there.
	caller   Caller
	programs []inode
}

// kind is that of the run.
func (j *job) kind(standing jail.Plan) kindOf {
	k := kindOf{standing: standing, in: j.in}
	if j.in != nil {
		k.caller, k.programs = j.caller, j.programs
	}
	if j.script == nil && j.tool.native == "" {
		k.sum = j.tool.sum
	}
	return k
}

// load has a jail of the kind load its module, if it is to have one.
func (s *Supervisor) load(w *warmJail, k kindOf) error {
	if k.sum == [sha256.Size]byte{} || w.later { // the engine reads nothing before all walls stand, and those of a workspace come with it
		return nil
	}
	module, ok := s.sealed.of(k.sum)
	if !ok {
		return nil // the run loads it
	}
	defer module.Close()
	w.module = k.sum
	return w.proc.Invoke(k.prepare(), module)
}

// prepare asks a jail of the kind to load its module.
func (k kindOf) prepare() runners.Order {
	return runners.Order{Prepare: true, Invocation: runners.Invocation{CacheDir: filepath.Join(jail.CacheDir, "0")}}
}

// prepared reports whether the module of the run was loaded in its jail.
func (r *run) prepared() bool {
	w := r.warm
	return w != nil && w.module != [sha256.Size]byte{} && r.job.script == nil && w.module == r.job.tool.sum
}
