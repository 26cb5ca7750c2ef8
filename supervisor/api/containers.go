package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/service"
)

// containers answers for OCI containers.
type containers struct{ s *service.Service }

func (h containers) plan(_ context.Context, c caller.Caller, r *http.Request) (any, error) {
	var asked oci.AskPlan
	if err := readJSON(r, &asked); err != nil {
		return nil, err
	}
	req, err := asked.Request()
	if err != nil {
		return nil, problem.New(problem.Usage, "body of the request: %v", err)
	}
	p, err := h.s.Containers().Plan(c, req)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(p)
	return oci.Planned{Plan: text}, err
}

func (h containers) report(_ context.Context, c caller.Caller, r *http.Request,
	req oci.Made) (any, error) {
	return nil, h.s.Containers().Report(c, r.PathValue("id"), req)
}

func (h containers) exec(_ context.Context, c caller.Caller, r *http.Request) (any, error) {
	var asked oci.AskExec
	if err := readJSON(r, &asked); err != nil {
		return nil, err
	}
	var process specs.Process
	if err := json.Unmarshal(asked.Process, &process); err != nil {
		return nil, problem.New(problem.Usage, "body of the request: process: %v", err)
	}
	dropped, err := h.s.Containers().Exec(c, r.PathValue("id"), &process)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(process)
	return oci.GrantedExec{Process: text, Dropped: dropped}, err
}
