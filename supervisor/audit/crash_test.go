package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// crashed makes a log whose writer died with n records acknowledged and whatever tail adds behind
// them.
func crashed(t *testing.T, n int, tail func(lines [][]byte) []byte) place {
	t.Helper()
	p, lines := small(t, n)
	f, err := os.OpenFile(p.segment(1), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(tail(lines)); err != nil {
		t.Fatal(err)
	}
	return p
}

// T-410, T-533: whatever a crash leaves behind the head, whole records stay, torn bytes are moved,
// and a record says so.
func TestTails(t *testing.T) {
	last := func(lines [][]byte) []byte { return lines[len(lines)-1] }
	two := func(lines [][]byte) []byte {
		a := forge(last(lines), "6")
		return append(a, forge(a, "7")...)
	}
	tests := []struct {
		name  string
		tail  func(lines [][]byte) []byte
		whole int // records kept
		torn  bool
	}{
		{"half a line", func(l [][]byte) []byte { return forge(last(l), "6")[:50] }, 0, true},
		{"one byte", func(l [][]byte) []byte { return []byte("{") }, 0, true},
		{"a line without its newline",
			func(l [][]byte) []byte { return bytes.TrimSuffix(forge(last(l), "6"), []byte("\n")) },
			0, true},
		{"zeros", func([][]byte) []byte { return make([]byte, 5000) }, 0, true},
		{"one line", func(l [][]byte) []byte { return forge(last(l), "6") }, 1, false},
		{"two lines", two, 2, false},
		{"two lines and a half", func(l [][]byte) []byte { return append(two(l), "{\"seq\":8"...) },
			2, true},
		{"a line that does not chain", func(l [][]byte) []byte { return forge(l[0], "6") }, 0,
			true},
		{"a line with another number", func(l [][]byte) []byte { return forge(last(l), "7") }, 0,
			true},
		{"more than a line can hold", func([][]byte) []byte {
			return bytes.Repeat([]byte("x"), maxLine+1)
		}, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := crashed(t, 5, tt.tail)
			p.wantFault(t, 6, unsigned)
			before, _ := os.ReadFile(p.segment(1))
			p.fill2(t, 1)
			rep := p.mustVerify(t, uint64(5+tt.whole+3)) // gap, record, checkpoint
			if rep.Gaps != 1 {
				t.Errorf("report %+v", rep)
			}
			aside, err := os.ReadFile(filepath.Join(p.log, fmt.Sprintf("torn-%012d", 6+tt.whole)))
			if tt.torn != (err == nil) {
				t.Fatalf("torn bytes: %v", err)
			}
			after, _ := os.ReadFile(p.segment(1))
			kept := len(before) - len(aside)
			if !bytes.Equal(before[:kept], after[:kept]) || !bytes.Equal(before[kept:], aside) {
				t.Error("bytes that a crash left were changed")
			}
			for r, err := range Scan(p.log, Filter{Types: []Type{TypeGap}}) {
				if err != nil || r.Seq != uint64(6+tt.whole) {
					t.Errorf("gap is record %d, %v", r.Seq, err)
				}
			}
		})
	}
}

// The same when a writer that is running meets the tail of one that was killed.
func TestTailMetByRunningWriter(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	mustAppend(t, l, denied("a"))
	text, _ := os.ReadFile(p.segment(1))
	f, _ := os.OpenFile(p.segment(1), os.O_APPEND|os.O_WRONLY, 0)
	f.Write(append(forge(text, "2"), "{"...))
	f.Close()
	if seq := mustAppend(t, l, denied("b")); seq != 4 {
		t.Errorf("record %d, want 4", seq)
	}
	mustClose(t, l)
	if rep := p.mustVerify(t, 5); rep.Gaps != 1 {
		t.Errorf("report %+v", rep)
	}
}

// A crash between moving torn bytes and saying so.
func TestTornFileWithoutGap(t *testing.T) {
	p := newPlace(t)
	p.fill(t, 5)
	os.WriteFile(filepath.Join(p.log, "torn-000000000006"), []byte("{"), 0o640)
	mustClose(t, p.open(t))
	if rep := p.mustVerify(t, 7); rep.Gaps != 1 {
		t.Errorf("report %+v", rep)
	}
	mustClose(t, p.open(t)) // told once
	if rep := p.mustVerify(t, 7); rep.Gaps != 1 {
		t.Errorf("report %+v", rep)
	}
}

// faulty is a segment on a disk that goes wrong.
type faulty struct {
	segment
	write, sync, cut error
	// Bytes of a write that get through before its error.
	partial int
}

func (f *faulty) WriteAt(b []byte, off int64) (int, error) {
	if f.write == nil {
		return f.segment.WriteAt(b, off)
	}
	n, _ := f.segment.WriteAt(b[:min(f.partial, len(b))], off)
	return n, f.write
}

func (f *faulty) Sync() error {
	if f.sync != nil {
		return f.sync
	}
	return f.segment.Sync()
}

func (f *faulty) Truncate(n int64) error {
	if f.cut != nil {
		return f.cut
	}
	return f.segment.Truncate(n)
}

// breakDisk puts bad under l. It is safe between appends.
func breakDisk(l *Log, bad *faulty) {
	bad.segment = l.writer.seg.segment
	l.writer.seg.segment = bad
}

func TestDiskFull(t *testing.T) {
	for _, partial := range []int{0, 1, 100, 1 << 20} {
		p := newPlace(t)
		l := p.open(t)
		mustAppend(t, l, denied("a"))
		bad := &faulty{write: syscall.ENOSPC, partial: partial}
		breakDisk(l, bad)
		for range 3 {
			if seq, err := l.Append(context.Background(), denied("b")); !errors.Is(err,
				syscall.ENOSPC) || seq != 0 {
				t.Errorf("append on a full disk: %d, %v", seq, err)
			}
		}
		p.mustVerify(t, 1) // no torn bytes
		bad.write = nil    // room again
		if seq := mustAppend(t, l, denied("c")); seq != 2 {
			t.Errorf("record %d, want 2", seq)
		}
		mustClose(t, l)
		p.mustVerify(t, 3)
	}
}

func TestDiskBroken(t *testing.T) {
	tests := []struct {
		name  string
		bad   faulty
		gaps  uint64
		total uint64
	}{
		{"flush", faulty{sync: syscall.EIO}, 1,
			4}, // a, b (on file and not acknowledged), gap, checkpoint
		{"write and cut", faulty{write: syscall.EIO, partial: 20, cut: syscall.EIO}, 1, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			l := p.open(t)
			mustAppend(t, l, denied("a"))
			bad := tt.bad
			breakDisk(l, &bad)
			if _, err := l.Append(context.Background(), denied("b")); !errors.Is(err,
				syscall.EIO) || !errors.Is(err, errBroken) {
				t.Errorf("append said %v", err)
			}
			// Too late: nobody knows what is on disk.
			bad.sync, bad.write, bad.cut = nil, nil, nil
			if _, err := l.Append(context.Background(), denied("c")); !errors.Is(err, errBroken) {
				t.Errorf("append behind a failed flush said %v", err)
			}
			if err := l.Close(); !errors.Is(err, errBroken) {
				t.Errorf("close said %v", err)
			}
			p.wantFault(t, 2, unsigned)
			mustClose(t, p.open(t))
			if rep := p.mustVerify(t, tt.total); rep.Gaps != tt.gaps {
				t.Errorf("report %+v", rep)
			}
		})
	}
}

// T-418 on a real file system: full, then with room again.
func TestFullFileSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a tmpfs")
	}
	p := newPlace(t)
	if err := os.Mkdir(p.log, 0o750); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=256k,mode=0750", "audit-test",
		p.log).CombinedOutput(); err != nil {
		t.Skipf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", p.log).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	l := p.open(t)
	n, err := uint64(0), error(nil)
	// Until there is no room even for less than a checkpoint.
	for _, size := range []int{1000, 0} {
		for err = nil; err == nil; {
			if _, err = l.Append(context.Background(),
				denied(strings.Repeat("x", size))); err == nil {
				n++
			}
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || n < 50 {
		t.Fatalf("%d records, then %v", n, err)
	}
	p.mustVerify(t, n)
	if err := l.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("close with no room for the checkpoint said %v", err)
	}
	if out, err := exec.Command("mount", "-o", "remount,size=1m",
		p.log).CombinedOutput(); err != nil {
		t.Fatalf("remount: %v: %s", err, out)
	}
	p.fill2(t, 1)
	if rep := p.mustVerify(t, n+2); rep.Gaps != 0 {
		t.Errorf("report %+v", rep)
	}
}

const (
	childDir     = "AUDIT_TEST_CHILD"
	childSegment = "AUDIT_TEST_SEGMENT"
)

// T-533: kill -9 at any moment. Whatever was acknowledged is there, verify names what nobody
// signed, and after the next open all is in order.
func TestKilledWriter(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" {
		child(t, place{filepath.Join(dir, "audit"), filepath.Join(dir, "keys")})
		return
	}
	// Segments that are too short to be filled with zeros ahead, and one that is.
	for _, segment := range []string{"20000", "67108864"} {
		t.Run(segment, func(t *testing.T) { killWriters(t, segment) })
	}
}

func killWriters(t *testing.T, segment string) {
	dir := t.TempDir()
	p := place{filepath.Join(dir, "audit"), filepath.Join(dir, "keys")}
	mustClose(t, p.open(t))
	seen := map[uint64]string{}
	for round := range 12 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWriter$")
		cmd.Env = append(os.Environ(), childDir+"="+dir, childSegment+"="+segment)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(out)
		for n := 0; ; n++ {
			if n == 1+round*7 {
				cmd.Process.Kill()
			}
			text, err := in.ReadString('\n')
			if err == io.EOF {
				break
			}
			if seq, rest, ok := strings.Cut(strings.TrimSuffix(text, "\n"), " "); ok {
				if s, err := strconv.ParseUint(seq, 10, 64); err == nil {
					seen[s] = rest
				}
			}
		}
		cmd.Wait()
		var f *Fault
		if _, err := p.verify(t); err != nil && (!errors.As(err, &f) || f.Kind != unsigned) {
			t.Fatalf("verify after a kill: %v", err)
		}
		mustClose(t, p.open(t))
		p.mustVerify(t, 0)
		p.wantOnRecord(t, seen)
	}
	if len(seen) < 12 {
		t.Errorf("only %d records acknowledged", len(seen))
	}
}

// child appends with four writers until it is killed, and says which records were acknowledged.
func child(t *testing.T, p place) {
	segment, err := strconv.ParseInt(os.Getenv(childSegment), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	l := p.open(t, func(o *Options) { o.SegmentBytes, o.CheckpointRecords = segment, 10 })
	for w := range 4 {
		go func() {
			for i := 0; ; i++ {
				what := fmt.Sprintf("p%d w%d i%d", os.Getpid(), w, i)
				seq, err := l.Append(context.Background(), denied(what))
				if err != nil {
					os.Exit(1)
				}
				fmt.Printf("%d %s\n", seq, what)
			}
		}()
	}
	select {}
}
