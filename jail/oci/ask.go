package oci

import "github.com/opencontainers/runtime-spec/specs-go"

// Paths of the API of jaild for containers: a plan is asked for by POST to PathContainers, and what
// became of it is told by POST to its item.
const (
	PathContainers = "/v1/containers"
	// ReportSuffix follows the path and the id of the run, as ExecSuffix does.
	ReportSuffix = "/report"
	ExecSuffix   = "/exec"
)

// A Report says what became of a plan.
type Report struct {
	// PID is the number of the first process, which waits to be started.
	PID int `json:"pid,omitempty"`
	// Error says why there is no container.
	Error string `json:"error,omitempty"`
}

// An ExecRequest asks for one more process in a container.
type ExecRequest struct {
	Process specs.Process `json:"process"`
}

// An ExecAnswer is the process as far as it is granted.
type ExecAnswer struct {
	Process specs.Process `json:"process"`
	Dropped []string      `json:"dropped"`
}
