package api

import (
	"encoding/json"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

func (srv *Server) planContainer(q call, asked oci.AskPlan) (any, error) {
	req, err := asked.Request()
	if err != nil {
		return nil, problem.New(problem.Usage, "body of the request: %v", err)
	}
	p, err := srv.s.Containers().Plan(q.caller, req)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(p)
	return oci.Planned{Plan: text}, err
}

func (srv *Server) execInContainer(q call, asked oci.AskExec) (any, error) {
	var process specs.Process
	if err := json.Unmarshal(asked.Process, &process); err != nil {
		return nil, problem.New(problem.Usage, "body of the request: process: %v", err)
	}
	dropped, err := srv.s.Containers().Exec(q.caller, q.id, &process)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(process)
	return oci.GrantedExec{Process: text, Dropped: dropped}, err
}
