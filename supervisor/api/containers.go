package api

import (
	"context"
	"net/http"

	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/service"
)

// containers answers for OCI containers.
type containers struct{ s *service.Service }

func (h containers) plan(_ context.Context, c caller.Caller, r *http.Request) (any, error) {
	var req oci.Request
	if err := readJSON(r, &req); err != nil {
		return nil, err
	}
	return h.s.Containers().Plan(c, req)
}

func (h containers) report(_ context.Context, c caller.Caller, r *http.Request) (any, error) {
	var req oci.Report
	if err := readJSON(r, &req); err != nil {
		return nil, err
	}
	return nil, h.s.Containers().Report(c, r.PathValue("id"), req)
}

func (h containers) exec(_ context.Context, c caller.Caller, r *http.Request) (any, error) {
	var req oci.ExecRequest
	if err := readJSON(r, &req); err != nil {
		return nil, err
	}
	return h.s.Containers().Exec(c, r.PathValue("id"), req)
}
