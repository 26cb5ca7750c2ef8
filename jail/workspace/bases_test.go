package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lines is a text of so many lines, some of them replaced.
func lines(n int, replaced map[int]string) string {
	var b strings.Builder
	for i := range n {
		if text, ok := replaced[i]; ok {
			fmt.Fprintln(&b, text)
		} else {
			fmt.Fprintln(&b, i)
		}
	}
	return b.String()
}

func (l *liveTool) saveBases() {
	l.f.t.Helper()
	must(l.f.t, SaveBases(l.f.t.Context(), l.w))
}

// mergeFails checks that a commit with a merge is refused, for that reason.
func (l *liveTool) mergeFails(why string) {
	l.f.t.Helper()
	err := l.commit(CommitOptions{Merge: true})
	if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), why) {
		l.f.t.Errorf("merge: %v, want %s", err, why)
	}
}

// In an open workspace the changes of a person and of the tool to different places of a file merge,
// and those to the same place are a conflict by name.
func TestLiveMerge(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"both", "same", "sub/deep", "renamed", "late"} {
		f.edit(name, lines(20, nil))
	}
	f.write("bin")
	l := f.live("w")
	l.do("sed -i '1s/.*/tool/' both sub/deep; sed -i '5s/.*/tool/' same; chmod 755 late; " +
		"sed -i '1s/.*/tool/' renamed")
	l.saveBases()
	person := func(line int, names ...string) {
		for _, name := range names {
			f.edit(name, lines(20, map[int]string{line: "person"}))
		}
	}
	person(10, "both", "sub/deep", "late")
	person(4, "same")
	must(t, os.WriteFile(f.at("new"), []byte(lines(20, map[int]string{10: "person"})), 0o644))
	must(t, os.Rename(f.at("new"), f.at("renamed")))
	// The tool has only touched it before.
	l.do("sed -i '1s/.*/tool/' late")
	l.saveBases()
	l.mergeFails("same: the real file was changed since the run began; both sides changed")
	f.holds("both", lines(20, map[int]string{10: "person"}))
	must(t, l.commit(CommitOptions{Merge: true, Paths: []Name{"both", "sub", "renamed", "late"}}))
	for _, name := range []string{"both", "sub/deep", "renamed", "late"} {
		f.holds(name, lines(20, map[int]string{0: "tool", 10: "person"}))
	}
	must(t, l.commit(CommitOptions{Theirs: true}))
	l.wants()
}

// A file that somebody changed before the tool did is not merged: what the tool had read of it may
// be the content of before.
func TestLiveMergeOfStale(t *testing.T) {
	f := newFixture(t)
	f.edit("f", lines(20, nil))
	l := f.live("w")
	l.saveBases()
	l.do("cp f /tmp/f 2>/dev/null; content=$(cat f)")
	f.edit("f", lines(20, map[int]string{10: "person"}))
	l.do("echo \"$content\" | sed '1s/.*/tool/' >f")
	l.saveBases()
	l.mergeFails("f: the real file was changed since the run began; what it was when")
	f.holds("f", lines(20, map[int]string{10: "person"}))
}

// After a commit the base is what the tool had then, also where the commit wrote both sides.
func TestLiveMergeAfterCommit(t *testing.T) {
	f := newFixture(t)
	f.edit("f", lines(30, nil))
	l := f.live("w")
	l.do("sed -i '1s/.*/tool/' f; seq 0 29 >new")
	l.saveBases()
	must(t, l.commit(CommitOptions{Keep: keepAll}))
	f.edit("f", lines(30, map[int]string{0: "tool", 10: "person"}))
	f.edit("new", lines(30, map[int]string{10: "person"}))
	l.do("sed -i '6s/.*/again/' f new")
	l.saveBases()
	must(t, l.commit(CommitOptions{Merge: true, Keep: keepAll}))
	f.holds("f", lines(30, map[int]string{0: "tool", 5: "again", 10: "person"}))
	f.holds("new", lines(30, map[int]string{5: "again", 10: "person"}))
	// The tool goes on from its own side.
	l.do("sed -i '20s/.*/third/' f")
	must(t, l.commit(CommitOptions{Merge: true, Keep: keepAll}))
	f.holds("f", lines(30, map[int]string{0: "tool", 5: "again", 10: "person", 19: "third"}))
	// And after the end.
	f.edit("new", lines(30, map[int]string{5: "again", 10: "person", 25: "person"}))
	l.do("sed -i '20s/.*/third/' new")
	l.end()
	must(t, l.w.Freeze())
	_, _, err := l.w.Review(t.Context())
	must(t, err)
	must(t, l.w.Keep())
	_, err = l.w.Commit(t.Context(), CommitOptions{Merge: true})
	must(t, err)
	f.holds("new", lines(30, map[int]string{5: "again", 10: "person", 19: "third", 25: "person"}))
}

// After a revert the base is that of before again.
func TestLiveMergeAfterRevert(t *testing.T) {
	f := newFixture(t)
	f.edit("f", lines(30, nil))
	l := f.live("w")
	l.do("sed -i '1s/.*/tool/' f")
	l.saveBases()
	must(t, l.commit(CommitOptions{Keep: keepAll}))
	_, err := l.w.Revert(t.Context(), RevertOptions{Live: true})
	must(t, err)
	f.edit("f", lines(30, map[int]string{10: "person"}))
	must(t, l.commit(CommitOptions{Merge: true}))
	f.holds("f", lines(30, map[int]string{0: "tool", 10: "person"}))
}

// Bases are bounded in files and bytes, texts alone have one, and nothing of a directory that the
// tool made is looked at.
func TestBasesAreBounded(t *testing.T) {
	f := newFixture(t)
	big := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MiB
	for i := range 20 {
		f.edit(fmt.Sprintf("big%02d", i), big)
	}
	f.edit("longer", big+"x")
	f.edit("binary", "\x00")
	f.edit("text", "text\n")
	l := f.live("w")
	l.do("chmod 600 binary longer text; chmod 600 big*; mkdir -p made/sub; echo 1 >made/sub/f")
	l.saveBases()
	st, err := os.Stat(filepath.Join(f.dir, "w", baseContent))
	must(t, err)
	if st.Size() > maxBaseBytes || st.Size() < maxBaseBytes/2 {
		t.Errorf("%d bytes are saved", st.Size())
	}
	for _, b := range l.w.bases.index {
		if b.Path == "binary" || b.Path == "longer" || strings.HasPrefix(string(b.Path), "made") {
			t.Errorf("%s is saved", b.Path)
		}
	}
	if _, known := l.w.bases.dirs["made/sub"]; known {
		t.Error("a directory of the tool's was listed")
	}
	listed := l.w.bases.dirs[""]
	l.saveBases()
	l.saveBases()
	if now := l.w.bases.dirs[""]; &now.subs == nil || listed.ctime != now.ctime &&
		listed.ctime.Sec != 0 {
		t.Error("a directory was listed again that had not changed")
	}
}
