package run_test

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// T-405: however a tool uses up its shadow, the disk pays no more than the limit, and the run says
// which it was. In the control the limit is higher, and the same run takes more.
func TestWorkspaceQuota(t *testing.T) {
	h := cmdtest.New(t)
	const bytes = 8 << 20
	for _, c := range []struct {
		id, limit, verb, n string
		low, high          []string
	}{
		{"files", "workspace_files", "files", "700", []string{"workspace_files=500"},
			[]string{"workspace_files=1000"}},
		{"dirs", "workspace_files", "dirs", "300", []string{"workspace_files=500"},
			[]string{"workspace_files=1000"}},
		{"bytes", "workspace", "fill", "12", []string{"workspace=8MiB", "workspace_files=500"},
			[]string{"workspace=64MiB"}},
		{"sparse", "", "sparse", "20", []string{"workspace=8MiB", "workspace_files=500"}, nil},
	} {
		run := func(id string, limits []string) message.Result {
			args := []string{"--id", id, "--keep"}
			for _, l := range limits {
				args = append(args, "--limit", l)
			}
			return h.Result(append(args, "--", h.Probe, c.verb, c.n)...)
		}
		low := run(c.id, c.low)
		if c.limit == "" {
			if low.ExitCode != 0 || low.Limit != nil {
				t.Errorf("%s: %+v", c.id, low)
			}
		} else if low.ExitCode != 1 || low.Limit == nil || low.Limit.Name != c.limit ||
			low.Limit.Peak > low.Limit.Limit {
			t.Errorf("%s: %+v, limit %+v", c.id, low, low.Limit)
		}
		var st syscall.Stat_t
		// And the tables.
		if err := syscall.Stat(filepath.Join(h.State, "state", "workspaces", h.GlobalID(c.id),
			"upper.img"), &st); err != nil || c.limit != "workspace_files" &&
			st.Blocks*512 > bytes+1<<20 {
			t.Errorf("%s: %d bytes of the disk, %v", c.id, st.Blocks*512, err)
		}
		if c.limit != "workspace" && low.Changes.Added > 500 {
			t.Errorf("%s: %d files below a limit of 500", c.id, low.Changes.Added)
		}
		if c.id == "files" && low.Changes.Added < 495 {
			t.Errorf("only %d files below a limit of 500", low.Changes.Added)
		}
		h.Wants(h.Jail("discard", c.id), 0, "")
		if c.high == nil {
			continue
		}
		if high := run(c.id+"-control", c.high); high.ExitCode != 0 || high.Limit != nil {
			t.Errorf("%s, the control: %+v", c.id, high)
		}
		h.Wants(h.Jail("discard", c.id+"-control"), 0, "")
	}
}

// T-403, T-406: a tool that floods a client which reads nothing is held back; the daemon grows by
// its buffers and no more, the deadline holds, and what the client reads later is whole.
func TestFloodWithoutReader(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	h.Wants(h.Jail("run", "--", h.Probe), 0, "")
	// On a busy host the deadline may come before the tool has written anything.
	for _, wall := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
		if n := floodWithoutReader(t, h, d, wall); n > 0 {
			return
		}
	}
	t.Error("no output came")
}

// floodWithoutReader runs a tool that floods a client without a reader until its deadline, and
// returns how many bytes the client hands over after that.
func floodWithoutReader(t *testing.T, h *cmdtest.Host, d *cmdtest.SharedDaemon, wall time.Duration) int64 {
	t.Helper()
	id := "flood-" + wall.String()
	before := cmdtest.ResidentKiB(t, d.Cmd.Process.Pid)
	cmd := h.Command("run", "--id", id, "--no-workspace", "--limit", "wall="+wall.String(), "--", h.Probe,
		"flood", "1000")
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd.Stdout = out
	if err = errors.Join(cmd.Start(), out.Close()); err != nil {
		t.Fatal(err)
	}
	cmdtest.Eventually(t, "the jail has begun", func() bool { return len(h.Records(id, "exec")) > 0 })
	jail := (&cmdtest.LiveRun{H: h, ID: id}).InitPID()
	cmdtest.Eventually(t, "the deadline has ended the jail", func() bool { return cmdtest.Gone(jail) })
	if now := cmdtest.ResidentKiB(t, d.Cmd.Process.Pid); now > before+16<<10 {
		t.Errorf("the daemon holds %d KiB, and held %d before", now, before)
	}
	n, err := io.Copy(io.Discard, in)
	if err != nil || n > 1<<20 {
		t.Errorf("%d bytes came, %v; the limit of output is 1 MiB", n, err)
	}
	if code := h.ExitCode(cmd, cmd.Wait()); code != 124 && code != 137 {
		t.Errorf("exit code %d", code)
	}
	return n
}

// Who goes when the tool has ended by itself changes nothing of how it ended.
func TestGoneWhenEnded(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, nil)
	const id = "late"
	tool := &cmdtest.LiveRun{H: h.Host, ID: id}
	goes := writerFunc(func([]byte) (int, error) {
		pid := tool.InitPID()
		cmdtest.Eventually(t, "the jail has ended", func() bool { return cmdtest.Gone(pid) })
		return 0, io.ErrClosedPipe
	})
	r := h.S.Run(t.Context(), h.Caller(0), message.Request{ID: id, NoWorkspace: true,
		Tool: "echo", Args: runners.Texts([]string{"x"})},
		stdio.Streams{In: strings.NewReader(""), Out: goes, Err: io.Discard})
	if r.ExitCode != 0 || r.Signal != nil || r.Error != nil {
		t.Errorf("exit code %d, signal %v, %+v", r.ExitCode, r.Signal, r.Error)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// The end of a session waits for no client of its invocations, and one that reads later has what
// came before.
func TestSessionWithoutReader(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	id := h.Session()
	cmd := h.Command("session", "exec", id, "--id", "flood", "--", h.Probe, "flood", "1000")
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd.Stdout = out
	if err = errors.Join(cmd.Start(), out.Close()); err != nil {
		t.Fatal(err)
	}
	cmdtest.Eventually(t, "its client takes nothing more", func() bool {
		n, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCINQ)
		return err == nil && n == 64<<10
	})
	h.StopSession(id, 0)
	if n, err := io.Copy(io.Discard, in); err != nil || n < 64<<10 || n > 1<<20 {
		t.Errorf("%d bytes came, %v", n, err)
	}
	if code := h.ExitCode(cmd, cmd.Wait()); code != 137 {
		t.Errorf("exit code %d", code)
	}
}

// T-406: however much a tool writes, no more than the limit comes out of it.
func TestFlood(t *testing.T) {
	h := cmdtest.New(t)
	// Of the second no more is made than of the first.
	for _, mib := range []string{"64", "10240"} {
		r := h.Result("--limit", "output=64KiB", "--", h.Probe, "flood", mib)
		if len(r.Stdout) != 64<<10 || !r.Truncated || r.Limit == nil || r.Limit.Name != "output" ||
			r.ExitCode != 137 {
			t.Errorf("flood of %s MiB: %d bytes, %+v, limit %+v", mib, len(r.Stdout), r.ExitCode,
				r.Limit)
		}
	}
	if r := h.Result("--limit", "output=1MiB", "--", h.Probe, "flood",
		"1"); len(r.Stdout) != 1<<20 || r.Truncated || r.Limit != nil || r.ExitCode != 0 {
		t.Errorf("the control: %d bytes, %d, limit %+v", len(r.Stdout), r.ExitCode, r.Limit)
	}
}

// A file that is not in the page cache is read no faster than the policy says; in the control the
// limit is higher.
func TestDiskBandwidth(t *testing.T) {
	h := cmdtest.New(t)
	if err := cgroup.MissingIO(""); err != nil {
		h.Wants(h.Jail("run", "--limit", "io_read=1MiB", "--", h.Probe), 126,
			"io_read and io_write")
		return
	}
	dir, err := os.Open(h.Work)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, err := cgroup.Disk(dir); err != nil {
		h.Wants(h.Jail("run", "--limit", "io_read=1MiB", "--", h.Probe), 126,
			"without a disk of its own")
		return
	}
	data := make([]byte, 1<<20)
	rand.Read(data)
	read := func(limit string) (message.Result, time.Duration) {
		f, err := os.Create(filepath.Join(h.Work, "data"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_, err = f.Write(data)
		if err = errors.Join(err, f.Sync(),
			unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		r := h.Result("--discard", "--limit", "io_read="+limit, "--", "wc", "-l", "data")
		return r, time.Since(start)
	}
	slow, took := read("256KiB")
	free, control := read("1GiB")
	// Other work on the machine can make the control slow as well, but not each time.
	for range 4 {
		if control < took {
			break
		}
		free, control = read("1GiB")
	}
	for _, r := range []message.Result{slow, free} {
		if r.ExitCode != 0 || r.Usage.IORead < 1<<20 {
			t.Errorf("%d: %s%s, %+v", r.ExitCode, r.Stdout, r.Stderr, r.Usage)
		}
	}
	if took < 3*time.Second || control >= took {
		t.Errorf("1 MiB at 256 KiB a second took %v, and at 1 GiB a second %v", took, control)
	}
	t.Logf("1 MiB at 256 KiB a second took %v, at 1 GiB a second %v", took, control)
}

// A tool that cannot write all of a file fails, so that --commit takes no part of a copy for the
// copy.
func TestShortCopy(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	if err := os.WriteFile(filepath.Join(h.Work, "f"), []byte("abcdef\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"cp", "f", "g"}, {"cp", "-r", ".", "../tmp/g"},
		{"sed", "-i", "s/a/aa/", "f"}, {"sort", "-o", "g", "f"}, {"tar", "cf", "g", "f"}} {
		o := h.Jail(append([]string{"run", "--discard", "--limit", "file_size=3B", "--"}, args...)...)
		if o.Code == 0 || !strings.Contains(o.Err, "jail: limit: file_size: 3 B reached") {
			t.Errorf("%q: %+v", args, o)
		}
	}
	h.Wants(h.Jail("run", "--commit", "--id", "r", "--limit", "file_size=3B", "--quiet", "--",
		"cp", "f", "g"), 1, "")
	if _, err := os.Stat(filepath.Join(h.Work, "g")); err == nil {
		t.Error("a part of a copy was committed")
	}
	h.Wants(h.Jail("discard", "r"), 0, "")
	// The control: without the limit each of them succeeds.
	h.Wants(h.Jail("run", "--discard", "--quiet", "--", "cp", "f", "g"), 0, "")
}
