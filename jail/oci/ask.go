package oci

import (
	"encoding/json"
	"fmt"
)

// Paths of jaild's API for containers: POST to PathContainers requests a plan, and POST to a
// container's path reports what became of it.
const (
	PathContainers = "/v1/containers"
	// ReportSuffix follows the path and the id of the run, as ExecSuffix does.
	ReportSuffix = "/report"
	ExecSuffix   = "/exec"
)

// An AskPlan is the JSON form of a Request in the API.
type AskPlan struct {
	Container string   `json:"container"`
	Bundle    string   `json:"bundle"`
	Root      []string `json:"root"`
	// Spec is config.json. The sources of its binds are real paths.
	Spec json.RawMessage `json:"spec"`
	// Module says that the program of the image is a WebAssembly module.
	Module bool `json:"module,omitempty"`
}

// Request decodes the request. Fields of config.json that this version of the runtime-spec does not
// know are ignored and have no effect.
func (a AskPlan) Request() (Request, error) {
	r := Request{Container: a.Container, Bundle: a.Bundle, Root: a.Root, Module: a.Module}
	if err := json.Unmarshal(a.Spec, &r.Spec); err != nil {
		return r, fmt.Errorf("spec: %w", err)
	}
	return r, nil
}

// Ask returns the request's form in the API.
func (r Request) Ask() (AskPlan, error) {
	spec, err := json.Marshal(r.Spec)
	return AskPlan{Container: r.Container, Bundle: r.Bundle, Root: r.Root, Spec: spec,
		Module: r.Module}, err
}

// A Planned is the response to an AskPlan.
type Planned struct {
	// Plan is a Plan.
	Plan json.RawMessage `json:"plan"`
}

// Made reports what became of a plan.
type Made struct {
	// PID is the host PID of the first process, which waits to be started.
	PID int `json:"pid,omitempty"`
	// Cgroups are the directories of the container's control group by controller; in cgroup v2 the
	// one directory has the key "".
	Cgroups map[string]string `json:"cgroups,omitempty"`
	// Error says why no container was made.
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
