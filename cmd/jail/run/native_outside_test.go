package run_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A program that only the host has is named with the mount that shows it: of the caller's PATH, by
// its path, as an interpreter, and where a link leads out of the jail.
func TestNativeOutside(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	// The profile build has memory of its own at /tmp.
	home, err := os.MkdirTemp("/var/tmp", "jail-outside-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	bin := filepath.Join(home, "bin")
	tool := filepath.Join(bin, "jail-outside-tool")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho shown\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.Files(map[string]string{"script*": "#!" + tool + "\n", "gone*": "#!/usr/bin/nosuch\n"})
	if err := os.Symlink(tool, filepath.Join(h.Work, "link")); err != nil {
		t.Fatal(err)
	}
	shown := tool + ` is a program of this host that the jail does not show: a \[\[mount\]\] with ` +
		`source = "` + bin + `", target = "` + bin + `", access = "read\+exec"`
	run := func(path string, args ...string) cmdtest.Outcome {
		cmd := h.Command(append([]string{"run", "--discard"}, args...)...)
		cmd.Env = append(cmd.Env, "PATH="+path)
		return h.Run(cmd)
	}
	path := "relative:" + bin + ":/usr/bin:/bin"
	for _, c := range []struct {
		profile, tool string
		code          int
		says          string
	}{
		{"build", "jail-outside-tool", 127, shown},
		{"build", tool, 126, shown},
		{"build", "./link", 127, "is a link to " + tool + `, which is not in the jail\n.*` + shown},
		{"build", "./script", 127, "needs " + tool + `, which is not in the jail\n.*` + bin},
		{"build", "./gone", 127, `which is not in the jail\n.*this host has no /usr/bin/nosuch, either`},
		{"default", "jail-outside-tool", 127, tool + " is a program of this host"},
	} {
		h.Wants(run(path, "--profile", c.profile, "--", c.tool), c.code, c.says)
	}
	// Of what is not on the caller's PATH, nothing is said.
	h.Wants(run("/usr/bin:/bin", "--profile", "build", "--", "jail-outside-tool"), 127,
		"what a .* does not show is not in the jail")
	// The lines of the hint are what shows it.
	policy := filepath.Join(h.Root, "shown.toml")
	if err := os.WriteFile(policy, []byte("policy = 1\nname = \"shown\"\nabout = \"x\"\n"+
		"include = [\"build\"]\n[[mount]]\nsource = \""+bin+"\"\ntarget = \""+bin+
		"\"\naccess = \"read+exec\"\n[tools]\nnative = [\""+bin+"/**\"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{tool, "./link"} {
		if o := run(path, "--policy", policy, "--", name); o.Out != "shown\n" {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
