package view

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// T-106: names are exchanged for links to the outside while they are used.
func TestRace(t *testing.T) {
	span := 2 * time.Second
	if testing.Short() {
		span = 200 * time.Millisecond
	}
	top := files(t, map[string]string{
		"in/d/f": "inside", "in/evil": "-> ../out", "in/f": "inside", "in/evilf": "-> ../out/f",
		"out/f": "canary", "in/deep/x/y/f": "inside",
	})
	in := filepath.Join(top, "in")
	fd, err := sys.OpenDir(in)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	var stop atomic.Bool
	swaps := make(chan int)
	go func() {
		n := 0
		for !stop.Load() {
			// Errors are the guest's own doing: it renames as well.
			_ = unix.Renameat2(fd, "d", fd, "evil", unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(fd, "f", fd, "evilf", unix.RENAME_EXCHANGE)
			n += 2
		}
		swaps <- n
	}()
	for name, hide := range map[string][]string{"by the kernel": nil, "walked": {"*.key"}} {
		v, _ := newView(t, mountAt(t, "/w", in, true, hide...))
		attack(t, name, sub(t, root(t, v), "w"), span/2)
	}
	// The control: a checked and joined path, as the engine's own mount has.
	leaked := false
	for end := time.Now().Add(30 * time.Second); !leaked && time.Now().Before(end); {
		p := filepath.Join(in, "d", "f")
		if i, err := os.Lstat(filepath.Join(in, "d")); err == nil && i.IsDir() {
			b, _ := os.ReadFile(p)
			leaked = string(b) == "canary"
		}
	}
	if !leaked {
		t.Error("check and use of a joined path never leaked; the race does not work")
	}
	stop.Store(true)
	t.Logf("%d swaps", <-swaps)
	if b, err := os.ReadFile(filepath.Join(top, "out", "f")); err != nil || string(b) != "canary" {
		t.Errorf("outside is %q, %v", b, err)
	}
	if n, err := os.ReadDir(filepath.Join(top, "out")); err != nil || len(n) != 1 {
		t.Errorf("outside has %v, %v", n, err)
	}
}

func attack(t *testing.T, name string, d *Dir, span time.Duration) {
	t.Helper()
	rounds, inside := 0, 0
	for end := time.Now().Add(span); time.Now().Before(end); rounds++ {
		for _, p := range []string{"d/f", "f", "d/../f", "deep/x/../x/y/../../../d/f",
			"d/../deep/../d/f"} {
			switch s, e := text(d, p); {
			case s == "canary":
				t.Fatalf("%s: %s leads outside", name, p)
			case e == 0:
				inside++
			}
		}
		if o, e := d.Open("d/f",
			How{Write: true, Truncate: true, Create: true, Follow: true}); e == 0 {
			_, _ = sys.Pwritev(o.FD, [][]byte{[]byte("inside")}, 0)
			sys.Close(o.FD)
		}
		d.Mkdir("d/new")
		d.Rename("d/new", d, "d/new2")
		d.Rmdir("d/new2")
		d.Symlink("x", "d/l")
		d.Unlink("d/l")
		d.Link("d/f", d, "d/g")
		d.Unlink("d/g")
		d.SetTimes("d/f", true, &[2]sys.Timespec{{Sec: 1}, {Sec: 1}})
	}
	if inside == 0 {
		t.Errorf("%s: not one of %d rounds read the inside", name, rounds)
	}
	t.Logf("%s: %d rounds", name, rounds)
}

// Every way through the resolver gives its descriptors back.
func TestNoLeak(t *testing.T) {
	dir := files(t, map[string]string{"d/e/f": "f", "l": "-> d/e", "abs": "-> /w/d/e/f",
		"up": "-> ../t/f", "loop": "-> loop", "k.pem": "x"})
	v, _ := newView(t, mountAt(t, "/w", dir, true, "*.pem"),
		mountAt(t, "/t", files(t, map[string]string{"f": "f"}), false), mountAt(t, "/p", dir, true))
	d := root(t, v)
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := count()
	for _, m := range []string{"w/", "p/", "t/", ""} {
		for _, p := range []string{"d/e/f", "l/f", "abs", "up", "loop", "loop/x", "k.pem",
			"d/../l/../e/f", "d/e/f/x", "d/..", ".", "..", "../..", "../x", "d/e/", "none",
			"none/x", "l", "../w/up", ""} {
			for _, how := range []How{{Read: true, Follow: true}, {Read: true},
				{Write: true, Create: true}, {Read: true, Directory: true, Follow: true},
				{Write: true, Create: true, Exclusive: true}} {
				if o, e := d.Open(m+p, how); e == 0 {
					if o.Dir != nil {
						o.Dir.Close()
					} else {
						sys.Close(o.FD)
					}
				}
			}
			d.Stat(m+p, true)
			d.Stat(m+p, false)
			d.SetTimes(m+p, true, &[2]sys.Timespec{})
			d.Readlink(m+p, make([]byte, 10))
			d.Mkdir(m + p)
			d.Symlink("x", m+p)
			d.Link(m+p, d, m+"new")
			d.Rename(m+p, d, m+"d/new")
			d.Rename(m+p+"/", d, m+"d/new/")
			d.Unlink(m + p)
			d.Rmdir(m + p)
		}
	}
	if now := count(); now != before {
		t.Errorf("%d descriptors, before %d", now, before)
	}
	if len(v.dirs) != 0 {
		t.Errorf("%d directories are counted as open", len(v.dirs))
	}
}
