package server

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/gatekeepers"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// addGatekeepers adds the routes for the owner's gatekeepers. The client is the owner and may use
// all of them, but actions still need an approval.
func (s *Server) addGatekeepers(gates *gatekeepers.Desk) {
	const one = agentapi.GatekeepersPath + "/{name}"
	for pattern, h := range map[string]handler{
		"GET " + agentapi.GatekeepersPath: func(r *http.Request) (any, error) {
			return gates.Describe(r.Context(), gatekeepers.Caller{}, "")
		},
		"GET " + one: func(r *http.Request) (any, error) {
			all, err := gates.Describe(r.Context(), gatekeepers.Caller{}, r.PathValue("name"))
			if err != nil {
				return nil, err
			}
			return all[0], nil
		},
		"POST " + one + "/read": gated(func(ctx context.Context, name string, g agentapi.Gate) (any, error) {
			return gates.Read(ctx, gatekeepers.Caller{}, name, g.Method, g.Args)
		}),
		"POST " + one + "/propose": gated(func(ctx context.Context, name string,
			g agentapi.Gate) (any, error) {
			ref := "user " + g.ID
			if g.ID == "" {
				ref = "user " + rand.Text()
			}
			return gates.Propose(ctx, gatekeepers.Caller{}, gatekeepers.Proposal{Gatekeeper: name,
				Action: g.Method, Args: g.Args, Words: g.Words, Ref: ref})
		}),
	} {
		s.mux.HandleFunc(pattern, s.answered(h))
	}
}

// maxRef bounds a client's id for a proposal, in bytes.
const maxRef = 200

// gated returns a handler that decodes the body of a request and calls f with the gatekeeper's
// name.
func gated(f func(context.Context, string, agentapi.Gate) (any, error)) handler {
	return func(r *http.Request) (any, error) {
		var g agentapi.Gate
		if err := read(r, &g); err != nil {
			return nil, err
		}
		if len(g.ID) > maxRef {
			return nil, problem.New(problem.Usage, "id: %d bytes, more than %d", len(g.ID), maxRef)
		}
		return f(r.Context(), r.PathValue("name"), g)
	}
}
