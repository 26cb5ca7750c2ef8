package review_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// TestLiveReview: an open session is shown, committed and reverted between and during its
// invocations, and goes on afterwards.
func TestLiveReview(t *testing.T) {
	h := cmdtest.NewNative(t)
	d := h.Daemon()
	h.Files(map[string]string{"mod": "0\n", "gone": "0\n"})
	id := h.Session("--id", "s", "--profile", "build")
	h.Wants(h.Exec(id, "--", "sh", "-c", "echo 1 >mod; rm gone; mkdir dir; echo 1 >dir/f"), 0, "")
	o := h.Jail("diff", id)
	if o.Code != 0 || !strings.Contains(o.Out, "+1\n") || strings.Contains(o.Out, "cut off") ||
		!strings.Contains(o.Out, "4 changes (+2 ~1 -1)") ||
		!strings.Contains(o.Out, "it is still active") {
		t.Errorf("diff of an open session: %+v", o)
	}
	if o := h.Jail("workspaces"); strings.Contains(o.Out, "cut off") {
		t.Errorf("%s", o.Out)
	}
	h.Wants(h.Jail("commit", id), 0, "")
	realFile(h, "mod", "1\n")
	realFile(h, "dir/f", "1\n")
	if o := h.Jail("diff", id); !strings.Contains(o.Out, "0 changes") {
		t.Errorf("diff after the commit: %+v", o)
	}
	h.Wants(h.Exec(id, "--", "cat", "mod", "dir/f"), 0, "")

	// While an invocation runs.
	r := h.LiveWith(h.Command("session", "exec", id, "--id", "e1", "--", "sh", "-c",
		"while read l; do echo got $l; done"), "e1")
	h.Wants(h.Exec(id, "--", "sh", "-c", "echo 2 >mod; rm dir/f; echo 2 >new"), 0, "")
	h.Wants(h.Jail("commit", id, "mod"), 0, "")
	realFile(h, "mod", "2\n")
	realFile(h, "dir/f", "1\n")
	h.Wants(h.Jail("revert", id), 0, "")
	realFile(h, "mod", "1\n")
	h.Wants(h.Jail("commit", id), 0, "")
	realFile(h, "mod", "2\n")
	if _, err := os.Lstat(filepath.Join(h.Work, "dir/f")); err == nil {
		t.Error("dir/f is still there")
	}
	r.In.Close()
	h.Wants(r.Wait(), 0, "")

	// A person changes what the session changes again.
	h.Files(map[string]string{"mod": "person\n"})
	h.Wants(h.Exec(id, "--", "sh", "-c", "echo 3 >mod; echo 3 >new"), 0, "")
	h.Wants(h.Jail("commit", id), 126, "mod: the real file was changed since the last commit")
	realFile(h, "mod", "person\n")
	h.Wants(h.Jail("commit", id, "new"), 0, "")
	realFile(h, "new", "3\n")
	h.Wants(h.Jail("commit", "--theirs", id), 0, "")
	realFile(h, "mod", "3\n")

	// What was committed can be reverted when the session has ended.
	if r := h.ObjectOf("session", "stop", "--json", id); r.Workspace != "committed" ||
		r.Error != nil {
		t.Errorf("stop: %+v %v", r, r.Error)
	}
	h.Wants(h.Jail("revert", id), 0, "")
	realFile(h, "mod", "person\n")
	h.Discard(id)
	d.Stop()
}

// realFile checks the whole content of a file of the real directory.
func realFile(h *cmdtest.Host, name, want string) {
	h.T.Helper()
	if got, err := os.ReadFile(filepath.Join(h.Work, name)); err != nil || string(got) != want {
		h.T.Errorf("%s: %q, %v, want %q", name, got, err, want)
	}
}

// TestLiveReviewOfARun: a run is reviewed while it runs, with a program of the host and with the
// shell in WebAssembly, and writes the same file again afterwards.
func TestLiveReviewOfARun(t *testing.T) {
	reviewsRun(cmdtest.NewNative(t), "run", "--profile", "build", "--id", "live", "--keep", "--",
		"sh", "-c")
}

func TestLiveReviewOfARunOfModules(t *testing.T) {
	reviewsRun(cmdtest.New(t), "sh", "--id", "live", "--keep", "-c")
}

// reviewsRun reviews the run live, of a shell that args start.
func reviewsRun(h *cmdtest.Host, args ...string) {
	t := h.T
	t.Helper()
	const id = "live"
	d := h.Daemon()
	r := h.LiveWith(h.Command(append(args,
		"while read l; do echo $l >said; echo got $l; done")...), id)
	if o := h.Jail("diff", id); o.Code != 0 || !strings.Contains(o.Out, "+hello\n") ||
		!strings.Contains(o.Out, "it is still active") || strings.Contains(o.Out, "cut off") {
		t.Errorf("diff: %+v", o)
	}
	h.Wants(h.Jail("commit", id), 0, "")
	realFile(h, "said", "hello\n")
	r.Says("again")
	if o := h.Jail("diff", "--stat", id); !strings.Contains(o.Out, "1 change (+0 ~1 -0)") {
		t.Errorf("diff: %+v", o)
	}
	h.Wants(h.Jail("commit", id), 0, "")
	realFile(h, "said", "again\n")
	h.Wants(h.Jail("revert", id), 0, "")
	realFile(h, "said", "hello\n")
	h.Files(map[string]string{"said": "person\n"})
	r.Says("third")
	h.Wants(h.Jail("commit", id), 126, "said: the real file was changed since the last commit")
	realFile(h, "said", "person\n")
	r.In.Close()
	h.Wants(r.Wait(), 0, "")
	// The end of the run changes nothing of that.
	h.Wants(h.Jail("commit", id), 126, "said: the real file was changed since the last commit")
	h.Wants(h.Jail("commit", "--theirs", id), 0, "")
	realFile(h, "said", "third\n")
	h.Discard(id)
	if err := os.Remove(filepath.Join(h.Work, "said")); err != nil {
		t.Error(err)
	}
	d.Stop()
}

// TestLiveReviewByTwo: an editor outside and a tool inside write the same thousand files while what
// the tool did is committed again and again. A file that the editor wrote has what it wrote last,
// and is a conflict by name unless the editor replaced what the tool wrote last; a file of the
// tool's alone has what that wrote.
func TestLiveReviewByTwo(t *testing.T) {
	const files, passes = 1000, 3
	h := cmdtest.NewNative(t)
	d := h.Daemon()
	all := map[string]string{}
	for i := range files {
		all[fmt.Sprintf("f%d", i)] = "0\n"
	}
	h.Files(all)
	id := h.Session("--id", "two", "--profile", "build", "--keep", "--limit",
		"workspace_files=10000")
	tool := h.LiveWith(h.Command("session", "exec", id, "--id", "tool", "--", "sh", "-c",
		`echo got hello; read l; while read pass; do
			i=0; while [ $i -lt 1000 ]; do echo tool $pass >f$i; i=$((i+1)); done
			echo got $pass
		done`), "tool")
	person, replaced := map[string]string{}, map[string]string{}
	var wait sync.WaitGroup
	stop := make(chan struct{})
	wait.Go(func() {
		// As editors do it: the whole file anew, by a rename. An exchange says what was replaced.
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			name, text := fmt.Sprintf("f%d", rand.IntN(files)), fmt.Sprintf("person %d\n", n)
			temp := filepath.Join(h.Root, "edited")
			err := errors.Join(os.WriteFile(temp, []byte(text), 0o644),
				unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, filepath.Join(h.Work, name),
					unix.RENAME_EXCHANGE))
			old, readErr := os.ReadFile(temp)
			if err := errors.Join(err, readErr, os.Remove(temp)); err != nil {
				t.Error(err)
				return
			}
			if string(old) != person[name] {
				replaced[name] = string(old)
			}
			person[name] = text
			if len(person) > files/2 {
				return
			}
		}
	})
	review := func() (conflicts map[string]bool) {
		t.Helper()
		conflicts = map[string]bool{}
		args := []string{"commit", id, "--"}
		o := h.Jail("diff", "--json", id)
		lines := bufio.NewScanner(strings.NewReader(o.Out))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var l api.ReviewLine
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				t.Fatalf("diff: %v: %+v", err, o)
			}
			if l.Change == nil {
				continue
			}
			if path := string(l.Change.Path); l.Change.Conflict != "" {
				conflicts[path] = true
			} else {
				args = append(args, path)
			}
		}
		if len(args) > 3 {
			// The editor may be faster: that is a conflict, and nothing is written.
			if o := h.Jail(args...); o.Code != 0 && o.Code != 126 {
				t.Errorf("commit: %+v", o)
			}
		}
		return conflicts
	}
	for pass := range passes {
		if _, err := fmt.Fprintln(tool.In, pass); err != nil {
			t.Fatal(err)
		}
		review()
		if line, err := tool.Out.ReadString('\n'); line != fmt.Sprintf("got %d\n", pass) {
			t.Fatalf("the tool says %q, %v", line, err)
		}
		review()
	}
	close(stop)
	wait.Wait()
	review()
	conflicts := review()
	for i := range files {
		name := fmt.Sprintf("f%d", i)
		got, err := os.ReadFile(filepath.Join(h.Work, name))
		theirs, edited := person[name]
		last := fmt.Sprintf("tool %d\n", passes-1)
		switch {
		case err != nil:
			t.Error(err)
		case edited && string(got) != theirs:
			t.Errorf("%s: the editor's %q is lost: %q", name, theirs, got)
		case edited && !conflicts[name] && replaced[name] != last:
			t.Errorf("%s: the editor replaced %q, and the tool's last is no conflict", name,
				replaced[name])
		case !edited && (string(got) != last || conflicts[name]):
			t.Errorf("%s: the tool's is lost: %q, conflict %v", name, got, conflicts[name])
		}
	}
	if len(person) == 0 || len(conflicts) == 0 {
		t.Errorf("%d files were edited, %d are conflicts", len(person), len(conflicts))
	}
	tool.In.Close()
	h.Wants(tool.Wait(), 0, "")
	if o := h.Exec(id, "--", "sh", "-c", "cat f* | sort -u"); o.Out != fmt.Sprintf("tool %d\n",
		passes-1) {
		t.Errorf("the tool sees %.300q", o.Out)
	}
	h.StopSession(id, int64(len(conflicts)))
	h.Discard(id)
	d.Stop()
}

// TestLiveCommitKilled: the daemon, a shim or a first process is killed at some moment of the
// commit of an open session, each alone or all at once. The real directory is old or new, the log
// says which, and the jails of the session go on or have ended: none stays frozen. JAIL_TEST_LONG=1
// does so 500 times.
func TestLiveCommitKilled(t *testing.T) {
	const files = 200
	rounds := 12
	if os.Getenv("JAIL_TEST_LONG") != "" {
		rounds = cmdtest.Number(t, "JAIL_TEST_ROUNDS", 500)
	}
	h := cmdtest.NewNative(t)
	dir := filepath.Join(h.Work, "d")
	all := map[string]string{}
	for i := range files {
		all[fmt.Sprintf("d/f%d", i)] = "old\n"
	}
	ends := map[string]int{}
	for round := range rounds {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		h.Files(all)
		d := h.Daemon()
		id := fmt.Sprintf("s%d", round)
		h.Session("--id", id, "--profile", "build")
		global := h.GlobalID(id)
		tool := h.LiveWith(h.Command("session", "exec", id, "--id", "e"+id, "--", "sh", "-c",
			"for f in d/*; do echo new >$f; done; while read l; do echo got $l; done"), "e"+id)
		commit := h.Command("commit", id)
		if err := commit.Start(); err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() {
			commit.Wait()
			close(over)
		}()
		// Of the invocation and of the session.
		inits := []int{tool.InitPID(), (&cmdtest.LiveRun{H: h, ID: id}).InitPID()}
		shims := []int{cmdtest.ParentOf(t, inits[0]), cmdtest.ParentOf(t, inits[1])}
		victim := []string{"daemon", "shim", "first process", "shim of the session",
			"first process of the session", "all"}[round%6]
		// Every victim comes with every moment.
		killAt(t, dir, files, round+round/6, over)
		switch victim {
		case "daemon":
			d.Kill()
		case "shim":
			cmdtest.Kill9(t, shims[0])
		case "first process":
			cmdtest.Kill9(t, inits[0])
		case "shim of the session":
			cmdtest.Kill9(t, shims[1])
		case "first process of the session":
			cmdtest.Kill9(t, inits[1])
		case "all":
			d.KillWith(append(inits, shims...))
		}
		<-over
		lives := victim != "daemon" && victim != "all"
		if !lives {
			d = h.Daemon()
		}
		h.Wants(h.Jail("workspaces"), 0, "")
		old, fresh := 0, 0
		for _, name := range cmdtest.NamesIn(dir) {
			text, err := os.ReadFile(filepath.Join(dir, name))
			switch {
			case err != nil || strings.HasPrefix(name, ".jail-"):
				t.Errorf("round %d: %s: %v", round, name, err)
			case string(text) == "old\n":
				old++
			case string(text) == "new\n":
				fresh++
			}
		}
		said := "nothing"
		if r := h.Records(id, "workspace.committed"); len(r) > 0 {
			switch last := r[len(r)-1]; {
			case last.Begun:
				said = "begun"
			case last.Error == "":
				said = "new"
			case strings.Contains(last.Error, "has been undone"),
				strings.Contains(last.Error, "before anything was changed"):
				said = "old"
			default:
				said = last.Error
			}
		}
		ends[victim+": "+said]++
		switch {
		case old+fresh != files || old > 0 && fresh > 0:
			t.Errorf("round %d, %s: %d files are old, %d new", round, victim, old, fresh)
		case fresh > 0 && said != "new" || old > 0 && said == "new" || said == "begun":
			t.Errorf("round %d, %s: %d files are old, %d new, and the log says %q", round, victim,
				old, fresh, said)
		}
		if lives {
			// An invocation that goes on answers, also when the session takes no other.
			if strings.HasSuffix(victim, "of the session") {
				tool.In.Close()
			} else {
				h.Wants(h.Exec(id, "--", "true"), 0, "")
			}
			h.Jail("session", "stop", id)
		}
		tool.In.Close()
		tool.Wait()
		cmdtest.Eventually(t, "its control groups are gone",
			func() bool { return len(cmdtest.GroupOf(global)) == 0 })
		cmdtest.Eventually(t, "the kernel has let go of the layer", func() bool {
			return h.Jail("diff", "--stat", id).Code == 0
		})
		h.Discard(id)
		d.Stop()
	}
	t.Logf("after %d rounds the log said: %v", rounds, ends)
}

// killAt returns at a moment of a commit: while it writes beside the files of dir, while it moves
// that into place, while it removes what was there before, or wherever it is soon after its start.
func killAt(t *testing.T, dir string, files, moment int, over <-chan struct{}) {
	t.Helper()
	part := rand.IntN(files)
	names := func() int { return len(cmdtest.NamesIn(dir)) }
	reached := []func() bool{
		func() bool { return names() > files+part },
		func() bool {
			text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("f%d", part)))
			return err == nil && string(text) == "new\n"
		},
		func() bool {
			return names() < 2*files-part && exec.Command("grep", "-q", "new",
				filepath.Join(dir, "f0")).Run() == nil
		},
		func() bool {
			part--
			return part < 0 || names() > files
		},
	}[moment%4]
	for {
		select {
		case <-over:
			return
		default:
		}
		if reached() {
			return
		}
	}
}
