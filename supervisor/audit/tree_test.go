package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Two ways to the root of a tree, and back from the line that a cut keeps of it.
func TestEdge(t *testing.T) {
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	tr, err := openTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.f.Close()
	if _, err := tr.begin(0); err != nil {
		t.Fatal(err)
	}
	var e edge
	for n := range 300 {
		line := fmt.Appendf(nil, "line %d", n)
		tr.add(line)
		e.add(tlog.RecordHash(line))
		root, err := tlog.TreeHash(int64(n+1), tr)
		if err != nil || root != e.root() || root != tr.root() {
			t.Fatalf("%d leaves: %v, %v and %v", n+1, err, root, e.root())
		}
		if n%7 == 0 {
			if err := tr.write(); err != nil {
				t.Fatal(err)
			}
			tr.keep()
		}
		again, err := tr.edge(int64(n + 1))
		if err == nil {
			again, err = parseEdge(again.line(), uint64(n+1))
		}
		if err != nil || again.root() != root {
			t.Fatalf("%d leaves: %v, the edge gives %v", n+1, err, again.root())
		}
	}
	for _, text := range []string{"", "edge", "edge x", e.line() + " ", "edges" + e.line()[4:]} {
		if _, err := parseEdge(text, 300); err == nil {
			t.Errorf("%q is an edge of 300 leaves", text)
		}
	}
}

// TestProofs: each record of a log can be shown to be in it to who has the key alone, and nothing
// else can.
func TestProofs(t *testing.T) {
	p, lines := small(t, 70)
	pub := p.pub(t)
	for i, line := range lines {
		proof, err := Prove(p.log, pub, uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseProof(proof.Marshal())
		if err != nil {
			t.Fatal(err)
		}
		if r, err := CheckProof(back, pub); err != nil || r.Seq != uint64(i+1) ||
			!bytes.Equal(append(r.Line, '\n'), line) {
			t.Fatalf("record %d: %v, %v", i+1, r.Seq, err)
		}
	}
	if _, err := Prove(p.log, pub, 71); !errors.Is(err, ErrNoRecord) {
		t.Errorf("a record that is not there: %v", err)
	}
	good, err := Prove(p.log, pub, 42)
	if err != nil {
		t.Fatal(err)
	}
	text := good.Marshal()
	for i := range text {
		bad := bytes.Clone(text)
		bad[i] ^= 1
		parsed, err := ParseProof(bad)
		if err == nil {
			_, err = CheckProof(parsed, pub)
		}
		if err == nil {
			t.Errorf("a proof with another byte %d (%q) holds", i, text[i])
		}
	}
	other, _ := small(t, 5)
	if _, err := CheckProof(good, other.pub(t)); !errors.Is(err, errProof) {
		t.Errorf("under another log's key: %v", err)
	}
}

// The tree's file is worth nothing: lost, cut or changed it is made anew, and no proof comes out of
// a false one.
func TestTreeIsMadeAnew(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"lost":    os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 100) },
		"zeros":   func(path string) error { return os.WriteFile(path, make([]byte, 8000), 0o640) },
		"too big": func(path string) error { return os.Truncate(path, 1<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := small(t, 50)
			if err := spoil(filepath.Join(p.log, treeFile)); err != nil {
				t.Fatal(err)
			}
			if _, err := Prove(p.log, p.pub(t), 7); err == nil && name != "too big" {
				t.Error("a proof from a false tree")
			}
			p.mustVerify(t, 50)
			p.fill2(t, 3)
			p.mustVerify(t, 54)
			if _, err := Prove(p.log, p.pub(t), 7); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPrune: what is left of a pruned log verifies, and says what is gone; a beginning that the
// writer did not take away is missed.
func TestPrune(t *testing.T) {
	p := newPlace(t)
	small := func(o *Options) { o.SegmentBytes = 1000 }
	l := p.open(t, small)
	for range 100 {
		mustAppend(t, l, denied("x"))
	}
	mustClose(t, l)
	all := p.mustVerify(t, 101)
	opt := p.options()
	small(&opt)
	backup := filepath.Join(t.TempDir(), "first")
	first, err := os.ReadFile(p.segment(1))
	if err != nil || os.WriteFile(backup, first, 0o600) != nil {
		t.Fatal(err)
	}
	done, err := Prune(opt, Keep{Bytes: 5000})
	if err != nil || done.Segments == 0 || done.First != 1 || done.Last < 10 {
		t.Fatalf("%+v, %v", done, err)
	}
	// The gap record and a checkpoint.
	rep := p.mustVerify(t, all.Records-done.Last+2)
	if rep.Pruned != done.Last || rep.Gaps != 1 {
		t.Errorf("%+v", rep)
	}
	for _, seq := range []uint64{done.Last + 1, 101} {
		proof, err := Prove(p.log, p.pub(t), seq)
		if err == nil {
			_, err = CheckProof(proof, p.pub(t))
		}
		if err != nil {
			t.Errorf("record %d: %v", seq, err)
		}
	}
	if _, err := Prove(p.log, p.pub(t), 1); !errors.Is(err, ErrNoRecord) {
		t.Errorf("a record that was pruned: %v", err)
	}
	if again, err := Prune(opt, Keep{Bytes: 1 << 30, For: time.Hour}); err != nil ||
		again.Segments != 0 {
		t.Errorf("nothing to prune: %+v, %v", again, err)
	}
	// The tree of what is left can be made anew as well.
	if err := os.Truncate(filepath.Join(p.log, treeFile),
		32*int64(tlog.StoredHashCount(int64(done.Last)))); err != nil {
		t.Fatal(err)
	}
	mustClose(t, p.open(t))
	if _, err := Prove(p.log, p.pub(t), 100); err != nil {
		t.Error(err)
	}
	list, err := os.ReadDir(p.log)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if strings.HasSuffix(e.Name(), segmentExt) {
			if err := os.Rename(filepath.Join(p.log, e.Name()),
				filepath.Join(p.log, e.Name()+".aside")); err != nil {
				t.Fatal(err)
			}
			p.wantFault(t, done.Last+1, missing)
			break
		}
	}
	cut := filepath.Join(p.log, cutFile)
	text, err := os.ReadFile(cut)
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		bad := bytes.Clone(text)
		bad[i] ^= 1
		if err := os.WriteFile(cut, bad, 0o640); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(p.log, p.pub(t)); err == nil {
			t.Errorf("a cut with another byte %d is taken", i)
		}
	}
}
