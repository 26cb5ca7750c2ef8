package gitreader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/jail/confine"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/gitrepo"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/built"
	"github.com/jail-sandbox/jail/jail/launch"
)

const testUID = 0x7ffb0000

// program is the program of a reader, built once without cgo as the daemon is.
var program struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if program.dir != "" {
		os.RemoveAll(program.dir)
	}
	os.Exit(code)
}

func readerProgram(t *testing.T) string {
	t.Helper()
	program.once.Do(func() {
		if program.dir, program.err = os.MkdirTemp("", "git-reader-"); program.err != nil {
			return
		}
		// The reader has an id of its own.
		if program.err = os.Chmod(program.dir, 0o755); program.err != nil {
			return
		}
		program.err = built.Program(filepath.Join(program.dir, "reader"),
			[]string{"CGO_ENABLED=0"}, "./jail/gitreader/testdata/reader")
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return filepath.Join(program.dir, "reader")
}

func filter(t *testing.T) []byte {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an id of its own needs root")
	}
	compiled, err := launch.Launcher{Shim: jailtest.Binary(t, jailtest.Shim)}.CompileFilter(
		t.Context(), confine.ReaderFilter())
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// A reader opens, makes, connects to, executes and signals nothing. The control does all of it.
func TestReaderHasNoRights(t *testing.T) {
	allowed := filter(t)
	for mode, want := range map[string]int{"confined": 0, "free": 6} {
		conn, theirs, err := control.Pair("victim")
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(readerProgram(t), mode)
		cmd.Env, cmd.ExtraFiles = []string{"DIR=" + t.TempDir()}, []*os.File{theirs}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		if err := conn.Send(setup{UID: testUID, Filter: allowed}); err != nil {
			t.Fatal(err)
		}
		var q question
		if _, err := conn.Receive(&q); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		var did []string
		if err := json.Unmarshal([]byte(q.Failed), &did); err != nil || len(did) != want {
			t.Errorf("%s: it did %v (%v)", mode, did, err)
		}
	}
}

// dirFiles are two git directories on the disk.
type dirFiles [2]string

func (d dirFiles) Open(side gitrepo.Side, path string) (*os.File, int64, error) {
	full := filepath.Join(d[side], path)
	info, err := os.Stat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, fs.ErrNotExist
	case err != nil:
		return nil, 0, err
	case info.IsDir():
		return nil, 0, gitrepo.ErrDirectory
	}
	f, err := os.Open(full)
	return f, info.Size(), err
}

func (d dirFiles) List(side gitrepo.Side, path string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(d[side], path))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// A confined reader says the same as one in this process, of loose objects and of packs.
func TestReader(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	spec := Spec{Exe: readerProgram(t), UID: testUID, Filter: filter(t)}
	base := t.TempDir()
	git := func(script string) {
		t.Helper()
		const g = "g='git -c user.name=x -c user.email=x@example.com -c init.defaultBranch=main'\n"
		cmd := exec.Command("sh", "-ec", g+script)
		cmd.Dir = base
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	git(`$g init -q real; cd real; seq 1 999 >a; $g add a; $g commit -qm one; cd ..
		cp -a real shadow; cd shadow; for i in 1 2 3; do echo $i >>a; $g commit -qam more$i; done
		$g branch x HEAD^; $g gc -q; $g commit -q --allow-empty -m last`)
	files := dirFiles{base + "/real/.git", base + "/shadow/.git"}
	want, err := gitrepo.Explain(t.Context(), files)
	if err != nil || len(want.Refs) != 2 {
		t.Fatal(want, err)
	}
	got, err := spec.Explain(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("it says %v, not %v", got, want)
	}
}

// A reader that has been taken over gets no file beside the repository, and its words are bounded.
func TestTakenOverReader(t *testing.T) {
	for _, path := range []string{"", ".", "..", "../x", "a/../../x", "/etc/passwd", "a//b",
		"a\x00b"} {
		_, err := converse(t, question{Open: &place{gitrepo.Real, []byte(path)}})
		if !errors.Is(err, errPlace) {
			t.Errorf("open %q: %v", path, err)
		}
		_, err = converse(t, question{List: &place{gitrepo.Shadow, []byte(path)}})
		if !errors.Is(err, errPlace) {
			t.Errorf("list %q: %v", path, err)
		}
	}
	if _, err := converse(t, question{Open: &place{7, []byte("HEAD")}}); !errors.Is(err, errPlace) {
		t.Errorf("another side: %v", err)
	}
	evil := gitrepo.Report{Path: "x", Lines: []string{"\x1b[31m"}, NotUnderstood: "\x1b" +
		strings.Repeat("x", 9999)}
	for range 1000 {
		evil.Refs = append(evil.Refs, gitrepo.RefChange{Ref: "\x1b]0;x\a",
			Titles: []string{"\u202e", "2", "3", "4"}})
	}
	got, err := converse(t, question{Done: &evil})
	if err != nil || len(got.Refs) > 100 || len(got.Refs[0].Titles) > 3 || got.Path != "" ||
		got.Lines != nil || strings.ContainsAny(fmt.Sprint(got), "\x1b\a\u202e") ||
		len(got.NotUnderstood) > 310 {
		t.Errorf("it is %.300q, %v", fmt.Sprint(got), err)
	}
}

// What a reader took is a branch and its objects, or nothing is.
func TestTakenOverTaker(t *testing.T) {
	const name = "0123456789012345678901234567890123456789"
	for what, taken := range map[string]gitrepo.Taken{
		"another place": {Ref: "refs/heads/../../config", After: name},
		"no branch":     {Ref: "HEAD", After: name},
		"a remote":      {Ref: "refs/remotes/x", After: name},
		"a lock":        {Ref: "refs/heads/x.lock", After: name},
		"no name":       {Ref: "refs/heads/x", After: "x\nref: y"},
		"no object": {Ref: "refs/heads/x", After: name,
			Objects: []gitrepo.TakenObject{{Name: "../../hooks/x", SHA256: "x"}}},
		"no content": {Ref: "refs/heads/x", After: name,
			Objects: []gitrepo.TakenObject{{Name: name}}},
		"control": {Ref: "refs/heads/x", After: name,
			Objects: []gitrepo.TakenObject{{Name: name, SHA256: "x"}}},
		"an escape code": {Ref: "refs/heads/x", After: name, Line: "\x1b"},
	} {
		if _, err := converse(t, question{Taken: &taken}); (err == nil) != (what == "control") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// converse says one thing as a reader.
func converse(t *testing.T, q question) (gitrepo.Report, error) {
	t.Helper()
	ours, theirs, err := control.Pair("reader")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	reader := control.New(theirs)
	ended := make(chan bool)
	go func() {
		defer close(ended)
		defer reader.Close()
		var s setup
		if _, err := reader.Receive(&s); err == nil {
			_ = reader.Send(q)
		}
	}()
	defer func() { <-ended }()
	last, err := (&parts{}).listen(ours, dirFiles{t.TempDir(), t.TempDir()}, setup{})
	if last.Done == nil {
		return gitrepo.Report{}, err
	}
	return last.Done.Bounded(), err
}

// A reader that is killed is an error, and not an empty report.
func TestKilledReader(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	spec := Spec{Exe: readerProgram(t), UID: testUID, Filter: filter(t)}
	if _, err := spec.Explain(ctx, dirFiles{t.TempDir(), t.TempDir()}); err == nil {
		t.Error("no error")
	}
	spec.Filter = nil
	if _, err := spec.Explain(t.Context(), dirFiles{t.TempDir(), t.TempDir()}); err == nil ||
		!strings.Contains(err.Error(), "no filter") {
		t.Errorf("without a filter: %v", err)
	}
}
