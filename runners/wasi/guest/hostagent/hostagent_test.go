package hostagent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/runners/wasi/guest/linear"
)

// echo is a host whose answers are what was asked, and that counts those that are open.
type echo struct {
	open   int
	waited time.Duration
	breaks bool
}

type answer struct {
	io.Reader
	of *echo
}

func (a *answer) Close() error { a.of.open--; return nil }

func (e *echo) Ask(binding, method string, params []byte) io.ReadCloser {
	e.open++
	if e.breaks {
		return &answer{io.MultiReader(strings.NewReader("part"), broke{}), e}
	}
	return &answer{strings.NewReader(binding + "." + method + " " + string(params)), e}
}

type broke struct{}

func (broke) Read([]byte) (int, error) { return 0, errors.New("it broke\x1b") }

func (e *echo) Await(d time.Duration) []byte {
	e.waited = d
	return []byte(`{"type":"none"}`)
}

// memory is linear memory with a method at 0, params at 16 and room for what comes back.
func memory() []byte {
	mem := make([]byte, 256)
	copy(mem, "send")
	copy(mem[16:], "{}")
	return mem
}

const (
	size    = 256
	handle  = 100
	got     = 104
	into    = 128
	outside = size - 3
)

func do(t *testing.T, s *Answers, name string, mem []byte, a ...uint64) linear.Errno {
	t.Helper()
	f := Lookup(name)
	if f == nil {
		t.Fatalf("no function %s", name)
	}
	return s.Do(f, "PUBSUB", mem, a)
}

func TestCalls(t *testing.T) {
	host := &echo{}
	s, mem := New(host), memory()
	if e := do(t, s, "call", mem, 0, 4, 16, 2, handle); e != linear.Success {
		t.Fatal(e)
	}
	h := uint64(binary.LittleEndian.Uint32(mem[handle:]))
	var all []byte
	for {
		if e := do(t, s, "read", mem, h, into, 5, got); e != linear.Success {
			t.Fatal(e)
		}
		n := binary.LittleEndian.Uint32(mem[got:])
		if n == 0 {
			break
		}
		all = append(all, mem[into:into+n]...)
	}
	if string(all) != "PUBSUB.send {}" {
		t.Errorf("%q", all)
	}
	if e := do(t, s, "close", mem, h); e != linear.Success || host.open != 0 {
		t.Errorf("%d, %d open", e, host.open)
	}
	// What is closed is gone, and its number is used again.
	for _, name := range []string{"read", "close"} {
		if e := do(t, s, name, mem, h, into, 5, got); e != linear.BadHandle {
			t.Errorf("%s after close: %d", name, e)
		}
	}
	if e := do(t, s, "wait", mem, 1500, handle); e != linear.Success ||
		host.waited != 1500*time.Millisecond ||
		uint64(binary.LittleEndian.Uint32(mem[handle:])) != h {
		t.Errorf("%d, %v", e, host.waited)
	}
	if Lookup("nothing") != nil {
		t.Error("a function that is not there")
	}
}

// A guest with all answers open gets no other, and what it leaves is closed.
func TestHandles(t *testing.T) {
	host := &echo{}
	s, mem := New(host), memory()
	for range maxAnswers {
		if e := do(t, s, "call", mem, 0, 4, 16, 2, handle); e != linear.Success {
			t.Fatal(e)
		}
	}
	if e := do(t, s, "call", mem, 0, 4, 16, 2, handle); e != linear.TooMany ||
		host.open != maxAnswers {
		t.Errorf("one more: %d, %d open", e, host.open)
	}
	if e := do(t, s, "error", mem, into, 20, got); e != linear.Success ||
		!bytes.HasPrefix(mem[into:], []byte("16 answers are open ")) {
		t.Errorf("%d %q", e, mem[into:])
	}
	s.Close()
	if host.open != 0 {
		t.Errorf("%d are open after the end", host.open)
	}
}

// A pointer or a length out of memory, and a text that is too long, are errors before the host is
// asked.
func TestBounds(t *testing.T) {
	const far = 1 << 31
	for _, c := range []struct {
		name string
		args []uint64
		want linear.Errno
	}{
		{"call", []uint64{outside, 4, 16, 2, handle}, linear.BadPointer},
		{"call", []uint64{0, 4, 16, size, handle}, linear.BadPointer},
		{"call", []uint64{0, 4, 16, 2, outside}, linear.BadPointer},
		{"call", []uint64{0, far, 16, 2, handle}, linear.BadPointer},
		{"call", []uint64{far, far, 16, 2, handle}, linear.BadPointer},
		{"call", []uint64{0, maxMethod + 1, 16, 2, handle}, linear.BadArgument},
		{"wait", []uint64{0, outside}, linear.BadPointer},
		{"read", []uint64{0, outside, 4, got}, linear.BadHandle},
		{"read", []uint64{1 << 32, into, 4, got}, linear.BadHandle},
		{"close", []uint64{far}, linear.BadHandle},
		{"error", []uint64{outside, 4, got}, linear.BadPointer},
		{"error", []uint64{into, 4, outside}, linear.BadPointer},
	} {
		host := &echo{}
		if e := do(t, New(host), c.name, memory(), c.args...); e != c.want || host.open != 0 {
			t.Errorf("%s%v: %d, want %d; %d open", c.name, c.args, e, c.want, host.open)
		}
	}
	host := &echo{breaks: true}
	s, mem := New(host), memory()
	do(t, s, "call", mem, 0, 4, 16, 2, handle)
	for _, c := range []struct {
		args []uint64
		want linear.Errno
	}{{[]uint64{0, outside, 4, got}, linear.BadPointer},
		{[]uint64{0, into, 4, outside}, linear.BadPointer},
		{[]uint64{0, into, 9, got}, linear.Success}, {[]uint64{0, into, 9, got}, broken}} {
		if e := do(t, s, "read", mem, c.args...); e != c.want {
			t.Errorf("read%v: %d, want %d", c.args, e, c.want)
		}
	}
	// The words of the host come without what a terminal would obey.
	do(t, s, "error", mem, into, 60, got)
	if n := binary.LittleEndian.Uint32(mem[got:]); bytes.ContainsRune(mem[into:into+n], '\x1b') ||
		!bytes.HasPrefix(mem[into:], []byte("it broke")) {
		t.Errorf("%q", mem[into:into+n])
	}
}

// FuzzCalls makes any calls with any numbers: none reads or writes outside of memory, and no answer
// is left open after the end.
func FuzzCalls(f *testing.F) {
	f.Add([]byte("\x00\x00\x04\x10\x02\x64\x03\x00\x80\x05\x68\x00\x01\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x04\x05\x64\x00\x00\x00\x02\x80\xff\x68\x00\x00"))
	names := []string{"call", "close", "error", "read", "wait"}
	f.Fuzz(func(t *testing.T, program []byte) {
		host := &echo{}
		s := New(host)
		mem := memory()
		guard := append(mem, "guard"...)
		for len(program) >= 6 {
			var a []uint64
			for _, b := range program[1:6] {
				v := uint64(b)
				if b >= 0xf0 {
					// Near the ends of 32 and 64 bits.
					v = ^uint64(0) - uint64(b&7)
				}
				a = append(a, v)
			}
			s.Do(Lookup(names[int(program[0])%len(names)]), "HOST", guard[:size:size], a)
			if host.open > maxAnswers {
				t.Fatalf("%d answers are open", host.open)
			}
			program = program[6:]
		}
		s.Close()
		if host.open != 0 {
			t.Fatalf("%d answers are left open", host.open)
		}
		if string(guard[size:]) != "guard" {
			t.Fatal("it wrote behind memory")
		}
	})
}
