// Package rungroup names the control groups of runs, sessions and fetch proxies, and removes what
// a killed daemon has left of them. All of them lie below one slice:
//
//	/jail/<run>.<n>                          a run's jail
//	/jail/<run>.<n>.ceiling/<run>.<n>        a run's jail, held to limits of the host's ceiling
//	/jail/<session>.<n>.session/<run>.<n>    an invocation's jail
//	/jail/<run>.<n>.fetch                    a run's fetch proxy
package rungroup

import (
	"path"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
)

// KillWait is how long a killed control group may take to become empty before that is an error.
const KillWait = 30 * time.Second

const (
	sessionSuffix = ".session"
	fetchSuffix   = ".fetch"
)

// OfDead returns the leaf that the state file of a dead daemon names for a run, or "" if no run of
// that id and session can have such a leaf. The state file decides which processes are killed, so
// nothing else that it says is believed.
func OfDead(slice, leaf, id, session string) string {
	dir, name := path.Split(path.Clean(leaf))
	above := path.Dir(besideCeiling(path.Join(dir, name)))
	if above != slice && !isSession(slice, above, session) || !strings.HasPrefix(name, id+".") {
		return ""
	}
	return path.Join(dir, name)
}

// Clear kills the processes of a leaf and removes it, with the group above it that holds it to the
// host's ceiling. Clearing "" does nothing: the daemon was killed before it wrote what it would
// start.
func Clear(leaf string) error {
	if leaf == "" {
		return nil
	}
	if err := cgroup.Clear(leaf, KillWait); err != nil || besideCeiling(leaf) == leaf {
		return err
	}
	return cgroup.Remove(path.Dir(leaf))
}

// besideCeiling returns where a leaf would be without the group that holds it to the host's
// ceiling.
func besideCeiling(leaf string) string {
	dir, name := path.Split(leaf)
	if above, ok := strings.CutSuffix(path.Clean(dir), "/"+name+jail.CeilingGroup); ok {
		return path.Join("/", above, name)
	}
	return leaf
}

// Session returns the control group of the invocations of a session, by the leaf of the session's
// own jail.
func Session(leaf string) string { return besideCeiling(leaf) + sessionSuffix }

// isSession reports whether dir can be the group of that session's invocations.
func isSession(slice, dir, session string) bool {
	_, err := jail.ParseID(session)
	name := path.Base(dir)
	return err == nil && path.Dir(dir) == slice && strings.HasPrefix(name, session+".") &&
		strings.HasSuffix(name, sessionSuffix)
}

// Fetch returns the control group of a run's fetch proxy, by the leaf of the run's jail. The group
// is made for one proxy and never used again. The proxy of an invocation has its group beside that
// of the session, whose limits are for tools.
func Fetch(leaf string) string {
	leaf = besideCeiling(leaf)
	if dir := path.Dir(leaf); strings.HasSuffix(dir, sessionSuffix) {
		return path.Join(path.Dir(dir), path.Base(leaf)+fetchSuffix)
	}
	return leaf + fetchSuffix
}

// ClearFetch kills the fetch proxy of a dead daemon's run and removes the proxy's control group.
func ClearFetch(leaf string) error {
	if leaf == "" {
		return nil
	}
	if g, err := cgroup.Open(Fetch(leaf)); err == nil {
		if err := g.Kill(KillWait); err != nil {
			return err
		}
	}
	return cgroup.Remove(Fetch(leaf))
}
