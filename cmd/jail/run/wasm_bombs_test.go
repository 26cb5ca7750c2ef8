package run_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// T-116: a module that is dear to compile is refused in one sentence, before it is compiled or by
// the limits of the jail that compiles it.
func TestCompileBombs(t *testing.T) {
	h := cmdtest.New(t)
	for name, b := range cmdtest.Bombs() {
		t.Run(name, func(t *testing.T) {
			if name == "straight code" && os.Getenv("JAIL_TEST_LONG") == "" {
				t.Skip("JAIL_TEST_LONG is not set: it takes all the memory that there may be")
			}
			defer func(whole *testing.T) { h.T = whole }(h.T)
			h.T = t
			for _, n := range []int{b.Small, b.Size} {
				path := filepath.Join(h.Work, "bomb.wasm")
				if err := os.WriteFile(path, b.Code(n).Encode(), 0o644); err != nil {
					t.Fatal(err)
				}
				o := h.Jail("run", "--no-workspace", "--", path)
				if n == b.Small { // the control
					if o.Code != 0 {
						t.Errorf("%d: exit code %d, %.300s", n, o.Code, o.Err)
					}
					continue
				}
				h.Wants(o, 126, b.Words)
			}
		})
	}
}
