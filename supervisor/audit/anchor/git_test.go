package anchor

import (
	"context"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

func runGit(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(gitPrograms[0], args...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@x", "GIT_COMMITTER_NAME=x",
		"GIT_COMMITTER_EMAIL=x@x")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func bare(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "anchors.git")
	runGit(t, "init", "--quiet", "--bare", dir)
	return dir
}

// has holds the heads in a repository against the log.
func has(t *testing.T, log, dir string, n int) {
	t.Helper()
	heads, known, err := ReadRepository(t.Context(), dir)
	if err != nil || !known {
		t.Fatalf("%v, %v", known, err)
	}
	fits(t, log, heads, n)
}

func origin(t *testing.T, log string) string {
	t.Helper()
	h, err := audit.ReadHead(log)
	if err != nil {
		t.Fatal(err)
	}
	return h.Origin
}

func keeperOf(t *testing.T, log, to, more string) Keeper {
	t.Helper()
	s, err := settings(t, "[[anchor]]\nname = \"history\"\nto = \""+to+"\"\n"+more)
	if err != nil {
		t.Fatal(err)
	}
	return Keeper{Log: log, State: filepath.Join(t.TempDir(), "state"), Targets: s.Anchors}
}

func once(t *testing.T, k Keeper) {
	t.Helper()
	if all, err := k.Once(t.Context()); err != nil {
		t.Fatalf("%+v, %v", all, err)
	}
}

func refused(t *testing.T, k Keeper, word string) {
	t.Helper()
	if all, err := k.Once(t.Context()); err == nil || !strings.Contains(err.Error(), word) ||
		strings.Contains(err.Error(), "\n") || all[0].Error == "" {
		t.Errorf("want %q: %+v, %v", word, all, err)
	}
}

// TestGit: a repository of this host gets a commit for each head, each on top of the last, with no
// hook run and no settings of the caller's.
func TestGit(t *testing.T) {
	log, l := newLog(t)
	dir, spoor := bare(t), filepath.Join(t.TempDir(), "spoor")
	for _, hook := range []string{"reference-transaction", "update", "post-update", "pre-auto-gc"} {
		if err := os.WriteFile(filepath.Join(dir, "hooks", hook), []byte("#!/bin/sh\ntouch "+spoor+
			"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"GIT_DIR": "/nonexistent",
		"GIT_OBJECT_DIRECTORY": "/nonexistent", "GIT_CONFIG_COUNT": "x"} {
		t.Setenv(name, value)
	}
	k := keeperOf(t, log, "git+file://"+dir, "")
	for range 3 {
		put(t, l)
		once(t, k)
		// What is not new is not sent.
		once(t, k)
	}
	// And not sent again by who does not know that it was.
	if err := os.RemoveAll(k.State); err != nil {
		t.Fatal(err)
	}
	once(t, k)
	has(t, log, dir, 3)
	for _, name := range []string{"GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_CONFIG_COUNT"} {
		os.Unsetenv(name)
	}
	if n := runGit(t, "--git-dir", dir, "rev-list", "--count", "--first-parent",
		origin(t, log)); n != "3" {
		t.Errorf("%s commits in a row", n)
	}
	if _, err := os.Stat(spoor); err == nil {
		t.Error("a hook of the repository ran")
	}
	// The control: the hook is one that git runs.
	runGit(t, "--git-dir", dir, "update-ref", "refs/heads/x",
		runGit(t, "--git-dir", dir, "rev-parse", origin(t, log)))
	if _, err := os.Stat(spoor); err != nil {
		t.Error("the hook does not run where it should: the test shows nothing")
	}
	runGit(t, "--git-dir", dir, "fsck", "--strict", "--no-dangling")
}

// TestGitPutBack: a log with fewer records than the last commit has is not taken, so that this is
// seen; what is there stays.
func TestGitPutBack(t *testing.T) {
	log, l := newLog(t)
	dir := bare(t)
	k := keeperOf(t, log, "git+file://"+dir, "")
	once(t, k)
	before := copyOf(t, log)
	put(t, l)
	put(t, l)
	once(t, k)
	refused(t, Keeper{Log: before, State: t.TempDir(), Targets: k.Targets}, "cut or put back")
	put(t, l)
	once(t, k)
	has(t, log, dir, 3)
}

// TestGitNotOurs: a repository that somebody else can change is not worked in: its settings would
// be theirs.
func TestGitNotOurs(t *testing.T) {
	log, _ := newLog(t)
	dir := bare(t)
	k := keeperOf(t, log, "git+file://"+dir, "")
	if err := os.Chmod(filepath.Join(dir, "config"), 0o666); err != nil {
		t.Fatal(err)
	}
	refused(t, k, "written by others")
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		refused(t, k, "written by others")
	}
	refused(t, keeperOf(t, log, "git+file:///nonexistent/x.git", ""), "no such file")
	refused(t, keeperOf(t, log, "git+file://"+t.TempDir(), ""), "no bare repository")
}

// gitServer is git's own, with a token to get in.
func gitServer(t *testing.T, dir, token string) (address string, down *atomic.Bool) {
	t.Helper()
	down = new(atomic.Bool)
	backend := filepath.Join(runGit(t, "--exec-path"), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Fatalf("git came without the server that the test needs: %v", err)
	}
	runGit(t, "--git-dir", dir, "config", "http.receivepack", "true")
	runGit(t, "--git-dir", dir, "config", "receive.denyNonFastForwards", "true")
	h := &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(dir),
		"GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case token != "" && r.Header.Get("Authorization") != "Bearer "+token:
			w.WriteHeader(http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + "/" + filepath.Base(dir), down
}

// TestGitRemote: another host's repository gets them by git's own means; while it is away that is
// said, then it gets the newest; one that was put back is not taken for a beginning.
func TestGitRemote(t *testing.T) {
	log, l := newLog(t)
	dir := bare(t)
	address, down := gitServer(t, dir, "")
	k := keeperOf(t, log, "git+"+address, "")
	once(t, k)
	put(t, l)
	down.Store(true)
	refused(t, k, "503")
	put(t, l)
	down.Store(false)
	once(t, k)
	has(t, log, dir, 2)
	first := runGit(t, "--git-dir", dir, "rev-list", "--max-parents=0", origin(t, log))
	// Another who sends to the same repository, as jail audit anchor of an administrator does.
	other := k
	other.State = filepath.Join(t.TempDir(), "other")
	put(t, l)
	once(t, other)
	put(t, l)
	once(t, k)
	has(t, log, dir, 4)

	runGit(t, "--git-dir", dir, "update-ref", "refs/heads/"+origin(t, log), first)
	put(t, l)
	refused(t, k, "put back")
	runGit(t, "--git-dir", dir, "update-ref", "-d", "refs/heads/"+origin(t, log))
	refused(t, k, "put back")
}

// TestGitToken: it gets to the server, and neither among the arguments of a program nor into what
// is said.
func TestGitToken(t *testing.T) {
	log, _ := newLog(t)
	dir := bare(t)
	address, _ := gitServer(t, dir, "s3cret")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := keeperOf(t, log, "git+"+address, "")
	refused(t, k, "403")
	k.Targets[0].Token = token
	once(t, k)
	has(t, log, dir, 1)
	if err := os.WriteFile(token, []byte("wr0ng"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := repository{dir: dir, remote: address, token: token}.git(t.Context(), nil, "ls-remote",
		address)
	if err == nil || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("%v", err)
	}
}

// TestGitHangs: a server that does not answer ends with the time for one try, and leaves no program
// behind.
func TestGitHangs(t *testing.T) {
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		<-end
	}))
	defer server.Close()
	defer close(end)
	ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer stop()
	dir := bare(t)
	if _, err := (repository{dir: dir, remote: server.URL}).git(ctx, nil, "ls-remote",
		server.URL); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("%v", err)
	}
}

// TestGitAddresses: what is none is refused when the settings are read.
func TestGitAddresses(t *testing.T) {
	for _, bad := range []string{"git+file://host/x.git", "git+file:x.git", "git+ext::sh -c id",
		"git+ssh://-oProxyCommand=id/x", "git+ssh://u:p@host/x.git", "git+https://u@host/x.git",
		"git+https:///x.git", "git+https://host", "git+ftp://host/x.git", "git+://host/x", "git:x",
		"git+file:///x.git?a=b"} {
		if s, err := settings(t, "[[anchor]]\nname = \"a\"\nto = \""+bad+"\"\n"); err == nil ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %+v, %v", bad, s, err)
		}
	}
	for _, good := range []string{"git+ssh://anchors@git.example.com/jail.git",
		"git+https://git.example.com:8443/jail.git", "git://git.example.com/jail.git",
		"git+file:///srv/jail.git"} {
		if _, err := settings(t, "[[anchor]]\nname = \"a\"\nto = \""+good+"\"\n"); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}
