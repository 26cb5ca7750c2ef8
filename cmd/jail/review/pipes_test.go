package review_test

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

const (
	// servesPipes makes a file, a named pipe and a socket in the workspace, and serves the socket.
	servesPipes = `import os, socket
os.mkfifo("pipe")
s = socket.socket(socket.AF_UNIX); s.bind("sock"); s.listen()
open("file", "w").write("text\n")
print("ready", flush=True)
while True:
    c, _ = s.accept(); c.sendall(b"served\n"); c.close()`
	connects = `import socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1]); print(s.recv(10).decode(), end="")
except OSError as e:
    print(e.strerror)`
)

// prints checks that a command succeeds and what it prints.
func prints(t *testing.T, o cmdtest.Outcome, pattern string) {
	t.Helper()
	if o.Code != 0 || !regexp.MustCompile(pattern).MatchString(o.Out) {
		t.Errorf("%+v, want %s", o, pattern)
	}
}

// Named pipes and sockets of the workspace serve the invocations of their session and nobody else:
// none comes into the real directory, and another session of the same directory does not have them.
// A socket of the host in the real directory serves none.
// Reviews of the open and of the ended session say so, and commit what else there is.
func TestPipesOfASession(t *testing.T) {
	cmdtest.Have(t, "/usr/bin/python3")
	h := cmdtest.NewNative(t)
	d := h.Daemon()
	id, other := h.Session("--profile", "build"), h.Session("--profile", "build")
	isReal := func(names ...string) {
		t.Helper()
		if got := cmdtest.NamesIn(h.Work); !slices.Equal(got, names) {
			t.Errorf("the directory has %q, want %q", got, names)
		}
	}
	theirs, err := net.Listen("unix", filepath.Join(h.Work, "theirs"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(h.Work, "theirs"), 0o777); err != nil {
		t.Fatal(err)
	}
	prints(t, h.Exec(id, "--", "python3", "-c", connects, "theirs"), "^Connection refused\n")
	theirs.Close()
	h.Wants(h.Exec(id, "--background", "--id", "server", "--", "python3", "-c", servesPipes), 0, "")
	cmdtest.Eventually(t, "the server serves", func() bool {
		return h.Jail("logs", "server").Out == "ready\n"
	})
	for session, want := range map[string]string{id: "served\n",
		other: "No such file or directory\n"} {
		if o := h.Exec(session, "--", "python3", "-c", connects, "sock"); o.Code != 0 || o.Out != want {
			t.Errorf("connect in %s: %+v, want %q", session, o, want)
		}
	}
	isReal()
	prints(t, h.Jail("diff", id), `pipe(?s:.*)a fifo is never committed(?s:.*)a socket is never committed`)
	prints(t, h.Jail("commit", id),
		`file(?s:.*)held back: pipe  \(a fifo is never committed\)(?s:.*)held back: sock  (?s:.*)committed 1 change of`)
	isReal("file")
	// Nothing else is left to commit, now and when the session has ended.
	nothing := func() {
		t.Helper()
		o := h.Jail("commit", id)
		prints(t, o, `held back: pipe(?s:.*)committed 0 changes of`)
		if strings.Contains(o.Err, "protected") {
			t.Errorf("%+v", o)
		}
		h.Wants(h.Jail("commit", id, "pipe"), 126,
			"nothing of this is ever committed: pipe: a fifo is never committed")
	}
	nothing()
	prints(t, h.Exec(id, "--", "python3", "-c", connects, "sock"), "served")
	h.Wants(h.Jail("discard", id, "sock"), 0, "")
	if o := h.Jail("diff", "--name-only", id); strings.Contains(o.Out, "sock") {
		t.Errorf("a discarded socket is still a change: %+v", o)
	}
	h.StopSession(id, 1, "--keep")
	nothing()
	h.StopSession(other, 0)
	h.Discard(id)
	isReal("file")
	d.Stop()
}

// A run or session that leaves nothing but named pipes and sockets has nothing to commit, and its
// --commit, its commit = "auto" and a commit afterwards are no failures.
func TestPipesAlone(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	for _, fate := range []string{"--keep", "--commit"} {
		h.Wants(h.Jail("run", "--profile", "build", "--id", "r"+fate, fate, "--", "mkfifo", "pipe"),
			0, "")
		prints(t, h.Jail("commit", "r"+fate), `held back: pipe(?s:.*)committed 0 changes of`)
		h.Wants(h.Jail("revert", "r"+fate), 126, "no commit")
		h.Wants(h.Jail("commit", "--propose", "r"+fate), 2, "nothing of this is ever committed")
		h.Discard("r" + fate)
	}
	// What a person may take is named, not the pipe before it.
	h.Wants(h.Jail("run", "--profile", "build", "--id", "both", "--quiet", "--", "sh", "-c",
		"mkfifo a; ln -s /etc out"), 0, "")
	h.Wants(h.Jail("commit", "both"), 126, "protected names need an explicit yes: out: ")
	h.Discard("both")
	id := h.Session("--policy", autoPolicy(h))
	r := h.ObjectOf("session", "exec", "--json", id, "--", "sh", "-c", "mkfifo pipe; echo text > file")
	if r.Commit == nil || r.Commit.ID == "" || r.Commit.Error != "" || len(r.Commit.Left) != 1 ||
		r.Commit.Left[0].Path != "pipe" || !r.Commit.Left[0].Never {
		t.Errorf("commit %+v", r.Commit)
	}
	if got := cmdtest.NamesIn(h.Work); !slices.Equal(got, []string{"file"}) {
		t.Errorf("the directory has %q", got)
	}
	h.StopSession(id, 1)
	h.Discard(id)
}
