package session_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/message"
)

var nativeProbe = cmdtest.Build("probe", "./testdata/probe")

// callsOf are the processes in a session's control group: those of its calls, and of what waits for
// them.
func callsOf(t *testing.T, session string) (pids []int) {
	t.Helper()
	for _, group := range cmdtest.GroupOf(session) {
		err := filepath.WalkDir(group, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.Name() != "cgroup.procs" {
				// A leaf may go meanwhile.
				return nil
			}
			text, _ := os.ReadFile(path)
			for _, f := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(f); err == nil && !slices.Contains(pids, pid) {
					pids = append(pids, pid)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return pids
}

// A call in a jail that waited for its session is a call as any: its plan is that of a cold one,
// and so is what the kernel says of its jail and what the tool sees; over a shadow, over a
// directory that is read-only, and without one.
func TestSessionWarm(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(2)
	h.Daemon()
	h.Files(map[string]string{"a.txt": "one\n"})
	for _, flags := range [][]string{{"--profile", "default"}, {"--profile", "readonly"},
		{"--no-workspace"}} {
		id := h.Session(append(flags, "--discard")...)
		var plans []string
		var places []jail.Plan
		for n, want := range []string{cmdtest.StartCold, cmdtest.StartWarm} {
			live := liveExec(h, id, want+id)
			v := cmdtest.Verification(h, want+id, 0)
			if !v.OK || v.PID != live.InitPID() || len(v.Findings) < 40 {
				t.Errorf("%q: %+v", flags, v)
			}
			if got := h.StartOf(want + id); got != want {
				t.Errorf("%q: call %d is %s", flags, n, got)
			}
			p := cmdtest.PlanOf(h, want+id)
			places = append(places, p)
			p.ID, p.Cgroup.Path = "", ""
			plans = append(plans, string(cmdtest.Must(json.Marshal(p))(t)))
			live.In.Close()
			if o := live.Wait(); o.Code != 0 || o.Err != "" {
				t.Errorf("%q: %+v", flags, o)
			}
			h.Stands(1)
		}
		if plans[0] != plans[1] {
			t.Errorf("%q: the warm call's plan is\n%s\nand the cold one's\n%s", flags, plans[1],
				plans[0])
		}
		if a, b := places[0].Cgroup.Path, places[1].Cgroup.Path; a == b ||
			filepath.Dir(a) != filepath.Dir(b) || !strings.HasSuffix(filepath.Dir(b), ".session") {
			t.Errorf("%q: control groups %s and %s", flags, a, b)
		}
		// The directory that a jail which waited has is as read-only as any.
		if o := h.Exec(id, "--id", "write"+id, "--", h.Probe, "fill", "/workspace/new",
			"1"); (o.Code == 0) != (flags[len(flags)-1] == "default") ||
			h.StartOf("write"+id) != cmdtest.StartWarm {
			t.Errorf("%q: writing: %+v, %s", flags, o, h.StartOf("write"+id))
		}
		h.StopSession(id, 0+int64(strings.Count(strings.Join(flags, " "), "default")))
		cmdtest.WantNoneWaiting(h)
	}
	if _, err := os.Stat(filepath.Join(h.Work, "new")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the real directory was written to: %v", err)
	}
}

// One after the other sees what the one before left in the shadow and in /tmp, and nothing else of
// it; tools of two modules take turns.
func TestSessionWarmApart(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(4)
	h.Daemon()
	id := h.Session("--discard")
	var seen [2][]cmdtest.Outcome
	for round := range 3 {
		for n, step := range [][]string{
			{"--env", fmt.Sprintf("SECRET=%d", round), "--", "touch", fmt.Sprintf("/tmp/%d", round),
				fmt.Sprintf("w%d", round)},
			{"--", "awk",
				`BEGIN { for (name in ENVIRON) if (name == "SECRET") print "SECRET"; print "awk" }`},
			{"--", "ls", "/tmp", "/workspace"},
			{"--", "env"},
		} {
			call := fmt.Sprintf("s%d-%d", round, n)
			o := h.Exec(id, append([]string{"--id", call}, step...)...)
			if o.Code != 0 || strings.Contains(o.Out, "SECRET") {
				t.Errorf("%q: %+v", step, o)
			}
			if n >= 2 {
				seen[n-2] = append(seen[n-2], o)
			}
			if want := round > 0 || n >= 2; (h.StartOf(call) == cmdtest.StartWarm) != want {
				t.Errorf("%s is %s", call, h.StartOf(call))
			}
			h.Stands(min(round*2+n+1, 2)) // one for each module
		}
	}
	if o := seen[0][2]; o.Out != "/tmp:\n0\n1\n2\n\n/workspace:\nw0\nw1\nw2\n" {
		t.Errorf("%+v", o)
	}
	if seen[1][0] != seen[1][2] {
		t.Errorf("%+v, and first %+v", seen[1][2], seen[1][0])
	}
	h.StopSession(id, 3)
}

// mixed opens a session of modules and of one program of the host, whose path it returns.
func mixed(h *cmdtest.Host) (id, program string) {
	h.T.Helper()
	text := cmdtest.Must(os.ReadFile(cmdtest.Must(nativeProbe())(h.T)))(h.T)
	if err := os.WriteFile(filepath.Join(h.Work, "probe"), text, 0o755); err != nil {
		h.T.Fatal(err)
	}
	h.Files(map[string]string{
		"mixed.toml": "policy = 1\nname = \"mixed\"\ninclude = [\"base\"]\n[workspace]\naccess = \"shadow\"\n[limits]\npids = 100\n" +
			"[tools]\nallow = [\"core-utils/*\"]\nmodules = [\"**\"]\nnative = [\"/workspace/**\"]\n[syscalls]\ngroups = [\"wasi\", \"native\"]\n"})
	return h.Session("--discard", "--policy", "mixed.toml"), "/workspace/probe"
}

// What waits uses nothing of the session that a call could: beside one none waits, neither that of
// another module nor when the call is a program of the host, nor is one made.
func TestSessionWarmAlone(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(4)
	h.Daemon()
	id, program := mixed(h)
	ready := func() {
		t.Helper()
		h.Wants(h.Exec(id, "--", "true"), 0, "")
		h.Wants(h.Exec(id, "--", "awk", "BEGIN {}"), 0, "")
		h.Stands(2)
		// The control: they are in the session's control group.
		if n := len(callsOf(t, id)); n != 2 {
			t.Fatalf("%d processes wait", n)
		}
	}
	for _, c := range []struct {
		id, start string
		args      []string
		processes int
	}{
		{"warm", cmdtest.StartWarm, []string{"awk", `{ print "got " $0; fflush() }`}, 1},
		{"cold", cmdtest.StartCold, []string{h.Probe, "lines"}, 1},
		{"native", cmdtest.StartCold, []string{program, "lines"}, 2},
	} {
		ready()
		live := h.LiveWith(h.Command(append([]string{"session", "exec", id, "--id", c.id, "--"},
			c.args...)...), c.id)
		pids := callsOf(t, id)
		if len(pids) != c.processes || !slices.Contains(pids, live.InitPID()) ||
			h.StartOf(c.id) != c.start {
			t.Errorf("%s, %s: processes %v, want %d, %d among them", c.id, h.StartOf(c.id), pids,
				c.processes, live.InitPID())
		}
		// Another at the same time is made for itself, and none after it while the first one lives.
		h.Wants(h.Exec(id, "--id", c.id+"2", "--", "true"), 0, "")
		if got := h.StartOf(c.id + "2"); got != cmdtest.StartCold {
			t.Errorf("beside %s: %s", c.id, got)
		}
		if c.id == "warm" {
			// Longer than the pool takes to look again.
			time.Sleep(2 * time.Second)
		}
		if pids := callsOf(t, id); len(pids) != c.processes {
			t.Errorf("beside %s: processes %v", c.id, pids)
		}
		live.In.Close()
		if o := live.Wait(); o.Code != 0 {
			t.Errorf("%+v", o)
		}
	}
	h.StopSession(id, 0)
}

// A program of the host finds in a jail that waited what it finds in any, and may do there what it
// may in any.
func TestSessionWarmNative(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(2)
	h.Daemon()
	id := h.Session("--discard", "--profile", "build")
	look := `grep -E '^(Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups)' /proc/self/status; for fd in /proc/self/fd/*; do echo $fd; done; ulimit -a; cat /proc/self/mounts | cut -d' ' -f2-4 | grep -v overlay | sed 's/,[ug]id=[0-9]*//g'; ` +
		`cat /proc/net/dev /proc/self/cgroup; mount -t tmpfs x /mnt; unshare -U true; echo x > /usr/x; cat /etc/shadow; ls /home /root /dev/shm; chroot / true; kill -9 1; echo $?; echo $SECRET; echo lock > /dev/shm/mine`
	var said []message.Result
	for n, want := range []string{cmdtest.StartCold, cmdtest.StartWarm, cmdtest.StartWarm} {
		call := fmt.Sprint("look", n)
		said = append(said,
			h.ObjectOf("session", "exec", id, "--id", call, "--json", "--", "sh", "-c", look))
		if got := h.StartOf(call); got != want {
			t.Errorf("%s: %s", call, got)
		}
		if a, b := said[0], said[n]; string(a.Stdout) != string(b.Stdout) ||
			string(a.Stderr) != string(b.Stderr) || fmt.Sprint(a.Denied) != fmt.Sprint(b.Denied) ||
			len(b.Stdout) < 500 || len(b.Denied) == 0 {
			t.Errorf("%s:\n%s%s%+v\nand in the first\n%s%s%+v", want, b.Stdout, b.Stderr, b.Denied,
				a.Stdout, a.Stderr, a.Denied)
		}
		h.Stands(1)
	}
	live := h.LiveWith(h.Command("session", "exec", id, "--id", "alive", "--env", "SECRET=x", "--",
		"sh", "-c", "while read line; do echo got $line; done"), "alive")
	if v := cmdtest.Verification(h, "alive", 0); !v.OK || v.PID != live.InitPID() || len(v.Findings) < 40 ||
		h.StartOf("alive") != cmdtest.StartWarm {
		t.Errorf("%s: %+v", h.StartOf("alive"), v)
	}
	live.In.Close()
	if o := live.Wait(); o.Code != 0 {
		t.Errorf("%+v", o)
	}
	// With a terminal of its own there is none that waits.
	h.Stands(1)
	if o := h.Exec(id, "--id", "tty", "-t", "--", "sh", "-c", "tty"); o.Code == 0 &&
		h.StartOf("tty") != cmdtest.StartCold {
		t.Errorf("%+v, %s", o, h.StartOf("tty"))
	}
	h.StopSession(id, 0)
}

// A call that may fetch has a proxy of its own, whether its jail waited or not. The certificates
// that a program of the host trusts are that proxy's. Where the operator's settings have changed, or
// the proxy that waits has died, its jail is not given out.
func TestSessionWarmFetches(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(2)
	d := h.Daemon()
	h.Files(map[string]string{
		"net.toml": "policy = 1\nname = \"net\"\ninclude = [\"build\"]\n[[fetch.allow]]\nhost = \"example.org\"\nports = [443]\nmethods = [\"GET\"]\n"})
	id := h.Session("--discard", "--policy", "net.toml")
	said := map[string]bool{}
	for n, want := range []string{cmdtest.StartCold, cmdtest.StartWarm, cmdtest.StartWarm,
		cmdtest.StartCold, cmdtest.StartCold} {
		switch n {
		case 3:
			cmdtest.AddSettings(h, "queries = true\n")
		case 4:
			killProxies(t, d.Cmd.Process.Pid)
		}
		o := h.Exec(id, "--id", fmt.Sprint("native", n), "--", "cat", jail.AuthorityFile)
		if got := h.StartOf(fmt.Sprint("native", n)); o.Code != 0 || len(o.Out) < 500 || got != want {
			t.Errorf("%d, %s: %.300v", n, got, o)
		}
		said[o.Out] = true
		h.Stands(1)
	}
	if len(said) != 5 {
		t.Error("two calls trust the same certificates, so they are no call's own")
	}
	h.StopSession(id, 0)
	id = h.Session("--discard", "--profile", "fetch", "--fetch", "example.org")
	var first message.Result
	for n, want := range []string{cmdtest.StartCold, cmdtest.StartWarm, cmdtest.StartWarm} {
		call := fmt.Sprint("module", n)
		r := h.ObjectOf("session", "exec", id, "--id", call, "--json", "--", "fetch",
			"http://localhost/")
		if n == 0 {
			first = r
		}
		if r.ExitCode == 0 || r.ExitCode != first.ExitCode ||
			string(r.Stderr) != string(first.Stderr) || len(r.Denied) == 0 ||
			fmt.Sprint(r.Denied) != fmt.Sprint(first.Denied) || h.StartOf(call) != want {
			t.Errorf("%s: %+v, and first %+v", h.StartOf(call), r, first)
		}
		h.Stands(1)
	}
	h.StopSession(id, 0)
}

// killProxies kills the fetch proxies of a daemon, and waits until it knows.
func killProxies(t *testing.T, daemon int) {
	t.Helper()
	n := 0
	all, err := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		line, readErr := os.ReadFile(filepath.Join(dir, "cmdline"))
		status, statusErr := os.ReadFile(filepath.Join(dir, "status"))
		pid, pidErr := strconv.Atoi(filepath.Base(dir))
		if errors.Join(readErr, statusErr, pidErr) == nil && bytes.HasSuffix(line, []byte("\x00fetch-proxy\x00")) &&
			bytes.Contains(status, fmt.Appendf(nil, "\nPPid:\t%d\n", daemon)) {
			// One of a jail that has gone may be ending.
			if killErr := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(killErr, syscall.ESRCH) {
				n++
				err = errors.Join(err, killErr)
			}
			cmdtest.Eventually(t, "the proxy is gone", func() bool {
				_, err := os.Stat(dir)
				return err != nil
			})
		}
	}
	if err != nil || n == 0 {
		t.Errorf("killed %d proxies: %v", n, err)
	}
}

// What a jail has of the host is what is there when it is asked for: where another directory,
// another program or another mount has come to its place, one that waits is not given out.
func TestSessionWarmHost(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(2)
	h.Daemon()
	data, prog := filepath.Join(h.Root, "data"), filepath.Join(h.Root, "prog")
	text := cmdtest.Must(os.ReadFile(cmdtest.Must(nativeProbe())(t)))(t)
	put := func(path string, text []byte) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path+".new", text, 0o755), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(data, "word"), []byte("one\n"))
	put(filepath.Join(prog, "tool"), text)
	if err := os.Mkdir(filepath.Join(data, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.Files(map[string]string{
		"host.toml": fmt.Sprintf(
			"policy = 1\nname = \"host\"\ninclude = [\"base\"]\n[workspace]\naccess = \"shadow\"\n[limits]\npids = 100\n"+
				"[[mount]]\nsource = %q\ntarget = \"/data\"\naccess = \"read\"\n[[mount]]\nsource = %q\ntarget = \"/prog\"\naccess = \"read+exec\"\n"+
				"[tools]\nallow = [\"core-utils/*\"]\nnative = [\"/prog/tool\"]\n[syscalls]\ngroups = [\"wasi\", \"native\"]\n", data, prog)})
	id := h.Session("--discard", "--policy", "host.toml")
	calls := 0
	call := func(want, out string, args ...string) {
		t.Helper()
		calls++
		name := fmt.Sprint("c", calls)
		if o := h.Exec(id, append([]string{"--id", name, "--"},
			args...)...); (o.Code == 0) != (out != "") || o.Out != out || h.StartOf(name) != want {
			t.Errorf("%q: %+v, %s, want %s", args, o, h.StartOf(name), want)
		}
		h.Stands(1)
	}
	cat := []string{"cat", "/data/word"}
	call(cmdtest.StartCold, "one\n", cat...)
	call(cmdtest.StartWarm, "one\n", cat...)
	put(filepath.Join(data, "word"), []byte("two\n"))
	// What is in the directory is the host's.
	call(cmdtest.StartWarm, "two\n", cat...)
	if err := os.Rename(data, data+".old"); err != nil {
		t.Fatal(err)
	}
	put(filepath.Join(data, "word"), []byte("three\n"))
	call(cmdtest.StartCold, "three\n", cat...)
	call(cmdtest.StartWarm, "three\n", cat...)
	put(filepath.Join(data, "below", "none"), nil)
	if err := syscall.Mount("none", filepath.Join(data, "below"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(filepath.Join(data, "below"), syscall.MNT_DETACH)
	// No module gets into a mount below a mount.
	call(cmdtest.StartCold, "", "ls", "/data/below")
	call(cmdtest.StartWarm, "", "ls", "/data/below")
	if err := syscall.Unmount(filepath.Join(data, "below"), 0); err != nil {
		t.Error(err)
	}
	call(cmdtest.StartCold, "none\n", "ls", "/data/below")
	h.StopSession(id, 0)

	id = h.Session("--discard", "--policy", "host.toml")
	run := []string{"/prog/tool", "args", "said"}
	call(cmdtest.StartCold, "\"said\"\n", run...)
	call(cmdtest.StartWarm, "\"said\"\n", run...)
	// The same, and another file.
	put(filepath.Join(prog, "tool"), text)
	call(cmdtest.StartCold, "\"said\"\n", run...)
	call(cmdtest.StartWarm, "\"said\"\n", run...)
	h.StopSession(id, 0)
}
