package cmdtest

import (
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/jail/outer"
	"github.com/jail-sandbox/jail/policy"
)

// OuterLayers are the outer layers whose runtime can start something on this host.
func OuterLayers(t *testing.T) (all []policy.OuterLayer) {
	t.Helper()
	bin, err := filepath.Abs(Built)
	if err != nil {
		t.Fatal(err)
	}
	runtimes := &outer.Runtimes{Dir: bin}
	for _, l := range policy.OuterLayers() {
		runtime, err := runtimes.Find(t.Context(), l.Name)
		if err == nil {
			err = outer.Try(t.Context(), l.Name, runtime, outer.Host{Shim: filepath.Join(bin, "jail-shim"),
				Init: filepath.Join(bin, "jail-init"), Cgroup: "/jail"})
		}
		if err != nil {
			t.Logf("outer layer %s is not here: %v", l.Name, err)
			continue
		}
		all = append(all, l)
	}
	return all
}
