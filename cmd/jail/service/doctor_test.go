package service

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/jail/denials"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/supervisor/config"
)

// Without a daemon doctor reads the policy files itself, and says where they are broken.
func TestDoctorReadsPolicyFiles(t *testing.T) {
	dir := t.TempDir()
	env := &cli.Env{Config: config.Config{Profiles: filepath.Join(dir, "profiles"),
		Ceiling: filepath.Join(dir, "ceiling.toml"), Socket: filepath.Join(dir, "none.sock")}}
	wants := func(answer probe.Answer, says string) {
		t.Helper()
		if f := policyFiles(t.Context(), env); f.Answer != answer || !strings.Contains(f.Detail,
			says) {
			t.Errorf("%+v, want %s and %q", f, answer, says)
		}
	}
	wants(probe.Yes, "no others")
	if err := errors.Join(os.Mkdir(env.Config.Profiles, 0o755),
		os.WriteFile(env.Config.Ceiling, []byte("policy = 1\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	wants(probe.Yes, "sha256:")
	bad := filepath.Join(env.Config.Profiles, "bad.toml")
	if err := os.WriteFile(bad, []byte("policy = 1\nx = 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	wants(probe.No, bad+":2:")
	if err := errors.Join(os.Remove(bad), os.Chmod(env.Config.Ceiling, 0o666)); err != nil {
		t.Fatal(err)
	}
	wants(probe.No, "everyone can write")
}

// Doctor says in one line whether refused paths are reported, and if not what to do. Nothing
// that is missing there is a missing layer.
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
		if strings.Contains(text, "\n") || strings.HasSuffix(text, " ") || strings.HasSuffix(text,
			"and") {
			t.Errorf("%q", text)
		}
	}
	ask := "[denied] landlock = true in " + path
	says(denials.ErrOff, "not reported", "audit is off", "auditctl -e 1", "audit=1", ask)
	says(nil, "not reported", "audit is on", ask)
	says(errors.New("landlock version 6: reports of refusals need 7"),
		"not reported: landlock version 6")
	if err := os.WriteFile(path, []byte("[denied]\nlandlock = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	says(nil, "refusals of programs are reported")
	if says(denials.ErrOff, "not reported", "auditctl -e 1"); strings.Contains(refusedText(path,
		func() error { return denials.ErrOff }), "landlock = true") {
		t.Error("it asks for what is there")
	}
	if err := os.WriteFile(path, []byte("[denied]\nlandlock = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	says(nil, "perhaps not reported", "jaild.toml")
}

// Doctor begins with what is missing, goes on with what could not be told, and keeps the order
// within each.
func TestDiagnosisOrder(t *testing.T) {
	d := diagnosis{Findings: []probe.Finding{{Name: "a", Answer: probe.Yes},
		{Name: "b", Answer: probe.Unknown}, {Name: "c", Answer: probe.No},
		{Name: "d", Answer: probe.No}}}
	var out strings.Builder
	writeDiagnosis(&out, d, false)
	var names []string
	for line := range strings.SplitSeq(out.String(), "\n") {
		if f := strings.Fields(line); len(f) == 2 {
			names = append(names, f[1])
		}
	}
	if got := strings.Join(names, ""); !strings.HasPrefix(out.String(),
		"3 things have to be looked at") || !strings.HasPrefix(got, "cdba") {
		t.Errorf("order %q of\n%s", got, out.String())
	}
}
