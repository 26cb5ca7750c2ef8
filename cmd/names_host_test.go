package cmd_test

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
)

// globalID is the id of what a user of this state calls name: that of the name, or name itself.
func (h *host) globalID(name string) string {
	h.t.Helper()
	found, err := filepath.Glob(filepath.Join(h.state, "state", "names", "[0-9]*", name))
	if err != nil || len(found) > 1 {
		h.t.Fatalf("%s: %q, %v", name, found, err)
	}
	for _, link := range found {
		id, err := os.Readlink(link)
		if err != nil {
			h.t.Fatal(err)
		}
		return id
	}
	return name
}

// shownName is what users of this state call the run of an id.
func (h *host) shownName(id string) string {
	to, _ := os.Readlink(filepath.Join(h.state, "state", "names", "ids", id))
	_, name, _ := strings.Cut(to, "/")
	return cmp.Or(name, id)
}
