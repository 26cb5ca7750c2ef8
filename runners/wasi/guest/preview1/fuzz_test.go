package preview1

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/internal/sys"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/runners/wasi/guest/view"
)

// exited is how a guest's end is told in these tests.
type exited int

// newGuest makes a process with a mount and the streams of no one.
func newGuest(t testing.TB, dir string) *Process {
	t.Helper()
	fd, err := sys.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var denials runners.Denials
	v, err := view.New([]view.Mount{{Path: "/w", FD: fd, Write: true}}, nobody{})
	if err != nil {
		t.Fatal(err)
	}
	d, e := v.Preopen("/w")
	if e != 0 {
		t.Fatal(e)
	}
	r, e := v.Root()
	if e != 0 {
		t.Fatal(e)
	}
	p := New(Config{Args: []string{"a", "b"}, Env: []string{"C=d"}, Stdin: -1, Stdout: -1,
		Stderr: -1, OpenFiles: 32,
		Dirs: []Preopen{{"/w", d}, {"/", r}}, Exit: func(code int) { panic(exited(code)) }},
		&denials)
	t.Cleanup(func() { p.Close(); v.Close() })
	return p
}

type nobody struct{}

func (nobody) Denied(string, string) {}

// call runs one function, and reports whether the guest ended.
func call(p *Process, name string, mem []byte, a ...uint64) (e Errno, ended bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(exited); !ok {
				panic(r)
			}
			ended = true
		}
	}()
	stack := make([]uint64, 16)
	copy(stack, a)
	return Lookup(name)(p, mem, stack), false
}

// FuzzCalls makes any calls with any pointers (T-110, T-120): nothing may panic,
// and nothing outside the mount may change. A call is a byte for the function
// and 18 for its parameters, most of them small so that they fit often.
func FuzzCalls(f *testing.F) {
	f.Add([]byte("\x13\x03\x00\x00\x10\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
		[]byte("d/f\x00../secret"))
	f.Add([]byte("\x1f\x03\x01\x00\x00\x03\x01\xff\x00\xff\x00\x00\x00\x40\x00\x00\x00\x00\x00"),
		[]byte("d/f"))
	f.Fuzz(func(t *testing.T, program, memory []byte) {
		top := t.TempDir()
		for name, text := range map[string]string{"secret": "canary", "in/d/f": "f"} {
			if err := os.MkdirAll(filepath.Join(top, filepath.Dir(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(top, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		p := newGuest(t, filepath.Join(top, "in"))
		mem := make([]byte, 4096)
		copy(mem, memory)
		for n := 0; len(program) >= 19 && n < 100; n++ {
			f := wasi.Functions[int(program[0])%len(wasi.Functions)]
			var a [9]uint64
			for i := range a {
				v := uint64(binary.LittleEndian.Uint16(program[1+2*i:]))
				switch {
				case v >= 0xff00:
					// The ends of the ranges.
					v = uint64(int64(int8(v))) & (1<<32 - 1)
				case v >= 0xfe00:
					v = uint64(int64(int8(v)))
				}
				a[i] = v
			}
			program = program[19:]
			if f.Name == "poll_oneoff" || f.Name == "fd_allocate" && a[2] > 1<<16 && a[2] < 1<<40 {
				// They may wait as long as they are asked to, and fill the disk.
				continue
			}
			if _, ended := call(p, f.Name, mem, a[:]...); ended {
				break
			}
		}
		if b, err := os.ReadFile(filepath.Join(top, "secret")); err != nil ||
			string(b) != "canary" {
			t.Errorf("canary: %q %v", b, err)
		}
		if n, err := os.ReadDir(top); err != nil || len(n) != 2 {
			t.Errorf("outside: %v %v", n, err)
		}
	})
}

// Every function, with pointers at and beyond the end of memory.
func TestPointers(t *testing.T) {
	edges := []uint64{0, 1, 63, 64, 65, 4095, 4096, 1<<31 - 1, 1 << 31, 1<<32 - 8, 1<<32 - 1}
	for i := range wasi.Functions {
		f := &wasi.Functions[i]
		if f.Name == "sched_yield" {
			continue
		}
		for _, size := range []int{0, 64, 4096} {
			p := newGuest(t, t.TempDir())
			mem := make([]byte, size)
			for _, x := range edges {
				for _, y := range edges {
					a := make([]uint64, 9)
					for k := range a {
						a[k] = []uint64{x, y}[k%2]
					}
					a[0] = 3 // mostly a descriptor
					call(p, f.Name, mem, a...)
					a[0] = x
					call(p, f.Name, mem, a...)
				}
			}
			p.Close()
		}
	}
	if _, ok := (memory(make([]byte, 8))).at(1<<32-4, 8); ok {
		t.Error("a pointer near 4 GiB and its length wrap around")
	}
}

// T-110: descriptors that are closed, moved, made up.
func TestDescriptors(t *testing.T) {
	p := newGuest(t, t.TempDir())
	mem := make([]byte, 4096)
	copy(mem, "file")
	open := func() (Errno, uint64) {
		e, _ := call(p, "path_open", mem, 3, 0, 0, 4, openCreate, rightFdRead|rightFdWrite, 0, 0,
			100)
		return e, uint64(binary.LittleEndian.Uint32(mem[100:]))
	}
	e, fd := open()
	if e != 0 || fd != 5 {
		t.Fatalf("open: %d, descriptor %d", e, fd)
	}
	for _, tt := range []struct {
		name string
		a    []uint64
		want Errno
	}{
		{"fd_renumber", []uint64{5, 99}, errBadf}, {"fd_renumber", []uint64{99, 5}, errBadf},
		{"fd_renumber", []uint64{5, 5}, success},
		{"fd_renumber", []uint64{1<<32 - 1, 5}, errBadf}, {"fd_renumber", []uint64{5, 3}, success},
		{"fd_close", []uint64{5}, errBadf},
		{"fd_prestat_get", []uint64{3, 200}, errBadf},
		{"fd_prestat_get", []uint64{4, 200}, success}, {"fd_close", []uint64{3}, success},
		{"fd_close", []uint64{3}, errBadf}, {"fd_close", []uint64{1 << 31}, errBadf},
		{"fd_renumber", []uint64{4, 0}, success},
		{"fd_close", []uint64{0}, success}, {"fd_read", []uint64{0, 0, 0, 0}, errBadf},
		{"fd_write", []uint64{2, 300, 0, 400}, success},
		{"fd_close", []uint64{1}, success}, {"fd_close", []uint64{2}, success},
		{"fd_fdstat_get", []uint64{2, 200}, errBadf},
	} {
		if e, _ := call(p, tt.name, mem, tt.a...); e != tt.want {
			t.Errorf("%s %d: %d, want %d", tt.name, tt.a, e, tt.want)
		}
	}
	if p.fds.open != 0 {
		t.Errorf("%d descriptors are counted as open", p.fds.open)
	}
	if e, _ := open(); e != errBadf {
		t.Errorf("open with no directory left: %d", e)
	}
}

// T-119: no more descriptors than allowed, and all of them again after closing.
func TestOpenFiles(t *testing.T) {
	p := newGuest(t, t.TempDir())
	mem := make([]byte, 4096)
	copy(mem, "file")
	for round := range 3 {
		opened := 0
		for ; opened < 1000; opened++ {
			if e, _ := call(p, "path_open", mem, 3, 0, 0, 4, openCreate, rightFdRead, 0, 0,
				100); e == errMfile {
				break
			}
		}
		if opened != 32-5 {
			t.Errorf("round %d: %d opened", round, opened)
		}
		for fd := range uint64(opened) {
			if e, _ := call(p, "fd_close", mem, 5+fd); e != 0 {
				t.Errorf("close %d: %d", 5+fd, e)
			}
		}
	}
	if p.OpenPeak() != 32 {
		t.Errorf("peak %d", p.OpenPeak())
	}
}
