package api

import (
	"net/http"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/naming"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/service"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// Users' names become ids here, and ids become names again in answers. Behind this package,
// everything has only its id.

// byID wraps a handler: it replaces the name in the path by the id of the run or session.
func (srv *Server) byID(h handler) handler {
	return func(q call) (_ any, err error) {
		if q.id, err = srv.s.Names().Named(q.caller, q.id); err != nil {
			return nil, err
		}
		return h(q)
	}
}

// shown returns v with names in place of ids, if its type has any.
func shown(s *naming.Namer, c caller.Caller, v any) any {
	switch v := v.(type) {
	case message.Result:
		return s.Result(c, v)
	case rundir.Verification:
		return s.Verification(c, v)
	case message.DetachedInfo:
		return s.Detached(c, v)
	case message.SessionInfo:
		return s.Session(c, v)
	case shadows.Pruned:
		for i, id := range v.IDs {
			v.IDs[i] = s.Shown(c, id)
		}
		return v
	case approvals.Action:
		v.Run = s.Shown(c, v.Run)
		return v
	case []approvals.Action:
		for i := range v {
			v[i].Run = s.Shown(c, v[i].Run)
		}
		return v
	case []approvals.Grant:
		for i := range v {
			v[i].Run = s.Shown(c, v[i].Run)
		}
		return v
	case []message.RunInfo:
		return each(c, v, s.Run)
	case []message.SessionInfo:
		return each(c, v, s.Session)
	case shadows.BranchInfo:
		return s.Branch(c, v)
	case []shadows.BranchInfo:
		return each(c, v, s.Branch)
	case workspace.MergePreview:
		v.Parent = s.Shown(c, v.Parent)
		return v
	case workspace.MergeRecord:
		v.Into = s.Shown(c, v.Into)
		return v
	case shadows.Comparison:
		v.A, v.B = s.Shown(c, v.A), s.Shown(c, v.B)
		return v
	case []shadows.WorkspaceInfo:
		return each(c, v, s.Workspace)
	case Records:
		if v.Live != nil {
			live := s.Run(c, *v.Live)
			v.Live = &live
		}
		return v
	}
	return v
}

func each[T any](c caller.Caller, all []T, f func(caller.Caller, T) T) []T {
	for i, v := range all {
		all[i] = f(c, v)
	}
	return all
}

// refuse answers a caller's request with an error.
func refuse(w http.ResponseWriter, s *service.Service, c caller.Caller, err error) {
	writeProblem(w, s.Names().Error(c, problem.From(err)))
}
