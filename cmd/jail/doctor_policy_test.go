package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/supervisor"
)

// Without a daemon doctor reads the policy files itself, and says where they are broken.
func TestDoctorReadsPolicyFiles(t *testing.T) {
	dir := t.TempDir()
	a := &app{config: supervisor.Config{Profiles: filepath.Join(dir, "profiles"), Ceiling: filepath.Join(dir, "ceiling.toml"), Socket: filepath.Join(dir, "none.sock")}}
	wants := func(answer probe.Answer, says string) {
		t.Helper()
		if f := a.policyFiles(t.Context()); f.Answer != answer || !strings.Contains(f.Detail, says) {
			t.Errorf("%+v, want %s and %q", f, answer, says)
		}
	}
	wants(probe.Yes, "no others")
	if err := errors.Join(os.Mkdir(a.config.Profiles, 0o755), os.WriteFile(a.config.Ceiling, []byte("policy = 1\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	wants(probe.Yes, "sha256:")
	bad := filepath.Join(a.config.Profiles, "bad.toml")
	if err := os.WriteFile(bad, []byte("policy = 1\nx = 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	wants(probe.No, bad+":2:")
	if err := errors.Join(os.Remove(bad), os.Chmod(a.config.Ceiling, 0o666)); err != nil {
		t.Fatal(err)
	}
	wants(probe.No, "everyone can write")
}
