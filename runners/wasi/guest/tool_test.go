package guest

import (
	"context"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
)

// T-123: the tool sees its own arguments and environment, and no other.
func TestArgsAndEnv(t *testing.T) {
	t.Setenv("HOST_SECRET", "canary")
	inv := runners.Invocation{Env: runners.Texts{"A=b", "C=\xff\xfe", "D="}}
	r := run(t, inv, "args\t\xff \"q\" $x\n", "env")
	want := `["prober" "args\t\xff \"q\" $x\n" "env"]` + "\n" + `["A=b" "C=\xff\xfe" "D="]` + "\n"
	if r.stdout != want {
		t.Errorf("%s, want %s", r.stdout, want)
	}
	if r := run(t, runners.Invocation{}, "env"); r.stdout != "[]\n" {
		t.Errorf("with none: %s", r.stdout)
	}
	big := strings.Repeat("x", 1<<20) // T-121
	if r := run(t, runners.Invocation{}, "args\t"+big); r.err != nil || !strings.Contains(r.stdout,
		big) {
		t.Errorf("a large argument: %v", r.err)
	}
	if r := run(t, runners.Invocation{}, strings.Repeat("x", runners.MaxArgBytes)); r.err == nil {
		t.Error("2 MiB of arguments run")
	}
}

// The rooted layout: a Go tool starts in PWD and sees one tree.
func TestRooted(t *testing.T) {
	w := newWorld(t)
	w.dir("tmp")
	inv := w.preopens()
	inv.Layout, inv.Cwd = "", "/workspace" // the module says which
	inv.Env = runners.Texts{"PWD=/workspace/dir"}
	inv.Mounts = append(inv.Mounts, runners.Mount{Path: "/tmp", Source: w.path("tmp"), Write: true})
	r := run(t, inv, "pwd", "list\t.", "read\tworkspace/dir/file", "creat\ttmp/x\ty",
		"read\tworkspace/../tmp/x", "read\tetc/shadow", "walk\t.", "walk\t/etc")
	want := []string{"/workspace/dir <nil>", `0	"workspace tmp"`, `0	"inside dir"`, `0	""`,
		`0	"y\n"`, `2	""`, "1 10", "0 0"}
	for i, line := range r.lines() {
		if i >= len(want) || line != want[i] {
			t.Errorf("line %d: %q", i, line)
		}
	}
	if !r.denied("read /etc/shadow") || !r.denied("read /etc") {
		t.Errorf("records: %v", r.Denied)
	}
}

func TestHiddenNames(t *testing.T) {
	w := newWorld(t)
	w.file("in/.env", "secret")
	w.file("in/dir/key.pem", "secret")
	w.link(".env", "in/l")
	inv := w.preopens()
	ops := []string{"read\t.env", "read\tl", "read\tdir/key.pem", "rename\t.env\tx"}
	if r := run(t, inv, ops[:3]...); strings.Count(r.stdout, "secret") != 3 {
		t.Errorf("the control: %s", r.stdout)
	}
	inv.Mounts[0].Hide = []string{".env", "**/*.pem"}
	r := run(t, inv, append(ops, "list\tdir")...)
	if r.stdout != strings.Repeat("44\t\"\"\n", 4)+"0\t\"file\"\n" ||
		!r.denied("read /workspace/.env") {
		t.Errorf("%s %v", r.stdout, r.Denied)
	}
	inv.Mounts[0].Hide = []string{"a/../b"}
	if r := run(t, inv, "list\t."); r.err == nil {
		t.Error("a bad pattern is accepted")
	}
}

func TestSocketsAndTime(t *testing.T) {
	w := newWorld(t)
	r := run(t, w.preopens(), "sock", "sock", "sleep\t1ms", "random\t100000")
	if r.stdout != "57\n57\nslept\n0 true\n" {
		t.Errorf("%q %s", r.stdout, r.stderr)
	}
	if len(r.Denied) != 1 || r.Denied[0].What != "socket sock_accept" || r.Denied[0].Count != 2 ||
		r.Denied[0].Layer != "wasi" {
		t.Errorf("records: %+v", r.Denied)
	}
}

// T-119
func TestOpenFilesCap(t *testing.T) {
	w := newWorld(t)
	inv := w.preopens()
	inv.OpenFiles = 50
	r := run(t, inv, "openmany\tfile")
	if r.stdout != "33 46\n" || r.Usage.OpenPeak != 50 {
		t.Errorf("%q, peak %d", r.stdout, r.Usage.OpenPeak)
	}
}

// T-111: a FIFO does not stop the tool.
func TestFIFO(t *testing.T) {
	w := newWorld(t)
	w.must(mkfifo(w.path("in/fifo")))
	r := run(t, w.preopens(), "read\tfifo", "write\tfifo\tx", "stat\tfifo", "unlink\tfifo")
	if r.stdout != "2\t\"\"\n2\t\"\"\n0\t\"0\"\n0\t\"\"\n" || !r.denied("read /workspace/fifo") {
		t.Errorf("%q %v", r.stdout, r.Denied)
	}
}

// A stream of any length passes through with the same memory.
func TestStreams(t *testing.T) {
	size := int64(1 << 30)
	if testing.Short() {
		size = 16 << 20
	}
	in, inW := pipe(t)
	outR, out := pipe(t)
	go func() {
		io.Copy(inW, io.LimitReader(zeros{}, size))
		inW.Close()
	}()
	got := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(io.Discard, outR)
		got <- n
	}()
	l := loaded(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rep, err := l.Run(context.Background(), runners.Invocation{Args: runners.Texts{"prober", "cat"},
		MemoryLimit: 64 << 20}, in, out, nil)
	runtime.ReadMemStats(&after)
	out.Close()
	if n := <-got; err != nil || rep.ExitCode != 0 || n != size || rep.Usage.StdoutBytes != size {
		t.Errorf("%d of %d bytes, %+v %v", n, size, rep, err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
		t.Errorf("the host allocated %d bytes", grown)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func loaded(t testing.TB) *Loaded {
	t.Helper()
	l, err := Load(context.Background(), prober(), runners.ModuleLimits{}, proberCache())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(context.Background()) })
	return l
}

// Nobody reads the output: the tool ends as by SIGPIPE, without a word.
func TestBrokenPipe(t *testing.T) {
	r, w := pipe(t)
	r.Close()
	errs := tempFile(t, "")
	rep, err := loaded(t).Run(context.Background(),
		runners.Invocation{Args: runners.Texts{"prober", "flood\t1000000"}}, nil, w, errs)
	if err != nil || rep.ExitCode != wasi.ExitPipe || rep.Trap != nil || contents(t, errs) != "" {
		t.Errorf("%+v %v %q", rep, err, contents(t, errs))
	}
}

// Streams that are not there: the end of input, and output into nothing.
func TestClosedStreams(t *testing.T) {
	errs := tempFile(t, "")
	rep, err := loaded(t).Run(context.Background(),
		runners.Invocation{Args: runners.Texts{"prober", "cat", "flood\t100"}}, nil, nil, errs)
	if err != nil || rep.ExitCode != 0 || contents(t, errs) != "0 <nil>\n" {
		t.Errorf("%+v %v %q", rep, err, contents(t, errs))
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer full.Close()
	rep, err = loaded(t).Run(context.Background(),
		runners.Invocation{Args: runners.Texts{"prober", "flood\t100"}}, nil, full, errs)
	if err != nil || rep.ExitCode != 3 || !strings.Contains(contents(t, errs), "No space left") {
		t.Errorf("full disk: %+v %v %q", rep, err, contents(t, errs))
	}
}

// A Go guest makes its streams non-blocking and polls: late input still arrives.
func TestLateInput(t *testing.T) {
	in, inW := pipe(t)
	out := tempFile(t, "")
	started := make(chan struct{})
	go func() {
		<-started
		// Only widens the window; any order is right.
		time.Sleep(time.Millisecond)
		io.WriteString(inW, "late")
		inW.Close()
	}()
	close(started)
	rep, err := loaded(t).Run(context.Background(),
		runners.Invocation{Args: runners.Texts{"prober", "cat"}}, in, out, nil)
	if err != nil || rep.ExitCode != 0 || contents(t, out) != "late" {
		t.Errorf("%+v %v %q", rep, err, contents(t, out))
	}
}

// T-125: run after run of a loaded module leaves nothing behind.
func TestManyRuns(t *testing.T) {
	w := newWorld(t)
	l := loaded(t)
	inv := w.preopens()
	inv.Args = runners.Texts{"prober", "read\tfile", "openmany\tfile", "grow\t4"}
	runs := 200
	if testing.Short() {
		runs = 20
	}
	round := func() {
		for range runs {
			if rep, err := l.Run(context.Background(), inv, nil, nil, nil); err != nil ||
				rep.ExitCode != 0 {
				t.Fatalf("%+v %v", rep, err)
			}
		}
		runtime.GC()
	}
	round()
	fds, rss := openFDs(t), residentPages(t)
	round()
	if now := openFDs(t); now != fds {
		t.Errorf("%d descriptors, before %d", now, fds)
	}
	if now := residentPages(t); now > rss+32<<20/4096 {
		t.Errorf("%d pages are resident, before %d", now, rss)
	}
}

func openFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
