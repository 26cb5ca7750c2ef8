package run_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// Programs that keep the attributes of a file when they copy it do so as on a file system without
// extended attributes, programs that would move the pages of a pipe read and write instead, and a
// program that is built with AddressSanitizer ends as it would outside.
func TestNativeCopies(t *testing.T) {
	cmdtest.Have(t, "/usr/bin/python3", "/usr/bin/gcc")
	h := cmdtest.New(t)
	h.Files(map[string]string{"a": "text\n"})
	for name, script := range map[string]string{
		"python": `import os, shutil
shutil.copy2("a", "b")
shutil.move("b", "/tmp/b")
os.mkdir("/tmp/d")
shutil.move("/tmp/b", "/tmp/d")
shutil.copytree("/tmp/d", "c")
print(open("c/b").read())`,
		"cp": "cp -a a d && cp --preserve=all d e && mv e /tmp/e && cat /tmp/e",
		// Reads the rest of the pipe by splice(2), which falls back to read(2).
		"grep": "seq 100000 | grep 5 >/dev/null && echo text",
		"sanitizer": `echo 'int puts(const char *); int main(void) { puts("text"); }' > s.c &&
			gcc -fsanitize=address -o s s.c && ./s`,
	} {
		args := []string{"run", "--profile", "build", "--discard", "--quiet", "--", "sh", "-c", script}
		if name == "python" {
			args = append(args[:len(args)-3], "/usr/bin/python3", "-c", script)
		}
		o := h.Jail(args...)
		h.Wants(o, 0, "")
		if o.Out != "text\n" && o.Out != "text\n\n" {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// Programs make named pipes and sockets in the workspace, and a commit leaves them there.
func TestNativePipesInTheWorkspace(t *testing.T) {
	cmdtest.Have(t, "/usr/bin/python3")
	h := cmdtest.New(t)
	d := h.Daemon()
	for _, profile := range []string{"build", "python-native"} {
		o := h.Jail("run", "--profile", profile, "--id", profile, "--keep", "--quiet", "--",
			"/usr/bin/python3", "-c", `import os, socket
os.mkfifo("pipe")
s = socket.socket(socket.AF_UNIX); s.bind("sock"); s.listen()
socket.socket(socket.AF_UNIX).connect("sock")
open("file", "w").write("text\n")`)
		h.Wants(o, 0, "")
		h.Wants(h.Jail("commit", profile), 0, "")
		if got := cmdtest.NamesIn(h.Work); len(got) != 1 || got[0] != "file" {
			t.Errorf("%s: the directory has %q", profile, got)
		}
		h.Discard(profile)
		if err := os.Remove(filepath.Join(h.Work, "file")); err != nil {
			t.Error(err)
		}
	}
	d.Stop()
}
