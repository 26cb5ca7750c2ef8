package api

import (
	"context"
	"net/http"

	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// What users call a run or session becomes its id here, and its id what they call it: behind this
// package everything has its id alone.

// byID gives a handler the id of what the path names.
func byID(h func(srv *Server, ctx context.Context, c caller.Caller, r *http.Request,
	id string) (any, error)) handler {
	return func(srv *Server, ctx context.Context, c caller.Caller, r *http.Request) (any, error) {
		id, err := srv.s.Named(c, r.PathValue("id"))
		if err != nil {
			return nil, err
		}
		return h(srv, ctx, c, r, id)
	}
}

// shown is v with names in place of ids, for those types that have any.
func shown(s *supervisor.Supervisor, c caller.Caller, v any) any {
	switch v := v.(type) {
	case supervisor.Result:
		return s.ShownResult(c, v)
	case rundir.Verification:
		return s.ShownVerification(c, v)
	case supervisor.DetachedInfo:
		return s.ShownDetached(c, v)
	case supervisor.SessionInfo:
		return s.ShownSession(c, v)
	case shadows.Pruned:
		for i, id := range v.IDs {
			v.IDs[i] = s.Shown(c, id)
		}
		return v
	case []supervisor.RunInfo:
		return each(v, func(x supervisor.RunInfo) supervisor.RunInfo { return s.ShownRun(c, x) })
	case []supervisor.SessionInfo:
		return each(v, func(x supervisor.SessionInfo) supervisor.SessionInfo {
			return s.ShownSession(c, x)
		})
	case []shadows.WorkspaceInfo:
		return each(v, func(x shadows.WorkspaceInfo) shadows.WorkspaceInfo {
			return s.ShownWorkspace(c, x)
		})
	case Records:
		if v.Live != nil {
			live := s.ShownRun(c, *v.Live)
			v.Live = &live
		}
		return v
	}
	return v
}

func each[T any](all []T, f func(T) T) []T {
	for i, v := range all {
		all[i] = f(v)
	}
	return all
}

// problem answers a caller's request with an error.
func (srv *Server) problem(w http.ResponseWriter, c caller.Caller, err error) {
	writeProblem(w, srv.s.ShownError(c, problem.From(err)))
}
