package api

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// changes streams a review of a shadow.
func (srv *Server) changes(w http.ResponseWriter, r *http.Request) {
	caller, err := callerOf(r.Context())
	var review *shadows.Review
	id := ""
	if err == nil {
		id, err = srv.s.Names().Named(caller, r.PathValue("id"))
	}
	if err == nil {
		review, err = srv.s.Workspaces().Review(r.Context(), caller, id)
	}
	if err != nil {
		refuse(w, srv.s, caller, err)
		return
	}
	defer review.Close()
	review.Info = srv.s.Names().Workspace(caller, review.Info)
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(w)
	if err := stream(out, review, r.URL.Query()); err != nil {
		_ = out.Encode(ReviewLine{Error: srv.s.Names().Error(caller, problem.From(err))})
	}
}

// patchWriter writes parts of the differences as review lines.
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
