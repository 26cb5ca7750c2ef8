package launch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy/paths"
)

// TestShadow lets native code loose on a shadow: it writes, up to the limits, and the real
// directory stays as it is. What the mount table inside says of the layers are descriptors' names
// that mean nothing there.
//
// It does the same to one that is attached to a jail which stands already.
func TestShadow(t *testing.T) {
	t.Run("from the start", func(t *testing.T) { shadow(t, false) })
	t.Run("attached later", func(t *testing.T) { shadow(t, true) })
}

// giveShadow gives the jail a shadow of its data, of 8 MiB and 100 files, in a store that it
// returns.
func giveShadow(t *testing.T, s *jailtest.Setup) (dir string) {
	t.Helper()
	dir = t.TempDir()
	store, err := workspace.Open(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	source, err := os.Open(s.Data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close() })
	w, err := store.Prepare(workspace.Spec{ID: "shadow", Source: source, Bytes: 8 << 20,
		Inodes: 100, Caller: workspace.Caller{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Discard(); err != nil {
			t.Error(err)
		}
		w.Close()
	})
	if s.Files.Lower, err = w.Lower(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Files.Lower.Close() })
	if s.Files.Upper, err = w.Upper(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Files.Upper.Close() })
	request := s.Request
	request.Workspace = &jail.Source{Path: s.Data, UID: jailtest.UID, GID: jailtest.UID}
	request.Later = s.Later
	plan, err := jail.NewPlan(s.Policy, request)
	if err != nil {
		t.Fatal(err)
	}
	s.Plan.Workspace = plan.Workspace
	s.Plan.Workspace.Bytes = 8 << 20
	for _, r := range plan.Landlock.Rules {
		if paths.Within(r.Path, plan.Workspace.Target) {
			s.Plan.Landlock.Rules = append(s.Plan.Landlock.Rules, r)
		}
	}
	return dir
}

func shadow(t *testing.T, later bool) {
	s := jailtest.New(t)
	s.Later = later
	dir := giveShadow(t, s)
	j, at := s.Start(t), s.Plan.Workspace.Target
	if r := j.One("=fill", text(at+"/f"), i(1)); r.Errno != "" {
		t.Errorf("write to the shadow: %v", r)
	}
	if r := j.One("unlinkat", i(unix.AT_FDCWD), text(at+"/f"), i(0)); r.Errno != "" {
		t.Errorf("delete in the shadow: %v", r)
	}
	// Each below the limit of a file.
	for n := range 4 {
		r := j.One("=fill", text(at+"/"+string(rune('a'+n))), i(3<<20))
		if n == 3 && r.Errno != "ENOSPC" {
			t.Errorf("12 MiB into a shadow of 8: %v", r)
		}
	}
	for line := range strings.Lines(string(j.One("=read", text("/proc/self/mountinfo")).Data)) {
		if strings.Contains(line, " "+at+" ") && strings.Contains(line, dir) {
			t.Errorf("the mount table names the store: %s", line)
		}
		if strings.Contains(line, " "+at+" ") {
			t.Log(line)
		}
	}
	j.End()
	if content, err := os.ReadFile(filepath.Join(s.Data, "f")); err != nil ||
		string(content) != "canary\n" {
		t.Errorf("the real file is %q, %v", content, err)
	}
	if entries, err := os.ReadDir(s.Data); err != nil || len(entries) != 1 {
		t.Errorf("the real directory has %v, %v", entries, err)
	}
}
