package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners/agent"
)

// faulty are the calls by which a database is changed on the disk.
var faulty = []string{"pwrite64", "fsync", "ftruncate", "open", "unlink", "fcntl", "close"}

// TestFaults kills the process at each system call of an event, and has each fail: the database is in
// the state before the event or in that after it, with its effects, and in the latter if the commit
// was said to be on the disk.
func TestFaults(t *testing.T) {
	if dir := os.Getenv("STORE_TEST_DIR"); dir != "" {
		second(t, dir)
		return
	}
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed")
	}
	first := t.TempDir()
	s := open(t, first, 1<<20)
	if err := s.event(t.Context(), 1, "CREATE TABLE t (a)", "INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	killed, failed := 0, 0
	for _, call := range faulty {
		for _, fault := range []string{"signal=KILL", "error=EIO", "error=ENOSPC"} {
			if fault != "signal=KILL" && (call == "close" || call == "fcntl") {
				// No disk fails them.
				continue
			}
			for n := 1; ; n++ {
				hit, said := inject(t, first, call, fault, n)
				if !hit {
					break
				}
				if fault == "signal=KILL" {
					killed++
				} else if !said {
					failed++
				}
				if t.Failed() {
					return
				}
			}
		}
	}
	t.Logf("killed %d times, failed %d times", killed, failed)
	if killed < 10 || failed < 3 {
		t.Errorf("killed %d times, failed %d times: the faults did not hit the event", killed, failed)
	}
}

// inject runs the second event with a fault in the nth call of that name, on a copy of the database
// in first. It reports whether there was such a call, and whether the commit was said to be on the
// disk.
func inject(t *testing.T, first, call, fault string, n int) (hit, said bool) {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(first, dbFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, dbFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	// The calls before the event are those of the start.
	cmd := exec.Command("strace", "-f", "-qq", "-o", trace, "-P", dir, "-P", filepath.Join(dir, dbFile),
		"-P", filepath.Join(dir, dbFile+"-wal"), "-e", "trace="+call, "-e",
		fmt.Sprintf("inject=%s:%s:when=%d", call, fault, n),
		os.Args[0], "-test.run", "^TestFaults$")
	cmd.Env = append(os.Environ(), "STORE_TEST_DIR="+dir)
	out, _ := cmd.CombinedOutput()
	traced, err := os.ReadFile(trace)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	what := fmt.Sprintf("%s, %s of call %d", call, fault, n)
	hit = bytes.Contains(traced, []byte("(INJECTED)")) || bytes.Contains(traced,
		[]byte("killed by SIGKILL"))
	said = strings.Contains(string(out), "committed")
	if !hit && !said {
		t.Fatalf("%s: there was no such call, and no commit:\n%s", what, out)
	}
	s, err := Open(t.Context(), dir, 1<<20)
	if err != nil {
		t.Errorf("%s: the database cannot be opened: %v", what, err)
		return hit, said
	}
	defer s.Close()
	left, err := s.Left(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%s %d %d", value(t, s, "SELECT count(*) AS n FROM t"), s.Committed(),
		len(left))
	const before, after = `{"n":1} 1 1`, `{"n":2} 2 2`
	if got != after && (said || got != before) {
		t.Errorf("%s: %s, and the commit was said: %v\n%s", what, got, said, out)
	}
	if check := value(t, s, "PRAGMA integrity_check"); check != `{"integrity_check":"ok"}` {
		t.Errorf("%s: %s", what, check)
	}
	return hit, said
}

// second works on the second event and says when it is on the disk.
func second(t *testing.T, dir string) {
	s, err := Open(t.Context(), dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	if err := s.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(ctx, "INSERT INTO t VALUES (2)", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, agent.Effects{Seq: 2, Effects: []agent.Effect{{N: 1, Op: agent.OpSend,
		Data: json.RawMessage(`1`)}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("committed")
}
