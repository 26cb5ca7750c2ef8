package workspace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// T-315: what changed is told by the content. A file of the same size and time is found, and times
// that no clock shows break nothing.
func TestTimesHideNothing(t *testing.T) {
	f := newFixture(t)
	f.write("quiet", "loud", "same")
	w := f.prepare("w")
	a := f.run(w, order{Script: `set -e; cp -p quiet ref; printf 'QUIET\n' >quiet; touch -r ref quiet; stat -c '%s %Y' ref quiet; rm ref
		touch -d @15032385535 loud; touch -d @-2147483648 same; echo x >new; touch -d '1901-12-14 12:00:00 UTC' new`})
	if lines := strings.Split(strings.TrimSpace(a.Out), "\n"); a.Script != "" || len(lines) != 2 ||
		lines[0] != lines[1] {
		t.Fatalf("control: sizes and times are to be the same: %s %s", a.Script, a.Out)
	}
	must(t, w.Freeze())
	if diff := cmp.Diff([]string{"added new", "modified quiet"},
		brief(changesOf(t, w))); diff != "" {
		t.Error(diff)
	}
	_, err := w.Commit(t.Context(), CommitOptions{Keep: keepAll})
	must(t, err)
	if got := content(t, filepath.Join(f.real, "quiet")); got != "QUIET\n" {
		t.Errorf("committed %q", got)
	}
	// In the real directory, too.
	ref := time0(t, filepath.Join(f.real, "new"))
	must(t, os.WriteFile(filepath.Join(f.real, "new"), []byte("y\n"), 0o644))
	must(t, syscall.UtimesNano(filepath.Join(f.real, "new"), []syscall.Timespec{ref, ref}))
	var c *ConflictError
	if _, err := w.Revert(t.Context(), RevertOptions{}); !errors.As(err, &c) ||
		len(c.Conflicts) != 1 || c.Conflicts[0].Path != "new" {
		t.Errorf("revert over a quiet change: %v", err)
	}
}

func time0(t *testing.T, path string) syscall.Timespec {
	t.Helper()
	var st syscall.Stat_t
	must(t, syscall.Stat(path, &st))
	return st.Mtim
}

// T-320: a commit is of what was reviewed, and of nothing that came later on either side.
func TestReviewIsWhatIsCommitted(t *testing.T) {
	f := newFixture(t)
	f.write("a", "b")
	w := f.shadow("w", `echo x >>a; rm b`)
	_, digest, err := w.Review(t.Context())
	must(t, err)
	must(t, os.WriteFile(filepath.Join(f.real, "a"), []byte("the host's\n"), 0o644))
	before := snapshotText(f.real)
	if _, err := w.Commit(t.Context(), CommitOptions{Digest: digest, Theirs: true}); !errors.Is(err,
		ErrDigest) {
		t.Errorf("commit of another state of the real directory: %v", err)
	}
	upper, err := w.layer.openUpper()
	must(t, err)
	defer upper.Close()
	if f, err := sys.OpenBeneath(upper.dirs[0], "a", os.O_WRONLY|os.O_APPEND, 0); !errors.Is(err,
		syscall.EROFS) {
		f.Close()
		t.Errorf("the reviewed layer can be written to, by root even: %v", err)
	}
	if now := snapshotText(f.real); now != before {
		t.Error(cmp.Diff(before, now))
	}
	_, digest, err = w.Review(t.Context())
	must(t, err)
	_, err = w.Commit(t.Context(), CommitOptions{Digest: digest, Theirs: true}) // the control
	must(t, err)
}

// T-314, T-316: flags of inodes that keep everybody from changing or removing them. They are in the
// image, which goes as one file.
func TestImmutableFiles(t *testing.T) {
	chattr, err := exec.LookPath("chattr")
	if err != nil {
		t.Skip("chattr is not installed")
	}
	f := newFixture(t)
	f.write("a")
	w := f.prepare("w")
	f.run(w, order{Script: `echo x >>a; mkdir d; echo y >d/f`})
	path := fmt.Sprintf("/proc/%d/fd/%d/upper/", os.Getpid(), w.layer.mount.Fd())
	if out, err := exec.Command(chattr, "+i", path+"a", path+"d/f",
		path+"d").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Remove(path + "d/f"); !errors.Is(err, os.ErrPermission) {
		t.Fatalf("control: an immutable file went: %v", err)
	}
	must(t, w.Freeze())
	_, err = w.Commit(t.Context(), CommitOptions{Paths: []Name{"d"}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(f.real, "d/f"), []byte("the flag stays behind\n"), 0o644))
	must(t, w.Discard())
}

// T-329: a disk that is full, of bytes or of files, stops a commit before or in the middle, and
// nothing of it stays.
func TestCommitOnAFullDisk(t *testing.T) {
	if !inPrivateMounts(t) {
		return
	}
	d := &disk{t: t, kind: "ext4", mkfs: []string{"mkfs.ext4", "-q", "-F", "-N", "64", "-m", "0"},
		size: 16 << 20}
	d.make()
	f := newFixture(t)
	f.real = filepath.Join(d.dir, "real")
	must(t, os.Mkdir(f.real, 0o755))
	f.write("a", "b/c")
	before := snapshotText(f.real)
	w := f.shadow("big", `head -c 14000000 /dev/zero | tr '\0' x >big; echo more >>a; rm -r b`)
	must(t, os.WriteFile(filepath.Join(d.dir, "filler"), make([]byte, 8<<20), 0o644))
	if _, err := w.Commit(t.Context(), CommitOptions{}); !errors.Is(err, ErrNoSpace) {
		t.Errorf("a commit without room: %v", err)
	}
	many := f.shadow("many", `for i in $(seq 80); do echo $i >f$i; done; echo more >>a; rm -r b`)
	var failed *commitError
	if _, err := many.Commit(t.Context(), CommitOptions{}); !errors.As(err, &failed) ||
		failed.undo != nil || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a commit of too many files: %v", err)
	}
	if now := snapshotText(f.real); now != before {
		t.Fatal(cmp.Diff(before, now))
	}
	must(t, os.Remove(filepath.Join(d.dir, "filler")))
	_, err := w.Commit(t.Context(), CommitOptions{Theirs: true}) // the control
	must(t, err)
}

// T-330: names beside the place cannot be known beforehand, and one that is taken all the same is
// no way in.
func TestStagingNames(t *testing.T) {
	f := newFixture(t)
	f.write("a", "victim")
	outside := filepath.Join(filepath.Dir(f.real), "outside")
	must(t, os.WriteFile(outside, []byte("canary"), 0o600))
	w := f.shadow("w", `echo x >>a; echo y >.jail-0123456789abcdef-0`)
	seen := map[string]bool{}
	for range 3 {
		f.store.fault = func(at string) error {
			if at != "stage 0" {
				return nil
			}
			j, err := w.home.readJournal()
			must(t, err)
			if seen[j.ID] {
				t.Errorf("the name %s came twice", j.ID)
			}
			seen[j.ID] = true
			return os.Symlink(outside, filepath.Join(f.real, hand{id: j.ID}.temp(0)))
		}
		_, err := w.Commit(t.Context(), CommitOptions{})
		f.store.fault = nil
		if !errors.Is(err, os.ErrExist) {
			t.Fatalf("a name that was taken: %v", err)
		}
		if got := content(t, outside); got != "canary" {
			t.Fatalf("something outside was written to: %q", got)
		}
	}
	_, err := w.Commit(t.Context(), CommitOptions{}) // the control
	must(t, err)
	if got := content(t, filepath.Join(f.real, ".jail-0123456789abcdef-0")); got != "y\n" {
		t.Errorf("a file of the tool's with such a name: %q", got)
	}
}

// T-306, T-302: a commit gives the kernel no name of a tree that it could follow: opens are beneath
// a directory without links, all else takes a descriptor and one component.
func TestCommitFollowsNoName(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	f := newFixture(t)
	f.faultTree()
	must(t, syscall.Setxattr(f.real+"/edit", "user.note", []byte("1"), 0))
	w := f.prepareAs("w", Caller{}, 8<<20, 500)
	if a := f.run(w, order{UID: realUID, Script: faultScript}); a.Script != "" {
		t.Fatalf("%s: %s", a.Script, a.Out)
	}
	must(t, errors.Join(w.Freeze(), w.Keep(), w.Close()))
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "-qq", "-s", "300", "-o", trace, "-e",
		"trace=execve,execveat,%file,fsetxattr,fchmod,fchown", testBinary(t))
	cmd.Env = append(os.Environ(), actEnv+`={"Store":"`+f.dir+`","Do":"commit"}`)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), `"Err":""`) {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(trace)
	must(t, err)
	begun, checked, attributes := false, 0, 0
	for line := range strings.Lines(string(text)) {
		if begun = begun || strings.Contains(line, "meta.json"); !begun || strings.Contains(line,
			"resumed>") {
			continue
		}
		_, call, _ := strings.Cut(line, " ")
		call = strings.TrimSpace(call)
		if strings.Contains(call, "setxattr(") {
			attributes++
		}
		switch name, rest, _ := strings.Cut(call, "("); {
		case strings.HasPrefix(name, "exec"):
			t.Errorf("executes: %s", call)
		case name == "openat2":
			checked++
			if !strings.Contains(call, "RESOLVE_NO_SYMLINKS") {
				t.Errorf("follows links: %s", call)
			}
		case strings.Contains(rest, f.real+"/"):
			t.Errorf("by name: %s", call)
		case name == "renameat2", name == "unlinkat", name == "mkdirat", name == "symlinkat",
			name == "linkat":
			checked++
			if strings.Contains(lastName(rest), "/") {
				t.Errorf("more than one component: %s", call)
			}
		case strings.HasSuffix(name, "xattr"), name == "fchmodat", name == "fchownat",
			name == "utimensat":
			if !strings.Contains(rest, `"/proc/self/fd/`) && !strings.HasPrefix(name, "f") {
				t.Errorf("by name: %s", call)
			}
		}
	}
	if checked < 30 || attributes == 0 {
		t.Errorf("control: only %d calls were looked at, %d of attributes", checked, attributes)
	}
}

// lastName is the last quoted argument of a call as strace prints it.
func lastName(args string) string {
	parts := strings.Split(args, `"`)
	return parts[max(0, len(parts)-2)]
}
