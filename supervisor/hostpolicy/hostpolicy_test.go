package hostpolicy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/problem"
)

// TestOpenRefuses: what the operator did is no fault of jail's own, and the error says what to do.
func TestOpenRefuses(t *testing.T) {
	for name, damage := range map[string]func(state, profiles string) error{
		"a directory that all can write to": func(_, profiles string) error {
			return os.Chmod(profiles, 0o777)
		},
		"a damaged list of versions": func(state, _ string) error {
			return os.WriteFile(filepath.Join(state, versionsFile), []byte("x"), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			state, profiles := t.TempDir(), t.TempDir()
			if err := damage(state, profiles); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), Options{StateDir: state, Profiles: profiles,
				Ceiling: filepath.Join(state, "none"), Private: true})
			if e := problem.From(err); err == nil || e.Hint == "" || strings.Contains(e.Hint,
				"fault of jail") {
				t.Errorf("%v: %+v", err, e)
			}
		})
	}
}
