package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// targetPolicies writes two policies whose workspace is at its own path: one of programs of the
// host, one of modules.
func (h *host) targetPolicies() (native, modules string) {
	h.t.Helper()
	text := func(base string) string {
		return "policy = 1\nname = \"same\"\nabout = \"x\"\ninclude = [\"" + base +
			"\"]\n[workspace]\ntarget = \"same\"\n"
	}
	native, modules = filepath.Join(h.root, "native.toml"), filepath.Join(h.root, "modules.toml")
	for path, base := range map[string]string{native: "build", modules: "default"} {
		if err := os.WriteFile(path, []byte(text(base)), 0o644); err != nil {
			h.t.Fatal(err)
		}
	}
	return native, modules
}

// outsideMounts returns a new directory that lies in no tmpfs of the shipped profiles.
func outsideMounts(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/srv", "jail-target-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// With workspace.target = "same" tools find the workspace at the directory's own path, and what
// they change there is a change of the shadow.
func TestWorkspaceTarget(t *testing.T) {
	h := newHost(t)
	h.daemon()
	native, modules := h.targetPolicies()
	h.files(map[string]string{"way/here": "root\n", "way/docs/here": "docs\n",
		"way/say.sh": "#!/bin/sh\necho $0 in $PWD\n"})
	way := filepath.Join(h.work, "way")
	if err := os.Chmod(filepath.Join(way, "say.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	elsewhere := outsideMounts(t)
	if err := os.WriteFile(filepath.Join(elsewhere, "here"), []byte("there\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	docs, fixed := filepath.Join(way, "docs"), filepath.Join(h.root, "fixed.toml")
	text := "policy = 1\nname = \"fixed\"\nabout = \"x\"\ninclude = [\"build\"]\n[workspace]\n" +
		"target = \"/workspace\"\n"
	if err := os.WriteFile(fixed, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, dir string
		args      []string
		out       string
	}{
		{"program", docs,
			[]string{"--policy", native, "--", "sh", "-c", "pwd; cat " + way + "/here"},
			docs + "\nroot\n"},
		{"script by its own path", docs, []string{"--policy", native, "--", way + "/say.sh"},
			way + "/say.sh in " + docs + "\n"},
		{"script by the policy's path", docs,
			[]string{"--policy", native, "--", "/workspace/say.sh"},
			way + "/say.sh in " + docs + "\n"},
		{"module", elsewhere, []string{"--policy", modules, "--", "cat", elsewhere + "/here"},
			"there\n"},
		{"module below /tmp", docs, []string{"--policy", modules, "--", "cat", "/workspace/here"},
			"root\n"},
		{"control", docs, []string{"--policy", fixed, "--", "sh", "-c", "pwd"},
			"/workspace/docs\n"},
	} {
		workspace := way
		if c.dir == elsewhere {
			workspace = elsewhere
		}
		args := []string{"run", "--quiet", "--workspace", workspace}
		o := h.from(c.dir, append(args, c.args...)...)
		if o.code != 0 || o.out != c.out {
			t.Errorf("%s: %+v, want %q", c.what, o, c.out)
		}
	}
	// What a plan mounts is not hidden, and a directory in a tree of the host stays at /workspace.
	hiding := filepath.Join(h.root, "hiding.toml")
	text = "policy = 1\nname = \"hiding\"\nabout = \"x\"\ninclude = [\"build\"]\n[workspace]\n" +
		"target = \"same\"\n[[mount]]\nsource = \"/usr/share\"\ntarget = \"" + elsewhere +
		"/share\"\naccess = \"read\"\n"
	if err := os.WriteFile(hiding, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	h.wants(h.jail("run", "--workspace", elsewhere, "--policy", hiding, "--", "true"), 126,
		"it would hide the mount "+elsewhere+"/share")
}

// In a session the directory lies in a /tmp that its tools share. One that puts a link in the way
// leads the next tool to no directory of the host.
func TestWorkspaceTargetLink(t *testing.T) {
	h := newHost(t)
	h.daemon()
	native, _ := h.targetPolicies()
	way, err := os.MkdirTemp("/tmp", "jail-target-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(way) })
	etc := filepath.Join(way, "etc")
	if err := os.Mkdir(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	id := h.session("--policy", native, "--workspace", etc)
	if o := h.exec(id, "--", "sh", "-c", "pwd; echo one > one"); o.code != 0 || o.out != etc+"\n" {
		t.Fatalf("%+v", o)
	}
	if o := h.exec(id, "--", "sh", "-c", "mv "+way+" /tmp/moved && ln -s / "+way); o.code != 0 {
		t.Fatalf("%+v", o)
	}
	h.wants(h.exec(id, "--", "sh", "-c", "ls"), 126, "something else in the way")
	h.wants(h.jail("session", "stop", id), 0, "")
	if o := h.jail("diff", id); !strings.Contains(o.out, "A one") {
		t.Errorf("%+v", o)
	}
	h.discard(id)
}

// The path of a directory may hold whatever a path of Linux may hold, also what has a meaning in a
// pattern, in the options of a mount or in /proc/self/mountinfo.
func TestWorkspaceNames(t *testing.T) {
	h := newHost(t)
	h.daemon()
	native, modules := h.targetPolicies()
	dir := outsideMounts(t)
	for _, name := range []string{
		"app[id]{x}?*b", "**", "two words 'x' \"y\" $HOME", `a:b,c=d\134 %s #ü`, "-\nend\ttab\x01",
		strings.Repeat("n", 255), strings.Repeat(strings.Repeat("d", 50)+"/", 60) + "deep",
	} {
		way := filepath.Join(dir, name)
		if err := os.MkdirAll(way, 0o755); err != nil {
			t.Fatal(err)
		}
		o := h.from(way, "run", "--quiet", "--id", "named", "--policy", native, "--", "sh", "-c",
			"pwd && echo new > file")
		if o.code != 0 || o.out != way+"\n" {
			t.Errorf("%q, program: %+v", name, o)
		}
		h.wants(h.jail("commit", "named"), 0, "")
		h.discard("named")
		o = h.from(way, "run", "--quiet", "--policy", modules, "--", "cat", filepath.Join(way, "file"))
		if o.code != 0 || o.out != "new\n" {
			t.Errorf("%q, module: %+v", name, o)
		}
		id := h.session("--policy", native, "--workspace", way)
		if o := h.exec(id, "--", "sh", "-c", "pwd"); o.code != 0 || o.out != way+"\n" {
			t.Errorf("%q, session: %+v", name, o)
		}
		h.wants(h.jail("verify", id), 0, "")
		h.wants(h.jail("session", "stop", id, "--discard"), 0, "")
	}
}
