package landlock_test

import (
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/landlock"
)

// versions is what each version of the interface restricts (landlock(7) and the kernel's
// Documentation/userspace-api/landlock.rst), in numbers of rights: on files, on TCP ports, and
// scopes. Versions 7, 8 and 10 bring flags for other things.
var versions = [][3]int{1: {13, 0, 0}, 2: {14, 0, 0}, 3: {15, 0, 0}, 4: {15, 2, 0}, 5: {16, 2, 0},
	6: {16, 2, 2}, 7: {16, 2, 2}, 8: {16, 2, 2}}

// TestTable: a newer version restricts all that an older one does, and what the kernel's
// documentation says.
func TestTable(t *testing.T) {
	if landlock.Versions < 11 {
		t.Errorf("the table ends with version %d", landlock.Versions)
	}
	var older [3]uint64
	for abi := 1; abi <= landlock.Versions; abi++ {
		var now [3]uint64
		now[0], now[1], now[2] = landlock.Handled(abi)
		for i := range now {
			if older[i]&^now[i] != 0 {
				t.Errorf("version %d does not restrict %#x, which the one before does", abi,
					older[i]&^now[i])
			}
			if abi < len(versions) && bits.OnesCount64(now[i]) != versions[abi][i] {
				t.Errorf("version %d restricts %d things of kind %d, want %d", abi,
					bits.OnesCount64(now[i]), i, versions[abi][i])
			}
		}
		older = now
	}
}

// since says which version of the interface is the first to stop an attack, and which other layer
// of a jail stops it below. Each of these has its row in docs/walls.md.
var since = []struct {
	op, path string
	abi      int
	other    string
}{
	{"write", "read/f", 1, ""},
	{"truncate", "read/f", 3, "mounts are read-only"},
	{"listen", "", 4, "a network of the jail's own, and the filters"},
	{"ask a device", "", 5, "the filters know what is asked"},
	{"abstract socket", "", 6, "a network of the jail's own, and the filters"},
	{"signal", "", 6, "processes of the jail's own"},
	{"connect", "read/socket", 9, "a shadow, whose sockets are not those of the host"},
}

// TestVersions tries each attack as every kernel up to the running one would meet it: what a
// version lacks is seen to work, so that the other layer is there for it, and from its version on
// Landlock stops it (T-061).
func TestVersions(t *testing.T) {
	running, err := landlock.ABI()
	if err != nil {
		t.Skipf("landlock: %v", err)
	}
	abstract := fmt.Sprintf("@jail-landlock-test-%d", os.Getpid())
	serve(t, abstract)
	for _, a := range since {
		for abi := 1; abi <= min(running, landlock.Versions); abi++ {
			dir := tree(t)
			path := filepath.Join(dir, a.path)
			switch a.op {
			case "abstract socket":
				path = abstract
			case "connect":
				serve(t, path)
			}
			l := &jail.Landlock{MinABI: 1, Scoped: true,
				Rules: []jail.LandlockRule{{Path: filepath.Join(dir, "read")}, {Path: "/dev",
					Write: true}}}
			got := ask(t, order{Op: a.op, Path: path, Landlock: l, ABI: abi})
			if (got == "ok") != (abi < a.abi) {
				t.Errorf("version %d: %s: %s; stopped from version %d on, before: %s", abi, a.op,
					got, a.abi, a.other)
			}
		}
	}
}

func init() {
	ops["truncate"] = func(p string) error { return os.Truncate(p, 0) }
	// Which has no answer but that this is none of its questions.
	ops["ask a device"] = func(string) error {
		f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err = unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == unix.ENOTTY {
			return nil
		}
		return err
	}
	ops["abstract socket"] = ops["connect"]
	ops["signal"] = func(string) error { return unix.Kill(os.Getppid(), 0) }
}
