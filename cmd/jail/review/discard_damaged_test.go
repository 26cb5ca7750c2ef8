package review_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestDiscardDamaged: a shadow whose description a failing disk has damaged stays in nobody's way.
// The others can be reviewed, and root, who alone may judge it, throws it away by its id.
func TestDiscardDamaged(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	d.Admit()
	for _, id := range []string{"hit", "well"} {
		h.Wants(h.Jail("run", "--quiet", "--id", id, "--", "touch", "made"), 0, "")
	}
	hit := h.GlobalID("hit")
	meta := filepath.Join(h.State, "state", "workspaces", hit, "meta.json")
	if err := os.WriteFile(meta, []byte(`{"id":`), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Logs = "list the shadows"
	h.Says(h.Jail("workspaces"), 0, "well")
	h.Says(h.Jail("diff", "well"), 0, "A made")
	damaged := `what jail itself keeps of it is damaged: meta\.json(.|\n)*hint: .*--force `
	h.Wants(h.Jail("diff", hit), 125, damaged)
	h.Wants(h.Jail("discard", hit), 125, damaged)
	h.Wants(h.Run(cmdtest.As(h.Command("discard", "--force", hit), cmdtest.Stranger)), 125, damaged)
	h.Wants(h.Jail("discard", "--force", hit), 0, "")
	h.Wants(h.Jail("discard", "--force", hit), 127, "no shadow is kept")
	h.Says(h.Jail("audit", "query", "--run", hit, "--type", "workspace.discarded"), 0, "hit")
	h.Wants(h.Jail("discard", "--force", "well"), 0, "")
}
