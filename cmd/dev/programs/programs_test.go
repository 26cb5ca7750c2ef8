package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

func TestMain(m *testing.M) { os.Exit(cmdtest.Main(m)) }

// TestPrograms runs the quick rows of the table: exit code, output and files are the same in a jail.
// The command runs all of the table.
func TestPrograms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	h := cmdtest.New(t)
	h.Daemon()
	base := t.TempDir()
	// Of the user, who must pass through.
	for _, dir := range []string{base, filepath.Dir(base)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	user, err := ordinaryUser()
	if err != nil {
		t.Fatal(err)
	}
	c := comparer{jail: filepath.Join(h.Bin, "jail"), outer: "none", env: h.Env, base: base, user: user,
		bound: cmdtest.Bound}
	ran := 0
	for _, p := range programs {
		if !p.quick || !here(p) {
			continue
		}
		ran++
		found, err := c.compare(context.Background(), p)
		switch {
		case err != nil:
			t.Error(err)
		case p.differs == "" && len(found) > 0:
			t.Errorf("%s: %q", p.name, found)
		case p.differs != "" && len(found) == 0:
			t.Errorf("%s is the same, and documented as different: %s", p.name, p.differs)
		}
	}
	if ran < 10 {
		t.Errorf("only %d programs of the table are here", ran)
	}
}

// TestDifferences: of at least 60 programs at most five differ in a jail, and at most five others
// inside gVisor.
func TestDifferences(t *testing.T) {
	var differ, inside []string
	for _, p := range programs {
		if p.differs != "" {
			differ = append(differ, p.name)
		}
		if p.gvisor != "" {
			inside = append(inside, p.name)
		}
	}
	if len(differ) > 5 || len(inside) > 5 || len(programs) < 60 {
		t.Errorf("of %d programs these differ: %q, and inside gVisor %q", len(programs), differ, inside)
	}
}
