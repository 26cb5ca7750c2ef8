// Package hostlayers says which layer of the sandbox a host cannot enforce, when a jail could not
// be made there.
package hostlayers

import (
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// A Host is where a daemon runs: its state directory, on whose disk shadow workspaces lie, and the
// control group above all jails.
type Host struct{ StateDir, Slice string }

// Missing returns the error for a layer that could not be set up: in the words of `jail doctor` if
// that finds something missing, else with why.
func (h Host) Missing(layer, why string, err error) *problem.Error {
	for _, f := range probe.All(h.StateDir, h.Slice) {
		// The room on the disk is what each run asks for itself.
		if e := problem.Missing(f, err); e != nil && f.Name != probe.RoomName {
			return e
		}
	}
	return problem.MissingLayer(layer, why, "", err)
}

// Failed returns the error for a layer that failed with err while it was set up: that the host
// cannot enforce the layer if the kernel refuses it, else a failure that may pass.
func (h Host) Failed(layer string, err error) *problem.Error {
	if probe.Refused(err) {
		return h.Missing(layer, err.Error(), err)
	}
	return problem.New(problem.Failed, "%w", err)
}
