// Package rungroup names the control groups of runs, sessions and fetch proxies, and removes those
// that a killed daemon has left. All of them are below one slice:
//
//	/jail/<run>.<n>                          a run's jail
//	/jail/<run>.<n>.ceiling/<run>.<n>        a run's jail, within the limits of the host's ceiling
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

// OfDead returns leaf, the control group in a dead daemon's state file, if a run of that id and
// session can have it, else "". The processes in it will be killed, so it is not trusted unchecked.
func OfDead(slice, leaf, id, session string) string {
	dir, name := path.Split(path.Clean(leaf))
	above := path.Dir(besideCeiling(path.Join(dir, name)))
	if above != slice && !isSession(slice, above, session) || !strings.HasPrefix(name, id+".") {
		return ""
	}
	return path.Join(dir, name)
}

// Clear kills the processes of a leaf and removes it, with the group of the host's ceiling above
// it. It does nothing if leaf is "", when the daemon was killed before it started a jail.
func Clear(leaf string) error {
	if leaf == "" {
		return nil
	}
	if err := cgroup.Clear(leaf, KillWait); err != nil || besideCeiling(leaf) == leaf {
		return err
	}
	return cgroup.Remove(path.Dir(leaf))
}

// besideCeiling returns the path of a leaf without the group of the host's ceiling in it.
func besideCeiling(leaf string) string {
	dir, name := path.Split(leaf)
	if above, ok := strings.CutSuffix(path.Clean(dir), "/"+name+jail.CeilingGroup); ok {
		return path.Join("/", above, name)
	}
	return leaf
}

// Session returns the control group of a session's invocations, given the leaf of the jail that
// holds the session.
func Session(leaf string) string { return besideCeiling(leaf) + sessionSuffix }

// isSession reports whether dir can be the control group of that session's invocations.
func isSession(slice, dir, session string) bool {
	_, err := jail.ParseID(session)
	name := path.Base(dir)
	return err == nil && path.Dir(dir) == slice && strings.HasPrefix(name, session+".") &&
		strings.HasSuffix(name, sessionSuffix)
}

// Fetch returns the control group of a run's fetch proxy, given the leaf of the run's jail. It is
// used for one proxy only. The proxy of an invocation is beside the session's group, since the
// session's limits apply to tools only.
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
