package runnertest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Said is what the process of [EachFault] prints when all of its work is on the disk.
const Said = "all of it is on the disk"

// faultDir names the directory of the process of EachFault.
const faultDir = "JAIL_TEST_FAULT_DIR"

// FaultDir returns the directory in which this process is to do the work of an EachFault, empty if
// it is not the one that does.
func FaultDir() string { return os.Getenv(faultDir) }

// changing are the calls by which a database is changed on the disk.
var changing = []string{"pwrite64", "fsync", "ftruncate", "open", "unlink", "fcntl", "close"}

// EachFault runs the test again in a process of its own, as often as that makes system calls on the
// files of a database: each time strace(1) kills it at another one, or has the call fail. The process
// works on a copy of the database named file in first. check then sees the directory, a name of the
// fault, and what the process printed.
func EachFault(t *testing.T, first, file string, check func(dir, what, out string)) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed")
	}
	killed, failed := 0, 0
	for _, call := range changing {
		for _, fault := range []string{"signal=KILL", "error=EIO", "error=ENOSPC"} {
			kills := fault == "signal=KILL"
			if !kills && (call == "close" || call == "fcntl") {
				// No disk fails them.
				continue
			}
			for n := 1; !t.Failed(); n++ {
				dir, hit, out := inject(t, first, file, call, fault, n)
				check(dir, fmt.Sprintf("%s, %s of call %d", call, fault, n), out)
				switch {
				case hit && kills:
					killed++
				case hit:
					failed++
				}
				if !hit {
					break
				}
			}
		}
	}
	t.Logf("killed %d times, failed %d times", killed, failed)
	if killed < 10 || failed < 3 {
		t.Errorf("killed %d times, failed %d times: the faults did not hit the work", killed, failed)
	}
}

// inject runs the test with a fault in the nth call of that name, and reports whether there was such
// a call.
func inject(t *testing.T, first, file, call, fault string, n int) (dir string, hit bool,
	out string) {
	t.Helper()
	dir = t.TempDir()
	text, err := os.ReadFile(filepath.Join(first, file))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, file)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	// The calls before the work are those of the start.
	cmd := exec.Command("strace", "-f", "-qq", "-o", trace, "-P", dir, "-P", path, "-P", path+"-wal",
		"-P", path+"-shm", "-P", path+"-journal", "-e", "trace="+call, "-e",
		fmt.Sprintf("inject=%s:%s:when=%d", call, fault, n),
		os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), faultDir+"="+dir)
	printed, _ := cmd.CombinedOutput()
	traced, err := os.ReadFile(trace)
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	hit = bytes.Contains(traced, []byte("(INJECTED)")) ||
		bytes.Contains(traced, []byte("killed by SIGKILL"))
	if !hit && !strings.Contains(string(printed), Said) {
		t.Fatalf("%s, %s of call %d: there was no such call, and the work was not done:\n%s", call,
			fault, n, printed)
	}
	return dir, hit, string(printed)
}
