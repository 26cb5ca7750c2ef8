package run_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/images"
)

// busybox are the entries of an image whose only program is busybox.
func busybox(t *testing.T, more ...cmdtest.ImageFile) []cmdtest.ImageFile {
	t.Helper()
	cmdtest.Have(t, "/bin/busybox")
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	all := []cmdtest.ImageFile{{Name: "opt/busybox", Text: program, Mode: 0o755},
		{Name: "opt/su", Text: program, Mode: 0o6755}}
	for _, name := range []string{"cat", "env", "id", "ls", "mkdir", "mknod", "sh", "sleep", "stat"} {
		all = append(all, cmdtest.ImageFile{Name: "opt/" + name, Link: "/opt/busybox"})
	}
	return append(all, more...)
}

var imageConfig = map[string]any{"Env": []string{"PATH=/opt", "OF_IMAGE=yes", "HOME=/elsewhere"},
	"Cmd": []string{"cat", "/etc/of-image"}, "WorkingDir": "/etc", "User": "root"}

// TestImage runs programs of an image: the root is the image's, and what is written to it is gone
// (T-567). No program of it has set-id bits, and none can make a device (T-561).
func TestImage(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Write(map[string]string{"a": "text\n"})
	dir := t.TempDir()
	digest := cmdtest.WriteImage(t, dir, imageConfig, busybox(t,
		cmdtest.ImageFile{Name: "etc/of-image", Text: []byte("of the image\n"), Mode: 0o600})...)
	image := "oci:" + dir
	run := func(args ...string) cmdtest.Outcome {
		return h.Jail(append([]string{"run", "--discard", "--image"}, args...)...)
	}
	says(t, run(image), 0, "of the image")
	says(t, run(image, "--", "sh", "-c", "cat a; echo $OF_IMAGE $HOME; exit 7"), 7,
		"text\nyes /home/tool\n")
	says(t, run(image, "--", "uname"), 127, `has no program "uname"`)
	says(t, h.Jail("run", "--no-workspace", "--image", image, "--", "sh", "-c", "echo $PWD"), 0, "/etc\n")
	says(t, h.Jail("sh", "--image", image, "-c", "echo $0 $1", "zero", "one"), 0, "zero one\n")
	// Of the host there is nothing.
	says(t, run(image, "--", "ls", "/usr"), 1, "No such file")
	says(t, run(image, "--", "/usr/bin/env"), 127, "")
	// Later runs need no layers: the image is unpacked.
	blobs, err := filepath.Glob(filepath.Join(dir, "blobs/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range blobs {
		if info, err := os.Stat(path); err == nil && info.Size() > 1<<14 {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("writes", func(t *testing.T) {
		says(t, run(image, "--", "sh", "-c",
			"echo new > /etc/of-image && mkdir /opt/d && cat /etc/of-image"), 0, "new")
		says(t, run(image, "--", "sh", "-c", "cat /etc/of-image; ls /opt/d"), 1, "of the image\n")
		says(t, run(image, "--", "sh", "-c", "echo x > /run/x"), 1, "")
		res := h.ObjectOf("run", "--image", image, "--discard", "--json", "--", "sh", "-c",
			"echo b > b; echo x > /etc/x")
		if res.Changes.Added != 1 || res.Changes.Modified != 0 {
			t.Errorf("changes: %+v", res.Changes)
		}
	})
	t.Run("rights", func(t *testing.T) {
		says(t, run(image, "--", "stat", "-c", "%a", "/opt/su"), 0, "755\n")
		// On newer kernels the proc of a jail has no /proc/mounts (docs/native.md).
		says(t, run(image, "--", "cat", "/proc/self/mounts"), 0, "none / overlay rw,nosuid,nodev")
		says(t, run(image, "--", "mknod", "/etc/null", "c", "1", "3"), 1, "")
	})
	t.Run("record and plan", func(t *testing.T) {
		says(t, run(image, "--id", "recorded"), 0, "")
		o := h.Jail("audit", "show", "--run", h.GlobalID("recorded"), "--type", "run.started", "--json")
		says(t, o, 0, `"image":"`+digest+`"`)
		says(t, o, 0, `"image_name":"`+image+`"`)
		says(t, h.Jail("plan", "--image", image), 0, "image "+digest)
	})
	t.Run("verify", func(t *testing.T) {
		id := cmdtest.Detached(h, "--discard", "--image", image, "--", "sleep", "60")
		cmdtest.Eventually(t, "the run can be verified", func() bool {
			return h.Jail("verify", id).Code == 0
		})
		h.Jail("kill", id)
		h.Jail("wait", id)
	})
}

// TestImageRefused: an image that the policy does not grant, or that is none, runs nothing (T-566).
// TestImage is the control.
func TestImageRefused(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	dir := t.TempDir()
	cmdtest.WriteImage(t, dir, imageConfig, busybox(t)...)
	image := "oci:" + dir
	policy := func(images string) string {
		path := filepath.Join(t.TempDir(), "p.toml")
		text := "policy = 1\nname = \"p\"\nabout = \"p\"\ninclude = [\"base\"]\n[tools]\nimages = [" +
			images + "]\n[syscalls]\ngroups = [\"native\"]\n"
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--policy", policy(`"` + image + `"`), "--no-workspace", "--", "id"}, 0, ""},
		{[]string{"--policy", policy(`"oci:/other"`), "--no-workspace", "--", "id"}, 126, "is not allowed"},
		{[]string{"--policy", policy(``), "--no-workspace", "--", "id"}, 126, "is not allowed"},
		{[]string{"--profile", "default", "--", "id"}, 126, "is not allowed"},
		{[]string{"--profile", "build", "--", "id"}, 126, "is not allowed"},
		{[]string{"--", "nothing"}, 127, `has no program "nothing"`},
		{[]string{"--", "/opt/gone"}, 127, "there is no such file"},
	} {
		says(t, h.Jail(append([]string{"run", "--discard", "--image", image}, c.args...)...), c.code, c.says)
	}
	for name, c := range map[string]struct {
		code int
		says string
	}{"oci:" + dir + "/gone": {127, "no such file"},
		"oci:" + dir + ":tag": {127, "the directory has no image tag"},
		"nobody-has-it":       {127, "no image is called"}, "A/B": {2, "neither a name"},
		"oci:/proc": {126, "there is no such file"}} {
		says(t, h.Jail("run", "--image", name, "--", "id"), c.code, c.says)
	}
	says(t, h.Jail("session", "start", "--image", image), 126, "a session has no image")
}

// TestImageLinks: an image whose root has links where the jail's own directories and files are gets
// nothing of the host through them, and changes nothing there (T-565).
func TestImageLinks(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	outside := t.TempDir()
	kept := filepath.Join(outside, "kept")
	if err := os.WriteFile(kept, []byte("kept"), 0o666); err != nil {
		t.Fatal(err)
	}
	link := func(name, to string) cmdtest.ImageFile { return cmdtest.ImageFile{Name: name, Link: to} }
	dir := t.TempDir()
	cmdtest.WriteImage(t, dir, imageConfig, busybox(t, link("proc", outside), link("dev", outside),
		link("sys", outside), link("tmp", outside), link("workspace", outside), link("etc/passwd", kept),
		link("etc/group", "../../../../../.."+kept), link("etc/hosts", outside+"/made"),
		link("run/jail/init", kept), link("run/jail/machine/meminfo", kept),
		link("run/jail/policy.json", kept), link("home", "/opt"), link("out", outside),
		link("opt/read", kept))...)
	run := func(args ...string) cmdtest.Outcome {
		return h.Jail(append([]string{"run", "--discard", "--image", "oci:" + dir, "--"}, args...)...)
	}
	// The profile has memory at /home/tool.
	says(t, run("id"), 126, "the image has a link or a file above /home/tool")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	cmdtest.WriteImage(t, dir, imageConfig, busybox(t, link("proc", outside), link("dev", outside),
		link("sys", outside), link("tmp", outside), link("workspace", outside), link("etc/passwd", kept),
		link("etc/group", "../../../../../.."+kept), link("etc/hosts", outside+"/made"),
		link("run/jail/init", kept), link("run/jail/machine/meminfo", kept),
		link("run/jail/policy.json", kept), link("out", outside), link("opt/read", kept))...)
	says(t, run("sh", "-c", "cat /etc/passwd && cat /proc/meminfo && echo y > /tmp/x && echo z > z && "+
		"cat /proc/self/comm && ls /dev/null"), 0, "tool:x:")
	says(t, run("ls", "/out"), 1, "No such file")
	if o := run("/opt/read"); o.Code != 126 && o.Code != 127 {
		t.Errorf("a program that is a link out: %+v", o)
	}
	entries, err := os.ReadDir(outside)
	text, textErr := os.ReadFile(kept)
	if err != nil || textErr != nil || len(entries) != 1 || string(text) != "kept" {
		t.Errorf("outside is %v, %q: %v, %v", entries, text, err, textErr)
	}
}

// TestImageNames adds an image by a name, runs it and removes it, with a record of each.
func TestImageNames(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	dir := t.TempDir()
	digest := cmdtest.WriteImage(t, dir, imageConfig, busybox(t)...)
	says(t, h.Jail("image", "add", "small", "oci:"+dir), 0, "added small: "+digest)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	says(t, h.Jail("run", "--discard", "--image", "small", "--", "id"), 0, "uid=")
	var all []images.About
	if err := json.Unmarshal([]byte(h.Jail("image", "list", "--json").Out), &all); err != nil ||
		len(all) != 1 || all[0].Name != "small" || all[0].Digest != digest {
		t.Errorf("%+v, %v", all, err)
	}
	says(t, h.Jail("image", "add", "other", "oci:"+dir), 127, "no such file")
	says(t, h.Jail("image", "add", "other", "example.com/a/b:tag"), 2, "a digest is wanted")
	says(t, h.Jail("image", "remove", "small"), 0, "removed small "+digest)
	says(t, h.Jail("image", "remove", "small"), 127, "no image is called")
	says(t, h.Jail("run", "--discard", "--image", "small", "--", "id"), 127, "no image is called")
	said := h.Jail("audit", "query", "--type", "tool.installed", "--json").Out +
		h.Jail("audit", "query", "--type", "tool.removed", "--json").Out
	for _, want := range []string{`"bundle":"image:small"`, `"digest":"` + digest + `"`, `"bundle":"image:other"`} {
		if !strings.Contains(said, want) {
			t.Errorf("no %s on record in\n%s", want, said)
		}
	}
}

// image: the root of a run of a user's own daemon is that of an image too, and the user's.
func (u *rootlessUser) image(t *testing.T) {
	dir := u.workspace(t)
	made := filepath.Join(u.home, "image")
	cmdtest.WriteImage(t, made, imageConfig, busybox(t)...)
	run := func(script string) (int, string, string) {
		return u.run(t, dir, "jail", "run", "--discard", "--image", "oci:"+made, "--", "sh", "-c", script)
	}
	code, out, said := run("cat a && echo x > /opt/x && cat /opt/x && mkdir /opt/d && id")
	if code != 0 || !strings.Contains(out, "x\nuid=0") {
		t.Errorf("exit code %d, %q, %q", code, out, said)
	}
	if code, out, said = run("cat /opt/x"); code != 1 {
		t.Errorf("a later run: exit code %d, %q, %q", code, out, said)
	}
}
