// Package hostlayers explains which sandbox layer a host cannot enforce when a jail could not be
// made.
package hostlayers

import (
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Host has the daemon's state directory, on whose disk shadow workspaces are stored, and the
// control group above all jails.
type Host struct{ StateDir, Slice string }

// Missing returns the error for a layer that could not be set up: the finding of `jail doctor` if
// it finds a feature missing, else why.
func (h Host) Missing(layer, why string, err error) *problem.Error {
	for _, f := range probe.All(h.StateDir, h.Slice) {
		// Each run checks the room on the disk itself.
		if e := problem.Missing(f, err); e != nil && f.Name != probe.RoomName {
			return e
		}
	}
	return problem.MissingLayer(layer, why, "", err)
}

// Failed returns the error for a layer whose setup failed with err: Missing if the kernel refuses
// the layer, else a failure that may be temporary.
func (h Host) Failed(layer string, err error) *problem.Error {
	if probe.Refused(err) {
		return h.Missing(layer, err.Error(), err)
	}
	return problem.New(problem.Failed, "%w", err)
}
