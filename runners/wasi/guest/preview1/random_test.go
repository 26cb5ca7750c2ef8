package preview1

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners/wasi"
)

// hostilePaths are what a guest tries as paths.
var hostilePaths = []string{"d/f", "d", "d/", "../secret", "d/../../secret", "/etc/passwd", "l",
	"l/", "l/../secret", "up/secret", "new", "d/new/", ".", "..", "",
	"d//f", "d/./f", "d\x00/f", strings.Repeat("a", 256), strings.Repeat("a/", 2000), "w/d/f",
	"w/../../secret", "\xff\xfe", "d/f/.", "loop"}

// pathsAt is where they lie in memory: each at a multiple of 16 bytes, the long ones last.
const (
	pathsAt  = 4096
	randomMB = 64 << 10
)

// A caller makes calls with arguments that are often meaningful and never trusted.
type caller struct {
	*rand.Rand
	// Of the paths: pointer, length.
	places [][2]uint64
	mem    []byte
}

func newCaller(seed uint64) *caller {
	c := &caller{Rand: rand.New(rand.NewPCG(seed, 1)), mem: make([]byte, randomMB)}
	at := uint64(pathsAt)
	for _, p := range hostilePaths {
		c.places = append(c.places, [2]uint64{at, uint64(len(p))})
		at += uint64(len(p)+15) &^ 15
	}
	return c
}

// word is a number at a boundary of something, or any.
func (c *caller) word() uint64 {
	edges := [...]uint64{0, 1, 2, 3, 4, 5, 7, 8, 63, 64, 1024, 1025, 4096, randomMB - 8,
		randomMB - 1, randomMB, 1<<31 - 1, 1 << 31, 1<<32 - 8, 1<<32 - 1, 1<<63 - 1, 1 << 63,
		1<<64 - 1}
	switch c.IntN(4) {
	case 0:
		return c.Uint64()
	case 1:
		return c.Uint64N(randomMB)
	}
	return edges[c.IntN(len(edges))]
}

// fill writes the paths, lists of buffers of all kinds below address 1024, and subscriptions behind
// them, the first of which is always due.
func (c *caller) fill() {
	for i := 0; i < 1024; i += 8 {
		binary.LittleEndian.PutUint32(c.mem[i:], uint32(c.word()))
		binary.LittleEndian.PutUint32(c.mem[i+4:], uint32(c.word()))
	}
	for i := 1024; i < pathsAt; i += subscriptionSize {
		s := c.mem[i : i+subscriptionSize]
		clear(s)
		s[8] = byte(c.IntN(4))
		binary.LittleEndian.PutUint32(s[16:], uint32(c.IntN(12)))
		if i == 1024 {
			s[8], s[16] = eventClock, 1
		}
	}
	for i, p := range hostilePaths {
		copy(c.mem[c.places[i][0]:], p)
	}
}

func (c *caller) args(name string) []uint64 {
	a := make([]uint64, 16)
	for i := range a {
		a[i] = c.word()
	}
	if c.IntN(8) == 0 {
		return a
	}
	place := func(i int) {
		if c.IntN(8) > 0 {
			p := c.places[c.IntN(len(c.places))]
			a[i], a[i+1] = p[0], p[1]
		}
	}
	a[0] = c.Uint64N(12) // a descriptor
	switch name {
	case "path_create_directory", "path_remove_directory", "path_unlink_file", "path_readlink":
		place(1)
	case "path_open", "path_filestat_get", "path_filestat_set_times":
		place(2)
	case "path_rename":
		place(1)
		a[3] = c.Uint64N(12)
		place(4)
	case "path_link":
		place(2)
		a[4] = c.Uint64N(12)
		place(5)
	case "path_symlink":
		place(0)
		a[2] = c.Uint64N(12)
		place(3)
	case "fd_read", "fd_write", "fd_pread", "fd_pwrite":
		a[1], a[2] = 8*c.Uint64N(128), c.Uint64N(5)
	case "fd_renumber":
		a[1] = c.Uint64N(12)
	case "poll_oneoff":
		a[0], a[1], a[2], a[3] = 1024, 1<<15, 1+c.Uint64N(60), 16
	}
	// What would fill the disk is too large for any disk.
	switch name {
	case "fd_allocate":
		a[1], a[2] = a[1]%4096, []uint64{a[2] % 65536, 1 << 62, 1<<63 - 1, 1 << 63}[c.IntN(4)]
	case "fd_pwrite":
		a[3] %= 1 << 20
	case "fd_filestat_set_size":
		a[1] = []uint64{a[1] % 65536, 1 << 62, 1 << 63, 1<<64 - 1}[c.IntN(4)]
	}
	return a
}

// T-110, T-120: every function many times, with pointers, lengths, lists of buffers, descriptors
// and paths at random. Nothing panics, nothing outside the mount changes, and no descriptor comes
// from nowhere.
func TestCallsAtRandom(t *testing.T) {
	rounds := 2000
	if os.Getenv("JAIL_TEST_LONG") != "" {
		rounds = 1_000_000
	}
	for i := range wasi.Functions {
		name := wasi.Functions[i].Name
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			write := func(p, text string) {
				if err := os.WriteFile(filepath.Join(top, p), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write("secret", "canary")
			c := newCaller(uint64(i))
			n, failed := rounds, 0
			if strings.HasSuffix(name, "sync") && rounds < 1_000_000 {
				// Each waits for the disk.
				n /= 20
			}
			for done := 0; done < n; {
				in := filepath.Join(top, "in")
				if err := os.RemoveAll(in); err != nil {
					t.Fatal(err)
				}
				if err := os.MkdirAll(filepath.Join(in, "d"), 0o755); err != nil {
					t.Fatal(err)
				}
				write("in/d/f", "file")
				for link, target := range map[string]string{"l": "d", "up": "..", "loop": "loop"} {
					if err := os.Symlink(target, filepath.Join(in, link)); err != nil {
						t.Fatal(err)
					}
				}
				p := newGuest(t, in)
				c.fill()
				call(p, "path_open", c.mem, 3, 1, c.places[0][0], 3, 0,
					rightFdRead|rightFdWrite|rightFdSeek, 0, 0, 0)
				call(p, "path_open", c.mem, 3, 1, c.places[1][0], 1, openDirectory, 0, 0, 0, 0)
				for range min(500, n-done) {
					done++
					if e, _ := call(p, name, c.mem, c.args(name)...); e != success {
						failed++
					}
					if c.IntN(200) == 0 {
						// A new tree, where this one has nothing left to do harm with.
						break
					}
					if c.IntN(10) == 0 {
						// What came out went over it.
						c.fill()
					}
				}
				if p.fds.open > 32 || p.fds.open < 0 {
					t.Fatalf("%d descriptors", p.fds.open)
				}
				p.Close()
			}
			if b, err := os.ReadFile(filepath.Join(top, "secret")); err != nil ||
				string(b) != "canary" {
				t.Errorf("canary: %q, %v", b, err)
			}
			if list, err := os.ReadDir(top); err != nil || len(list) != 2 {
				t.Errorf("outside: %v, %v", list, err)
			}
			t.Logf("%d calls, %d of them refused", n, failed)
		})
	}
	t.Run("control", func(t *testing.T) {
		// The check that adds in 32 bits, as engines have had it, takes what lies nowhere.
		ptr, n, size := uint32(1<<32-4), uint32(8), uint32(randomMB)
		if ptr+n > size {
			t.Error("the attack does not work")
		}
		if _, ok := memory(make([]byte, size)).at(ptr, n); ok {
			t.Error("a pointer near 4 GiB and its length wrap around")
		}
	})
}
