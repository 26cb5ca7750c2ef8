package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// lines are those of all records as readers get them.
func (p place) lines(t *testing.T) []string {
	t.Helper()
	var list []string
	for r, err := range Scan(p.log, Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(r.Line))
	}
	return list
}

func smallSegments(o *Options) { o.SegmentBytes, o.CheckpointRecords = 8<<10, 32 }

// packed makes a log of which all segments but the last are packed, and returns its lines.
func (p place) packed(t *testing.T, n int) []string {
	t.Helper()
	l := p.open(t, smallSegments)
	for range n {
		mustAppend(t, l, denied("read /etc/shadow"))
	}
	mustClose(t, l)
	l = p.open(t, smallSegments)
	before := p.lines(t)
	done, err := l.Compress(nil)
	if err != nil || done.Segments < 2 || done.After >= done.Before {
		t.Fatalf("%+v, %v", done, err)
	}
	mustClose(t, l)
	return before
}

func (p place) files(t *testing.T, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(p.log, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// All readers of the log read packed segments, too: hashes and signatures are of their lines.
func TestPacked(t *testing.T) {
	p := newPlace(t)
	before := p.packed(t, 200)
	if plain := p.files(t, "*"+segmentExt); len(plain) != 1 || len(p.files(t, "*.new")) != 0 {
		t.Errorf("beside the packed ones: %q", plain)
	}
	if after := p.lines(t); !slices.Equal(before, after) {
		t.Fatalf("%d lines before, %d after", len(before), len(after))
	}
	n := uint64(len(before))
	p.mustVerify(t, n)
	if out, ok := second(t, p.log, filepath.Join(p.keys, pubFile)); !ok {
		t.Errorf("verify.py: %s", out)
	}
	for _, seq := range []uint64{1, 30, 77, n} {
		proof, err := Prove(p.log, p.pub(t), seq)
		if err != nil || string(proof.Line) != before[seq-1] {
			t.Errorf("proof of %d: %s, %v", seq, proof.Line, err)
		}
		for r, err := range From(p.log, Filter{}, seq) {
			if err != nil || string(r.Line) != before[seq-1] {
				t.Errorf("from %d: %s, %v", seq, r.Line, err)
			}
			break
		}
	}
	page, err := Newest(context.Background(), p.log, Filter{}, 50, 10)
	if err != nil || len(page.Records) != 10 || page.Records[0].Seq != 49 {
		t.Errorf("%+v, %v", page, err)
	}
	p.open(t, smallSegments).Close()

	done, err := Prune(p.options(), Keep{Bytes: 4 << 10})
	if err != nil || done.Segments < 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	p.mustVerify(t, 0)
	if out, ok := second(t, p.log, filepath.Join(p.keys, pubFile)); !ok {
		t.Errorf("verify.py: %s", out)
	}
}

// A writer, and a reader who follows, go on where their segment was packed or pruned by another
// process.
func TestPackedUnderOthers(t *testing.T) {
	p := newPlace(t)
	idle, other := p.open(t, smallSegments), p.open(t, smallSegments)
	mustAppend(t, idle, denied("first"))
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	var followed []string
	begun, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		for r, err := range Follow(ctx, p.log, Filter{Types: []Type{TypeDenied}}, 0) {
			if err != nil {
				t.Error(err)
				return
			}
			if what := r.Text("what"); len(followed) == 0 {
				close(begun)
				followed = append(followed, what)
			} else if followed = append(followed, what); what == "last" {
				return
			}
		}
	}()
	<-begun
	for range 3 {
		for range 60 {
			mustAppend(t, other, denied("more"))
		}
		if _, err := other.Compress(nil); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, idle, denied("idle"))
	}
	for range 60 {
		mustAppend(t, other, denied("more"))
	}
	mustAppend(t, idle, denied("last"))
	<-ended
	if len(followed) != 1+4*60+3+1 {
		t.Errorf("followed %d records", len(followed))
	}
	for range 60 {
		mustAppend(t, other, denied("more"))
	}
	if done, err := other.Prune(Keep{Bytes: 1}); err != nil || done.Segments == 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	mustAppend(t, idle, denied("behind the cut"))
	mustClose(t, idle)
	mustClose(t, other)
	p.mustVerify(t, 0)
}

// Whatever a crash leaves of a packing, no record is lost, and the next one ends it.
func TestPackedCrash(t *testing.T) {
	p := newPlace(t)
	p.fill(t, 200, smallSegments)
	want := p.lines(t)
	first, err := os.ReadFile(p.segment(1))
	if err != nil {
		t.Fatal(err)
	}
	var whole bytes.Buffer
	if err := pack(&whole, bytes.NewReader(first)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(p.log, packedName(1))
	for what, leave := range map[string]func() error{
		"a part aside": func() error {
			return os.WriteFile(name+".new", whole.Bytes()[:whole.Len()/2], 0o640)
		},
		"all aside":     func() error { return os.WriteFile(name+".new", whole.Bytes(), 0o640) },
		"both in place": func() error { return os.WriteFile(name, whole.Bytes(), 0o640) },
	} {
		if err := leave(); err != nil {
			t.Fatal(err)
		}
		if got := p.lines(t); !slices.Equal(got, want) {
			t.Errorf("%s: %d lines, want %d", what, len(got), len(want))
		}
		p.mustVerify(t, uint64(len(want)))
		l := p.open(t, smallSegments)
		if done, err := l.Compress(nil); err != nil || done.Segments == 0 {
			t.Errorf("%s: %+v, %v", what, done, err)
		}
		mustClose(t, l)
		if got := p.lines(t); !slices.Equal(got, want) || len(p.files(t, "*.new")) != 0 ||
			len(p.files(t, "000000000001.jsonl")) != 0 {
			t.Errorf("%s: afterwards %d lines, want %d", what, len(got), len(want))
		}
		if err := os.WriteFile(p.segment(1), first, 0o640); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// A change of a packed segment's bytes is found, or changes no record (T-530); one that is cut, or
// that unpacks to what is none, is named.
func TestPackedDamage(t *testing.T) {
	p := newPlace(t)
	want := p.packed(t, 100)
	name := filepath.Join(p.log, packedName(1))
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		if err := os.WriteFile(name, b, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	// All of them with JAIL_TEST_LONG: each is a verification.
	step := 17
	if os.Getenv("JAIL_TEST_LONG") != "" {
		step = 1
	}
	found, tried := 0, 0
	for i := range good {
		if i > memberHeader && i%step != 0 {
			continue
		}
		tried++
		bad := bytes.Clone(good)
		bad[i] ^= 1
		put(bad)
		var fault *Fault
		switch _, err := p.verify(t); {
		case errors.As(err, &fault):
			found++
		case err != nil:
			t.Fatalf("byte %d: %v", i, err)
		case !slices.Equal(p.lines(t), want):
			t.Fatalf("byte %d: other records, and verified", i)
		}
	}
	// Time and system in gzip's header, and what only says where to leap.
	if harmless := tried - found; harmless > memberHeader {
		t.Errorf("%d of %d flips were not found", harmless, tried)
	}
	for n := 0; n < len(good); n += step {
		put(good[:n])
		p.wantAnyFault(t)
	}
	var bomb bytes.Buffer
	if err := pack(&bomb, io.LimitReader(zeros{}, 64<<20)); err != nil {
		t.Fatal(err)
	}
	put(bomb.Bytes())
	p.wantAnyFault(t)
	put(append(bytes.Clone(good), "trailing"...))
	p.wantAnyFault(t)

	// Another program's gzip is a packed segment, too: it only cannot be leapt in.
	plain, err := gzip.NewReader(bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	var other bytes.Buffer
	z := gzip.NewWriter(&other)
	if _, err := io.Copy(z, plain); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	put(other.Bytes())
	if got := p.lines(t); !slices.Equal(got, want) {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
	p.mustVerify(t, uint64(len(want)))
}

func (p place) wantAnyFault(t *testing.T) {
	t.Helper()
	var fault *Fault
	if _, err := p.verify(t); !errors.As(err, &fault) {
		t.Fatalf("verify said %v", err)
	}
}

// Any byte of a packed segment can be leapt to.
func TestLeap(t *testing.T) {
	p := newPlace(t)
	if err := os.MkdirAll(p.log, 0o700); err != nil {
		t.Fatal(err)
	}
	text := []byte(strings.Repeat("0123456789abcde\n", memberBytes/8) + "the end\n")
	var b bytes.Buffer
	if err := pack(&b, bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.log, packedName(1)), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, offset := range []int{0, 1, memberBytes - 1, memberBytes, memberBytes + 1,
		2*memberBytes + 3, len(text) - 1, len(text)} {
		s, err := openSource(root, 1, int64(offset))
		if err != nil {
			t.Fatal(offset, err)
		}
		if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, text[offset:]) {
			t.Errorf("from byte %d: %d bytes, want %d, %v", offset, len(got), len(text)-offset, err)
		}
		s.Close()
	}
	if _, err := openSource(root, 1, int64(len(text)+1)); err == nil {
		t.Error("there is something behind the end")
	}
}
