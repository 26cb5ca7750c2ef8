package fileevents

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// child starts a shell in a mount namespace of its own that has dir at at, and waits until it
// stands. What is returned lets the script go on, and ends it.
func child(t *testing.T, dir, at, script string) (pid int, finish func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can watch mounts")
	}
	cmd := exec.Command("sh", "-c", "mount --make-rprivate / && mount --bind "+dir+" "+at+
		" && mount -t tmpfs none /media && echo ready && read go && "+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q %v", line, err)
	}
	return cmd.Process.Pid, func() {
		t.Helper()
		io.WriteString(in, "\n")
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestTells: opens, writes, executions and directories are reported by their paths inside, also
// those of a process that has ended, of a file that is gone, and through a mount that nobody
// outside has.
func TestTells(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"read", "untouched"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	at := t.TempDir()
	pid, finish := child(t, dir, at, "cd "+at+`; cat read >/dev/null; echo y > gone; rm gone; ls >/dev/null; cat absent 2>/dev/null; test -e untouched
cp /bin/true /media/prog; /media/prog; head -c 1 /proc/self/status >/dev/null`)
	got := map[string]Event{}
	w, err := Watch(pid, func(e Event) {
		have := got[e.Path]
		have.Opened, have.Executed, have.Written = have.Opened || e.Opened, have.Executed ||
			e.Executed, have.Written || e.Written
		have.Dir, have.Program = have.Dir || e.Dir, have.Program || e.Program
		got[e.Path] = have
	})
	if err != nil {
		t.Fatal(err)
	}
	// Others that open the same file by another mount are not reported.
	if _, err := os.ReadFile(filepath.Join(dir, "untouched")); err != nil {
		t.Fatal(err)
	}
	finish()
	lost, err := w.Close()
	if err != nil || lost != 0 {
		t.Fatalf("lost %d: %v", lost, err)
	}
	for path, want := range map[string]Event{
		at + "/read":  {Opened: true},
		at + "/gone":  {Opened: true, Written: true},
		at:            {Opened: true, Dir: true},
		"/media/prog": {Executed: true},
	} {
		if have, ok := got[path]; !ok || have != want {
			t.Errorf("%s: told %+v (%t), want %+v", path, have, ok, want)
		}
	}
	cat, err := filepath.EvalSymlinks("/usr/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	if e := got[cat]; !e.Executed || !e.Program {
		t.Errorf("%s: %+v", cat, e)
	}
	for _, path := range []string{at + "/absent", at + "/untouched"} {
		if e, ok := got[path]; ok {
			t.Errorf("%s: told %+v, and nobody opened it", path, e)
		}
	}
}

// TestEnds: a watcher of a jail that ended before it is closed ends, and one of a process that is
// not there does not start.
func TestEnds(t *testing.T) {
	pid, finish := child(t, t.TempDir(), t.TempDir(), "true")
	w, err := Watch(pid, func(Event) {})
	if err != nil {
		t.Fatal(err)
	}
	finish()
	if _, err := w.Close(); err != nil {
		t.Error(err)
	}
	if w, err := Watch(pid, func(Event) {}); err == nil {
		w.Close()
		t.Error("a process that has ended was watched")
	}
}
