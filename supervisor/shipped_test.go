package supervisor

import (
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/hostpolicy"
)

// shipped are the profiles as they come, under no ceiling.
func shipped(t *testing.T) *hostpolicy.Policies {
	t.Helper()
	dir := t.TempDir()
	s, err := profiles.Open(profiles.Options{Dir: dir, Ceiling: filepath.Join(dir, "ceiling.toml"),
		Record: func(profiles.Change) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &hostpolicy.Policies{Source: s}
}
