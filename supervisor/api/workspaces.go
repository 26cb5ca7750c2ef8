package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/service"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// workspaces answers for the shadows that a daemon keeps.
type workspaces struct{ s *service.Service }

func (h workspaces) prune(ctx context.Context, c caller.Caller, _ *http.Request) (any, error) {
	return h.s.Workspaces().Prune(ctx, c)
}

func (h workspaces) removeCache(_ context.Context, c caller.Caller, r *http.Request) (any, error) {
	return nil, h.s.Workspaces().RemoveCache(c, r.PathValue("id"))
}

func (h workspaces) discard(ctx context.Context, c caller.Caller, r *http.Request,
	id string) (any, error) {
	return nil, h.s.Workspaces().Discard(ctx, c, id, r.URL.Query().Get("force") == "1")
}

func (h workspaces) changes(w http.ResponseWriter, r *http.Request) {
	caller, err := callerOf(r.Context())
	var review *shadows.Review
	id := ""
	if err == nil {
		id, err = h.s.Names().Named(caller, r.PathValue("id"))
	}
	if err == nil {
		review, err = h.s.Workspaces().Review(r.Context(), caller, id)
	}
	if err != nil {
		refuse(w, h.s, caller, err)
		return
	}
	defer review.Close()
	review.Info = h.s.Names().Workspace(caller, review.Info)
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(w)
	if err := stream(out, review, r.URL.Query()); err != nil {
		_ = out.Encode(ReviewLine{Error: h.s.Names().Error(caller, problem.From(err))})
	}
}

// patchWriter sends the differences in parts.
type patchWriter struct{ out *json.Encoder }

func (w patchWriter) Write(p []byte) (int, error) {
	if err := w.out.Encode(ReviewLine{Patch: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

func stream(out *json.Encoder, review *shadows.Review, asked url.Values) error {
	if err := out.Encode(ReviewLine{Info: &review.Info}); err != nil {
		return err
	}
	var o workspace.ShowOptions
	for _, path := range asked["path"] {
		o.Options.Paths = append(o.Options.Paths, workspace.Name(path))
	}
	if patch := asked.Get("patch"); patch != "" {
		o.Patch, o.Options.Terminal = patchWriter{out}, patch == PatchTerminal
	}
	if asked.Get("hunks") == "1" {
		o.Hunks = func(h workspace.FileHunks) error { return out.Encode(ReviewLine{Hunks: &h}) }
	}
	shown, err := review.Show(o, func(c workspace.Change) error {
		line := Change{Change: c}
		line.Protected, _ = review.Held(string(c.Path))
		return out.Encode(ReviewLine{Change: &line})
	})
	if err != nil {
		return err
	}
	return out.Encode(ReviewLine{Summary: &ReviewSummary{shown}})
}
