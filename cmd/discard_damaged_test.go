package cmd_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDiscardDamaged: a shadow whose description a failing disk has damaged stays in nobody's way.
// The others can be reviewed, and root, who alone may judge it, throws it away by its id.
func TestDiscardDamaged(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	d.admit()
	for _, id := range []string{"hit", "well"} {
		h.wants(h.jail("run", "--quiet", "--id", id, "--", "touch", "made"), 0, "")
	}
	hit := h.globalID("hit")
	meta := filepath.Join(h.state, "state", "workspaces", hit, "meta.json")
	if err := os.WriteFile(meta, []byte(`{"id":`), 0o600); err != nil {
		t.Fatal(err)
	}
	d.logs = "list the shadows"
	h.says(h.jail("workspaces"), 0, "well")
	h.says(h.jail("diff", "well"), 0, "A made")
	damaged := `what jail itself keeps of it is damaged: meta\.json(.|\n)*hint: .*--force `
	h.wants(h.jail("diff", hit), 125, damaged)
	h.wants(h.jail("discard", hit), 125, damaged)
	h.wants(h.run(as(h.command("discard", "--force", hit), stranger)), 125, damaged)
	h.wants(h.jail("discard", "--force", hit), 0, "")
	h.wants(h.jail("discard", "--force", hit), 127, "no shadow is kept")
	h.says(h.jail("audit", "query", "--run", hit, "--type", "workspace.discarded"), 0, "hit")
	h.wants(h.jail("discard", "--force", "well"), 0, "")
}
