package supervisor

import "github.com/jail-sandbox/jail/jail/probe"

// missingLayer says which layer this host cannot enforce: in the words of `jail doctor` where that finds one, else in those of the failure that
// was met.
func (s *Supervisor) missingLayer(layer, why string, err error) *Error {
	for _, f := range probe.All(s.config.StateDir) {
		if e := Missing(f, err); e != nil && f.Name != probe.RoomName { // which a run asks for itself
			return e
		}
	}
	return missingLayer(layer, why, "", err)
}

// Missing is the refusal of a host of which `jail doctor` finds that it has not what f is about; nil where it has, or where that cannot be told.
func Missing(f probe.Finding, err error) *Error {
	if f.Answer != probe.No {
		return nil
	}
	return missingLayer(f.Name, f.Detail, f.Fix, err)
}
