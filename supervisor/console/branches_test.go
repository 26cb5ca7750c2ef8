package console

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// A shadow and its branches stand side by side, and what tools called their files is only text.
func TestBranchesSideBySide(t *testing.T) {
	f := &fake{digest: "sha256:aa", kept: []shadows.WorkspaceInfo{
		{Info: workspace.Info{ID: "p", State: workspace.Frozen}},
		{Info: workspace.Info{ID: "a", State: workspace.Frozen, Parent: "p",
			Merges: []workspace.MergeRecord{{ID: "1", Into: "p", Paths: 3}}}},
		{Info: workspace.Info{ID: "foreign9", State: workspace.Frozen, Parent: "q"}},
	}}
	f.lines = []api.ReviewLine{{Change: &api.Change{Change: workspace.Change{
		Path: "<i>\x1b", Kind: workspace.Added,
		After: &workspace.Node{Type: workspace.File, SHA256: "0123456789"}}}}}
	c := newClient(t, Options{Daemon: f})
	for _, id := range []string{"p", "a"} {
		body := c.get("/runs/" + id + "/branches").Body.String()
		for _, want := range []string{"/runs/p/review", "/runs/a/review", "added 0123456",
			"merged 3 paths", "&lt;i&gt;"} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %s", id, want)
			}
		}
		if strings.Contains(body, "foreign9") || strings.Contains(body, "<i>") ||
			strings.Contains(body, "\x1b") {
			t.Errorf("%s: %s", id, body)
		}
	}
	if body := c.get("/").Body.String(); strings.Count(body, "/branches") != 3 {
		t.Errorf("links of the front page: %s", body)
	}
}
