package workspace

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func hostState(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	return string(mounts)
}

func TestRunReviewCommit(t *testing.T) {
	f := newFixture(t)
	f.write("keep", "edit", "gone", "d/x", "d/y", "whole/a", "whole/b/c", "link -> keep", "mode")
	before, realBefore := hostState(t), snapshotText(f.real)
	w := f.shadow("r1", `set -e
		cat edit >/dev/null; echo more >>edit; rm gone; mkdir new; echo n >new/f; rm -r whole; rm d/x
		ln -sfn edit link; chmod 755 mode; touch keep; ln -s keep l2`)
	want := []string{"deleted d/x", "modified edit", "deleted gone", "added l2", "link link",
		"mode mode",
		"added new", "added new/f", "deleted whole", "deleted whole/a", "deleted whole/b",
		"deleted whole/b/c"}
	if diff := cmp.Diff(want, brief(changesOf(t, w))); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff(realBefore, snapshotText(f.real)); diff != "" {
		t.Fatalf("the real directory changed before the commit: %s", diff)
	}
	sum, digest, err := w.Review(t.Context())
	must(t, err)
	if peeked, same, err := w.Peek(t.Context()); err != nil || peeked != sum || same != digest {
		t.Errorf("peek %+v, %s, %v", peeked, same, err)
	}
	if sum.Added != 3 || sum.Modified != 3 || sum.Deleted != 6 {
		t.Errorf("summary %+v", sum)
	}
	must(t, w.Keep())
	must(t, w.Close())

	// As a later process would.
	again, err := f.store.Get("r1")
	must(t, err)
	defer again.Close()
	if _, err := again.Commit(t.Context(), CommitOptions{Digest: "sha256:0"}); !errors.Is(err,
		ErrDigest) {
		t.Fatalf("commit of another digest: %v", err)
	}
	r, err := again.Commit(t.Context(), CommitOptions{Digest: digest})
	must(t, err)
	if r.State != Committed || len(r.Held) != 0 || len(r.Left) != 0 {
		t.Fatalf("result %+v", r)
	}
	wantTree := `"." dir 0755
"d" dir 0755
"d/y" file 0644 "d/y\n" <nil>
"edit" file 0644 "edit\nmore\n" <nil>
"keep" file 0644 "keep\n" <nil>
"l2" link "keep"
"link" link "edit"
"mode" file 0755 "mode\n" <nil>
"new" dir 0755
"new/f" file 0644 "n\n" <nil>
`
	if diff := cmp.Diff(wantTree, snapshotText(f.real)); diff != "" {
		t.Fatal(diff)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "r1", "upper.img")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the image of a committed workspace is still there: %v", err)
	}
	must(t, again.Close())
	if after := hostState(t); after != before {
		t.Errorf("the host's mount table changed:\n%s", cmp.Diff(before, after))
	}
	all, err := f.store.List()
	must(t, err)
	if len(all) != 1 || all[0].State != Committed || len(all[0].Commits) != 1 {
		t.Errorf("list %+v", all)
	}
	must(t, f.store.discard("r1"))
	if _, err := f.store.Get("r1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("after discard: %v", err)
	}
}

func TestLoopDevicesGo(t *testing.T) {
	f := newFixture(t)
	f.write("a")
	w := f.shadow("r1", `echo x >b`)
	image := filepath.Join(f.dir, "r1", "upper.img")
	used := func() bool {
		out, err := exec.Command("losetup", "-j", image).CombinedOutput()
		if err != nil {
			t.Skip("losetup is not installed")
		}
		return len(out) > 0
	}
	if !used() {
		t.Fatal("the control: no loop device while the workspace is open")
	}
	must(t, w.Close())
	waitFor(t, func() bool { return !used() })
}

// waitFor polls: the kernel clears a loop device some time after its last user is gone, and tells
// nobody.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for !ok() {
		if t.Context().Err() != nil {
			t.Fatal("never became true")
		}
		settle(t)
	}
}
