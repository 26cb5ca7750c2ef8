package review_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// With workspace.target = "same" tools find the workspace at the directory's own path, and what
// they change there is a change of the shadow.
func TestWorkspaceTarget(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	native, _ := cmdtest.TargetPolicies(h)
	h.Files(map[string]string{"way/here": "root\n", "way/docs/here": "docs\n",
		"way/say.sh": "#!/bin/sh\necho $0 in $PWD\n"})
	way := filepath.Join(h.Work, "way")
	if err := os.Chmod(filepath.Join(way, "say.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	elsewhere := cmdtest.OutsideMounts(t)
	docs, fixed := filepath.Join(way, "docs"), filepath.Join(h.Root, "fixed.toml")
	text := "policy = 1\nname = \"fixed\"\nabout = \"x\"\ninclude = [\"build\"]\n[workspace]\n" +
		"target = \"/workspace\"\n"
	if err := os.WriteFile(fixed, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		args []string
		out  string
	}{
		{"program",
			[]string{"--policy", native, "--", "sh", "-c", "pwd; cat " + way + "/here"},
			docs + "\nroot\n"},
		{"script by its own path", []string{"--policy", native, "--", way + "/say.sh"},
			way + "/say.sh in " + docs + "\n"},
		{"script by the policy's path",
			[]string{"--policy", native, "--", "/workspace/say.sh"},
			way + "/say.sh in " + docs + "\n"},
		{"control", []string{"--policy", fixed, "--", "sh", "-c", "pwd"},
			"/workspace/docs\n"},
	} {
		o := h.From(docs, append([]string{"run", "--quiet", "--workspace", way}, c.args...)...)
		if o.Code != 0 || o.Out != c.out {
			t.Errorf("%s: %+v, want %q", c.what, o, c.out)
		}
	}
	// What a plan mounts is not hidden, and a directory in a tree of the host stays at /workspace.
	hiding := filepath.Join(h.Root, "hiding.toml")
	text = "policy = 1\nname = \"hiding\"\nabout = \"x\"\ninclude = [\"build\"]\n[workspace]\n" +
		"target = \"same\"\n[[mount]]\nsource = \"/usr/share\"\ntarget = \"" + elsewhere +
		"/share\"\naccess = \"read\"\n"
	if err := os.WriteFile(hiding, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("run", "--workspace", elsewhere, "--policy", hiding, "--", "true"), 126,
		"it would hide the mount "+elsewhere+"/share")
}

func TestWorkspaceTargetOfModules(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	_, modules := cmdtest.TargetPolicies(h)
	// Where h.Root may not be.
	below, err := os.MkdirTemp("/tmp", "jail-target-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(below) })
	elsewhere := cmdtest.OutsideMounts(t)
	for dir, as := range map[string]string{elsewhere: elsewhere, below: "/workspace"} {
		if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "here"),
			[]byte(dir+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		o := h.From(dir, "run", "--quiet", "--workspace", dir, "--policy", modules, "--", "cat",
			as+"/here")
		if o.Code != 0 || o.Out != dir+"\n" {
			t.Errorf("%s: %+v", dir, o)
		}
	}
}

// In a session the directory lies in a /tmp that its tools share. One that puts a link in the way
// leads the next tool to no directory of the host.
func TestWorkspaceTargetLink(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	native, _ := cmdtest.TargetPolicies(h)
	way, err := os.MkdirTemp("/tmp", "jail-target-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(way) })
	etc := filepath.Join(way, "etc")
	if err := os.Mkdir(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	id := h.Session("--policy", native, "--workspace", etc)
	if o := h.Exec(id, "--", "sh", "-c", "pwd; echo one > one"); o.Code != 0 || o.Out != etc+"\n" {
		t.Fatalf("%+v", o)
	}
	if o := h.Exec(id, "--", "sh", "-c", "mv "+way+" /tmp/moved && ln -s / "+way); o.Code != 0 {
		t.Fatalf("%+v", o)
	}
	h.Wants(h.Exec(id, "--", "sh", "-c", "ls"), 126, "something else in the way")
	h.Wants(h.Jail("session", "stop", id), 0, "")
	if o := h.Jail("diff", id); !strings.Contains(o.Out, "A one") {
		t.Errorf("%+v", o)
	}
	h.Discard(id)
}

// The path of a directory may hold whatever a path of Linux may hold, also what has a meaning in a
// pattern, in the options of a mount or in /proc/self/mountinfo.
func TestWorkspaceNames(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	native, modules := cmdtest.TargetPolicies(h)
	dir := cmdtest.OutsideMounts(t)
	for _, name := range []string{
		"app[id]{x}?*b", "**", "two words 'x' \"y\" $HOME", `a:b,c=d\134 %s #ü`, "-\nend\ttab\x01",
		strings.Repeat("n", 255), strings.Repeat(strings.Repeat("d", 50)+"/", 60) + "deep",
	} {
		way := filepath.Join(dir, name)
		if err := os.MkdirAll(way, 0o755); err != nil {
			t.Fatal(err)
		}
		o := h.From(way, "run", "--quiet", "--id", "named", "--policy", native, "--", "sh", "-c",
			"pwd && echo new > file")
		if o.Code != 0 || o.Out != way+"\n" {
			t.Errorf("%q, program: %+v", name, o)
		}
		h.Wants(h.Jail("commit", "named"), 0, "")
		h.Discard("named")
		o = h.From(way, "run", "--quiet", "--policy", modules, "--", "cat", filepath.Join(way, "file"))
		if o.Code != 0 || o.Out != "new\n" {
			t.Errorf("%q, module: %+v", name, o)
		}
		id := h.Session("--policy", native, "--workspace", way)
		if o := h.Exec(id, "--", "sh", "-c", "pwd"); o.Code != 0 || o.Out != way+"\n" {
			t.Errorf("%q, session: %+v", name, o)
		}
		h.Wants(h.Jail("verify", id), 0, "")
		h.Wants(h.Jail("session", "stop", id, "--discard"), 0, "")
	}
}
