package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
	. "github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

// long reports whether the long forms of tests are wanted.
func long() bool { return os.Getenv("JAIL_TEST_LONG") != "" }

// T-106: a guest exchanges names for links to the outside while another uses them, on the same
// tree.
func TestSwappingGuest(t *testing.T) {
	plant := func(w *world) {
		w.dir("in/d")
		w.file("in/d/f", "inside")
		w.file("in/f", "inside")
		w.link("../out/dir", "in/evil")
		w.link("../out/secret", "in/evilf")
		w.file("out/dir/f", canary)
		w.before = w.hash()
	}
	swaps := 4000
	if long() {
		swaps = 100_000
	}
	w := newWorld(t)
	plant(w)
	swapped := make(chan result, 1)
	go func() {
		r := run(t, w.preopens(), fmt.Sprint("swap\t", swaps))
		_ = os.WriteFile(w.path("in/stop"), []byte("x"), 0o644)
		swapped <- r
	}()
	r := run(t, w.preopens(), "race\tstop")
	s := <-swapped
	if s.err != nil || strings.TrimSpace(s.stdout) != fmt.Sprint(swaps) {
		t.Fatalf("%q %v", s.stdout, s.err)
	}
	var rounds, inside, leaked int
	if _, err := fmt.Sscan(r.stdout, &rounds, &inside, &leaked); err != nil || r.err != nil {
		t.Fatalf("%q %v %v", r.stdout, err, r.err)
	}
	if leaked != 0 || inside == 0 || !w.untouched() {
		t.Errorf("%d leaks, %d reads of the inside, outside untouched: %v", leaked, inside,
			w.untouched())
	}
	t.Logf("%d swaps, %d rounds of 15 operations, %d reads of the inside", swaps, rounds, inside)

	t.Run("control", func(t *testing.T) {
		w := newWorld(t)
		plant(w)
		w.file("in/stop", "x")
		lines := w.stock("swap\t1", "race\tstop")
		if fmt.Sscan(lines[1], &rounds, &inside, &leaked); leaked == 0 || w.untouched() {
			t.Errorf("the engine's own mount holds: %q", lines)
		}
	})
}

// T-108: what os.Root got wrong at one time or another, on the directories that guests get.
func TestRootBugs(t *testing.T) {
	w := newWorld(t)
	w.link("../out", "in/d")
	w.link("../out/secret", "in/f")
	w.link("..", "in/up")
	// CVE-2025-22873: ".." at the end
	ops := []string{"list\t../", "list\tdir/../../", "read\tdir/../../out/secret",
		// CVE-2026-39822: a link and a slash
		"read\td/", "list\td/", "list\tup/", "mkdir\td/x/", "rmdir\td/dir/", "creat\tf/\tx",
		"stat\tf/",
		// CVE-2026-32282: what changes an inode follows a link
		"utimes\tf", "fdtimes\tf", "setsize\tf",
		"rename\tf/\tg", "link\tf/\tg"}
	r := run(t, w.preopens(), ops...)
	for i, line := range r.lines() {
		if ok(line) {
			t.Errorf("%q: %s", ops[i], line)
		}
	}
	// CVE-2026-27139: a listing says what an entry is without following it.
	if r := run(t, w.preopens(), "list\t.", "lstat\tf",
		"lstat\td"); r.stdout != "0\t\"d dir f file up\"\n0\t\"7\"\n0\t\"7\"\n" &&
		!strings.HasSuffix(r.stdout, "0\t\"7\"\n0\t\"7\"\n") {
		t.Errorf("%s", r.stdout)
	}
	if !w.untouched() {
		t.Error("reached the outside")
	}
	t.Run("control", func(t *testing.T) {
		w := newWorld(t)
		w.link("../out", "in/d")
		w.link("../out/secret", "in/f")
		if lines := w.stock("list\td/", "setsize\tf", "utimes\tf"); w.untouched() || !ok(lines[0]) {
			t.Errorf("the engine's own mount holds: %q", lines)
		}
	})
}

// T-122: rights are what preview 1 calls them and decide nothing: the mount decides, whatever a
// guest gives itself.
func TestRightsDecideNothing(t *testing.T) {
	w := newWorld(t)
	if r := run(t, w.readOnly(), "rights\tfile",
		"read\tfile"); r.stdout != "8\t\"\"\n0\t\"inside\"\n" || r.err != nil {
		t.Errorf("%s %v", r.stdout, r.err)
	}
	// The control: where the mount lets it, the same descriptor opened for writing is enough.
	if r := run(t, w.preopens(), "write\tfile\tx"); r.stdout != "0\t\"\"\n" {
		t.Errorf("with a writable mount: %s", r.stdout)
	}
}

// T-112, T-113: imports that block for ever end with their process.
func TestBlockingCallsAreKilled(t *testing.T) {
	imports := func(name string, sub string) func(m *Module) {
		return func(m *Module) {
			m.Imports = append(m.Imports, Import{Module: wasi.Preview1, Name: name, Type: 1})
			m.Exports[0].Index = 2
			m.Data[0] += strings.Repeat("\x00", 64+8-len(m.Data[0])) + sub
		}
	}
	clock := "\x00" + strings.Repeat("\x00", 7) + "\x01" + strings.Repeat("\x00",
		7) + strings.Repeat("\xff", 7) + "\x7f" + strings.Repeat("\x00", 16)
	poll := Cat(I32Const(64), I32Const(128), I32Const(1), I32Const(200), op(0x10, 1, 0x1a))
	read := Cat(I32Const(0), I32Const(0), I32Const(1), I32Const(8), op(0x10, 1, 0x1a))
	for name, module := range map[string][]byte{
		"sleeps 2^63 ns":  announced(poll, imports("poll_oneoff", clock)),
		"reads its input": announced(read, imports("fd_read", "")),
		"fills the memory": announced(Cat(op(0x03, 0x40), I32Const(0), I32Const(0),
			I32Const(1<<16-1), op(0xfc, 11, 0, 0x0c, 0, 0x0b)), nil),
		"grows and gets none": announced(Cat(op(0x03, 0x40), I32Const(1<<15),
			op(0x40, 0, 0x1a, 0x0c, 0, 0x0b)), nil),
	} {
		t.Run(name, func(t *testing.T) { dies(t, module) })
	}
}

// T-120: lists of buffers from a guest through the engine, at the ends of its memory.
func TestVectorsThroughEngine(t *testing.T) {
	const fault = 21
	for _, tt := range []struct {
		list, n int64
		data    string
		want    int64
	}{
		{0, 1, "\x10\x00\x00\x00\x01\x00\x00\x00", 0}, {0, -1, "", 0}, {1 << 15, -1, "", 0},
		{1<<16 - 8*1023, -1, "", fault}, {-8, 1, "", fault}, {1<<16 - 7, 1, "", fault},
		// A list of 2^32-1 buffers is served as far as 1024 go.
		{0, 1, "\xff\xff\xff\xff\x01\x00\x00\x00", fault},
		{0, 1, "\x10\x00\x00\x00\xff\xff\xff\xff", fault},
		{0, 1, "\xfc\xff\xff\xff\x08\x00\x00\x00", fault},
		{0, 2, "\x00\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00",
			0}, // overlapping, the list itself
	} {
		code := Cat(I32Const(1), I32Const(tt.list), I32Const(tt.n), I32Const(32), op(0x10, 0),
			I32Const(tt.want), op(0x47, 0x04, 0x40, 0x00, 0x0b))
		module := with(code, func(m *Module) {
			m.Types = append(m.Types,
				Type{Params: []byte{I32, I32, I32, I32}, Results: []byte{I32}})
			m.Imports = []Import{{Module: wasi.Preview1, Name: "fd_write", Type: 1}}
			m.Exports[0].Index, m.Data = 1, []string{tt.data + strings.Repeat("\x00", 32)}
		})
		if r := runModule(t, runners.Invocation{}, module, ""); r.err != nil || r.Trap != nil {
			t.Errorf("list %d of %d: %v %+v", tt.list, tt.n, r.err, r.Trap)
		}
	}
}

// T-121: much randomness in one call.
func TestMuchRandomness(t *testing.T) {
	n := 16 << 20
	if long() {
		n = 1 << 30
	}
	if r := run(t, runners.Invocation{}, fmt.Sprint("random\t", n)); r.stdout != "0 true\n" {
		t.Errorf("%d bytes: %q %s", n, r.stdout, r.stderr)
	}
}

// T-124: no import sends requests for a guest: a helper that builds them is refused with the module
// that wants it.
func TestNoRequestHelper(t *testing.T) {
	for _, name := range []string{"http_request", "sock_connect", "sock_open", "sock_send_to",
		"fetch"} {
		module := with(nil, func(m *Module) {
			m.Types = append(m.Types, Type{Params: []byte{I32, I32}, Results: []byte{I32}})
			m.Imports = []Import{{Module: wasi.Preview1, Name: name, Type: 1}}
			m.Exports[0].Index = 1
		})
		if r := runModule(t, runners.Invocation{}, module, ""); !errors.Is(r.err, wasi.ErrImport) ||
			!r.denied("import "+wasi.Preview1+"."+name) {
			t.Errorf("%s: %v %v", name, r.err, r.Denied)
		}
	}
}

// T-125: compiling, running and closing leaves nothing behind.
func TestManyModules(t *testing.T) {
	runs := 100
	if long() {
		runs = 1000
	}
	round := func(n int) {
		for i := range n {
			module := with(Cat(I32Const(int64(i)), op(0x1a)),
				func(m *Module) { m.Data = []string{strings.Repeat("x", 4096)} })
			if rep, err := Run(context.Background(), runners.Invocation{Args: runners.Texts{"x"}},
				module, nil, nil, nil); err != nil || rep.ExitCode != 0 {
				t.Fatalf("%+v %v", rep, err)
			}
		}
		runtime.GC()
		// The first only queues finalizers.
		runtime.GC()
	}
	round(runs / 2)
	fds, rss := openFDs(t), residentPages(t)
	round(runs)
	grown := (residentPages(t) - rss) * os.Getpagesize() >> 10
	if now := openFDs(t); now != fds || grown > 16<<10 {
		t.Errorf("after %d modules: %d descriptors, before %d; %d KiB more", runs, now, fds, grown)
	}
	t.Logf("%d modules: %d KiB more are resident", runs, grown)
}

// T-127: every beginning of a whole module, through the engine.
func TestEveryPrefixThroughEngine(t *testing.T) {
	whole := announced(Cat(op(0x02, 0x40), I32Const(300), op(0x0d, 0, 0x0b)), pollsInput)
	loaded := 0
	for n := range whole {
		l, err := Load(context.Background(), whole[:n], wasi.Limits{}, "")
		var me *wasi.ModuleError
		switch {
		case err == nil:
			loaded++
			l.Close(context.Background())
		case !errors.As(err, &me):
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	if loaded != 1 {
		t.Errorf("%d beginnings load; only that without the data section is a module", loaded)
	}
	l, err := Load(context.Background(), whole, wasi.Limits{}, "") // the control
	if err != nil {
		t.Fatal(err)
	}
	l.Close(context.Background())
	// And every byte turned over: whatever it means then, nothing panics.
	for at := range whole {
		l, err := Load(context.Background(), flip(whole, at), wasi.Limits{Functions: 1000}, "")
		if errors.Is(err, errEngine) {
			t.Errorf("byte %d: %v", at, err)
		}
		if err == nil {
			l.Close(context.Background())
		}
	}
}

// T-116: what CheckCode refuses is what takes the engine long: its time grows with the square of
// the size, and faster.
func TestBombsGrowFaster(t *testing.T) {
	if !long() {
		t.Skip("JAIL_TEST_LONG is not set: it compiles for half a minute")
	}
	compile := func(n int) time.Duration {
		module := with(Cat(bytes.Repeat(op(0x02, 0x40), n), bytes.Repeat(op(0x0b), n)), nil)
		if err := wasi.CheckCode(module); (err != nil) != (n > wasi.MaxNesting) {
			t.Errorf("%d: %v", n, err)
		}
		start := time.Now()
		l, err := Load(context.Background(), module, wasi.Limits{}, "")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(context.Background())
		return time.Since(start)
	}
	small, large := compile(wasi.MaxNesting/2), compile(wasi.MaxNesting*3)
	t.Logf("%d nested blocks: %v; %d: %v", wasi.MaxNesting/2, small, wasi.MaxNesting*3, large)
}
