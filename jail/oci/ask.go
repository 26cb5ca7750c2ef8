package oci

import (
	"encoding/json"
	"fmt"
)

// Paths of the API of jaild for containers: a plan is asked for by POST to PathContainers, and what
// became of it is told by POST to its item.
const (
	PathContainers = "/v1/containers"
	// ReportSuffix follows the path and the id of the run, as ExecSuffix does.
	ReportSuffix = "/report"
	ExecSuffix   = "/exec"
)

// An AskPlan is a Request as the API takes it.
type AskPlan struct {
	Container string   `json:"container"`
	Bundle    string   `json:"bundle"`
	Root      []string `json:"root"`
	// Spec is config.json. The sources of its binds are real paths.
	Spec json.RawMessage `json:"spec"`
	// Module says that the program of the image is a WebAssembly module.
	Module bool `json:"module,omitempty"`
}

// Request returns the request. What config.json has that this version of the runtime-spec does not
// know is left out, and so never carried out.
func (a AskPlan) Request() (Request, error) {
	r := Request{Container: a.Container, Bundle: a.Bundle, Root: a.Root, Module: a.Module}
	if err := json.Unmarshal(a.Spec, &r.Spec); err != nil {
		return r, fmt.Errorf("spec: %w", err)
	}
	return r, nil
}

// Ask returns the request as the API takes it.
func (r Request) Ask() (AskPlan, error) {
	spec, err := json.Marshal(r.Spec)
	return AskPlan{Container: r.Container, Bundle: r.Bundle, Root: r.Root, Spec: spec,
		Module: r.Module}, err
}

// A Planned answers an AskPlan.
type Planned struct {
	// Plan is a Plan.
	Plan json.RawMessage `json:"plan"`
}

// Made says what became of a plan.
type Made struct {
	// PID is the number of the first process, which waits to be started.
	PID int `json:"pid,omitempty"`
	// Cgroups are the directories of the container's control group by controller; in cgroup v2 the
	// one directory has the key "".
	Cgroups map[string]string `json:"cgroups,omitempty"`
	// Error says why there is no container.
	Error string `json:"error,omitempty"`
	// Deleted says that the container has stopped and its control group is about to be removed. The
	// answer comes when the end of the container is on record.
	Deleted bool `json:"deleted,omitempty"`
}

// An AskExec asks for one more process in a container.
type AskExec struct {
	// Process is the process of a config.json.
	Process json.RawMessage `json:"process"`
}

// A GrantedExec is the process as far as it is granted.
type GrantedExec struct {
	Process json.RawMessage `json:"process"`
	// Dropped names what the process asks for and does not get.
	Dropped []string `json:"dropped"`
}
