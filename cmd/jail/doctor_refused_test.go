package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/denials"
)

// Doctor says in one line whether refused paths are told, and if not what to do; nothing that is missing there is a missing layer.
func TestDoctorRefusedPaths(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jaild.toml")
	says := func(available error, words ...string) {
		t.Helper()
		text := refusedText(path, func() error { return available })
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%q does not say %q", text, w)
			}
		}
		if strings.Contains(text, "\n") || strings.HasSuffix(text, " ") || strings.HasSuffix(text, "and") {
			t.Errorf("%q", text)
		}
	}
	ask := "[denied] landlock = true in " + path
	says(denials.ErrOff, "not told", "audit is off", "auditctl -e 1", "audit=1", ask)
	says(nil, "not told", "audit is on", ask)
	says(errors.New("landlock version 6: being told of refusals needs 7"), "not told: landlock version 6")
	if err := os.WriteFile(path, []byte("[denied]\nlandlock = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	says(nil, "those of programs are told")
	if says(denials.ErrOff, "not told", "auditctl -e 1"); strings.Contains(refusedText(path, func() error { return denials.ErrOff }), "landlock = true") {
		t.Error("it asks for what is there")
	}
	if err := os.WriteFile(path, []byte("[denied]\nlandlock = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	says(nil, "cannot be said", "jaild.toml")
}
