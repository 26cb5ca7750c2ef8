package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// unitFiles are what `make install` puts down for systemd.
const unitFiles = "../.packaging/systemd"

// A unit is jaild as a service of the systemd that runs this machine.
type unit struct{ *cmdtest.Host }

// newUnit installs the units, and lets their state be the host's. It needs a machine that nobody
// else uses: a service of the same name there would be replaced.
func newUnit(t *testing.T) *unit {
	t.Helper()
	if os.Getenv("JAIL_VM_TREE") == "" {
		t.Skip("replaces the jaild of this machine: runs in machines that were made for it (make vm-test)")
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("systemd does not run this machine")
	}
	u := &unit{cmdtest.New(t)}
	u.Env = append(u.Env, "JAIL_SOCKET=/run/jail/jail.sock")
	for _, name := range []string{"jaild.service", "jaild.socket"} {
		text, err := os.ReadFile(filepath.Join(unitFiles, name))
		if err != nil {
			t.Fatal(err)
		}
		u.put("/run/systemd/system/"+name, strings.ReplaceAll(string(text), "@bindir@", u.Bin))
	}
	u.put("/run/systemd/system/jaild.service.d/test.conf", "[Service]\nEnvironment=JAIL_STATE="+
		u.State+"\nWatchdogSec=20\nStartLimitBurst=100\n")
	for _, cmd := range [][]string{{"systemd-sysusers"}, {"systemd-tmpfiles", "--create"}} {
		file, err := filepath.Abs(filepath.Join(unitFiles, strings.TrimPrefix(cmd[0], "systemd-")+
			".conf"))
		if err != nil {
			t.Fatal(err)
		}
		u.must(cmd[0], append(cmd[1:], file)...)
	}
	u.put("/etc/jail/credentials/registry", "a secret of a test")
	u.ctl("daemon-reload")
	t.Cleanup(func() {
		_ = exec.Command("systemctl", "stop", "jaild.socket", "jaild.service").Run()
		if t.Failed() {
			out, _ := exec.Command("journalctl", "-u", "jaild.service", "--no-pager", "-n",
				"60").CombinedOutput()
			t.Logf("%s", out)
		}
		os.RemoveAll("/run/systemd/system/jaild.service.d")
		os.Remove("/run/systemd/system/jaild.service")
		os.Remove("/run/systemd/system/jaild.socket")
		os.Remove("/etc/jail/credentials/registry")
		u.ctl("daemon-reload")
	})
	u.ctl("start", "jaild.socket")
	return u
}

func (u *unit) put(path, text string) {
	u.T.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		u.T.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		u.T.Fatal(err)
	}
}

func (u *unit) must(name string, args ...string) string {
	u.T.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		u.T.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (u *unit) ctl(args ...string) string {
	u.T.Helper()
	return u.must("systemctl", args...)
}

func (u *unit) property(name string) string {
	u.T.Helper()
	return u.ctl("show", "-P", name, "jaild.service")
}

// main returns the daemon that systemd takes for the service.
func (u *unit) main() int {
	u.T.Helper()
	pid, err := strconv.Atoi(u.property("MainPID"))
	if err != nil {
		u.T.Fatal(err)
	}
	return pid
}

func (u *unit) wantActive() {
	u.T.Helper()
	cmdtest.Eventually(u.T, "the service is active",
		func() bool {
			return u.property("ActiveState") == "active" && u.property("SubState") == "running"
		})
}

func TestServiceStartsForAClient(t *testing.T) {
	u := newUnit(t)
	if pid := u.main(); pid != 0 {
		t.Fatalf("jaild runs already, as %d", pid)
	}
	u.Wants(u.Jail("run", "--", "true"), 0, "")
	u.wantActive()
	if got := u.property("StatusText"); !strings.Contains(got, "/run/jail/jail.sock") {
		t.Errorf("status %q", got)
	}
	for path, mode := range map[string]os.FileMode{"/var/lib/jail": 0o700,
		"/var/log/jail/audit": 0o750, "/var/lib/jail-tools": 0o755,
		"/etc/jail/credentials": 0o700} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != mode || ownerOf(info) != 0 {
			t.Errorf("%s: %v, %v, want mode %o of root's", path, info, err, mode)
		}
	}
	info, err := os.Stat("/run/jail/jail.sock")
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("socket: %v, %v", info, err)
	}
	if text, err := os.ReadFile("/run/credentials/jaild.service/fetch_registry"); string(
		text) != "a secret of a test" {
		t.Errorf("credential: %q, %v", text, err)
	}
	// Its jails are below its own control group, and it is beside them.
	r := u.Live("where")
	group := u.property("ControlGroup")
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", r.InitPID()))
	if !bytes.Contains(text, []byte(group+"/jails/where.")) {
		t.Errorf("the jail is in %s (%v), want it below %s", text, err, group)
	}
	r.In.Close()
	u.Wants(r.Wait(), 0, "")
	for line := range strings.Lines(u.must("systemd-analyze", "verify", "--man=no",
		"/run/systemd/system/jaild.service")) {
		// Which managers before 254 do not know.
		if !strings.Contains(line, "DelegateSubgroup") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
}

// The records are in the journal with their fields, each once, also when what hands them over is
// started anew.
func TestServiceJournal(t *testing.T) {
	u := newUnit(t)
	text, err := os.ReadFile(filepath.Join(unitFiles, "jail-journal.service"))
	if err != nil {
		t.Fatal(err)
	}
	const unitFile, dropIn = "/run/systemd/system/jail-journal.service",
		"/run/systemd/system/jail-journal.service.d/test.conf"
	u.put(unitFile, strings.ReplaceAll(string(text), "@bindir@", u.Bin))
	u.put(dropIn, "[Service]\nPrivateTmp=no\nEnvironment=JAIL_STATE="+u.State+"\n")
	t.Cleanup(func() {
		_ = exec.Command("systemctl", "stop", "jail-journal.service").Run()
		os.RemoveAll(filepath.Dir(dropIn))
		os.Remove(unitFile)
		os.RemoveAll("/var/lib/jail-journal")
		u.ctl("daemon-reload")
	})
	u.ctl("daemon-reload")
	u.ctl("start", "jaild.service")
	u.ctl("start", "jail-journal.service")
	// The journal has runs of other tests.
	id := fmt.Sprintf("journal-%d", os.Getpid())
	for _, id := range []string{id, id + "-again"} {
		u.Wants(u.Jail("run", "--id", id, "--", "true"), 0, "")
		cmdtest.Eventually(t, "the end of the run is in the journal", func() bool {
			return u.must("journalctl", "--no-pager", "-o", "cat", "JAIL_RUN="+id,
				"JAIL_TYPE=run.finished") != ""
		})
		u.ctl("restart", "jail-journal.service")
	}
	for _, id := range []string{id, id + "-again"} {
		if got, want := len(strings.Fields(u.must("journalctl", "--no-pager", "-o", "cat",
			"--output-fields=JAIL_SEQ", "JAIL_RUN="+id))), u.recordsOf(id); got != want {
			t.Errorf("%d records of %s are in the journal, %d in the log", got, id, want)
		}
	}
}

// recordsOf is how many records the log has of a run.
func (u *unit) recordsOf(id string) int {
	u.T.Helper()
	o := u.Jail("audit", "query", "--run", id, "--json")
	u.Wants(o, 0, "")
	return len(strings.Split(strings.TrimSpace(o.Out), "\n"))
}

func TestServiceReload(t *testing.T) {
	u := newUnit(t)
	u.ctl("start", "jaild.service")
	before := u.main()
	r := u.Live("through")
	u.ctl("reload", "jaild.service")
	u.wantActive()
	if got := u.property("StatusText"); got != "reloaded" || u.main() != before {
		t.Errorf("status %q, pid %d, before %d", got, u.main(), before)
	}
	r.Says("still here")
	r.In.Close()
	u.Wants(r.Wait(), 0, "")
}

// An upgrade ends no run and refuses no client.
func TestServiceUpgrade(t *testing.T) {
	u := newUnit(t)
	u.ctl("start", "jaild.service")
	before := u.main()
	r := u.Live("through")
	u.ctl("kill", "-s", "USR2", "--kill-who=main", "jaild.service")
	cmdtest.Eventually(t, "another daemon is the service", func() bool { return u.main() != before })
	u.wantActive()
	after := u.main()
	u.Wants(u.Jail("run", "--", "true"), 0, "")
	r.Says("still here")
	if o := u.Jail("ps"); !strings.Contains(o.Out, "through") {
		t.Errorf("the new daemon does not list the run of the old: %+v", o)
	}
	r.In.Close()
	u.Wants(r.Wait(), 0, "")
	cmdtest.Eventually(t, "the old daemon ends", func() bool { return syscall.Kill(before, 0) != nil })
	if u.main() != after {
		t.Errorf("the service is %d, and was %d", u.main(), after)
	}
	u.Wants(u.Jail("run", "--", "true"), 0, "")

	// What is stopped while an old daemon still has runs ends those, too, and says so on record.
	r = u.Live("ended")
	u.ctl("kill", "-s", "USR2", "--kill-who=main", "jaild.service")
	cmdtest.Eventually(t, "another daemon is the service", func() bool { return u.main() != after })
	u.wantActive()
	u.ctl("stop", "jaild.service")
	if o := r.Wait(); o.Code != 143 {
		t.Errorf("%+v", o)
	}
	if rec := u.Finished("ended"); rec.Signal != "SIGTERM" {
		t.Errorf("%+v", rec)
	}
	if got := u.property("Result"); got != "success" {
		t.Errorf("result %s", got)
	}
}

// While the service is restarted, clients wait; what runs is ended with its name for it, and
// nothing else is refused.
func TestServiceRestartUnderLoad(t *testing.T) {
	u := newUnit(t)
	u.ctl("start", "jaild.service")
	var codes sync.Map
	var served atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				o := u.Jail("run", "--no-workspace", "--", "true")
				if o.Code != 0 && o.Code != 143 {
					codes.Store(o.Code, o)
				}
				served.Add(1)
			}
		})
	}
	for range 3 {
		want := served.Load() + 8
		cmdtest.Eventually(t, "clients are served", func() bool { return served.Load() >= want })
		u.ctl("restart", "jaild.service")
	}
	want := served.Load() + 8
	cmdtest.Eventually(t, "clients are served", func() bool { return served.Load() >= want })
	close(stop)
	clients.Wait()
	codes.Range(func(code, o any) bool {
		t.Errorf("a client was told %d: %+v", code, o)
		return true
	})
}

// A daemon that is killed takes its runs with it, and the next one says so on record.
func TestServiceCrash(t *testing.T) {
	u := newUnit(t)
	u.ctl("start", "jaild.service")
	before := u.main()
	r := u.Live("lost")
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if o := r.Wait(); o.Code != 125 {
		t.Errorf("%+v", o)
	}
	u.Wants(u.Jail("run", "--", "true"), 0, "") // by the next one
	u.wantActive()
	if u.main() == before {
		t.Error("the same daemon")
	}
	if rec := u.Finished("lost"); !strings.Contains(rec.Error, "killed") {
		t.Errorf("%+v", rec)
	}
	// Its shadow is kept, for a person to look at.
	u.Discard("lost")
}

// One that does not answer is killed and started anew.
func TestServiceWatchdog(t *testing.T) {
	u := newUnit(t)
	u.put("/run/systemd/system/jaild.service.d/watchdog.conf", "[Service]\nWatchdogSec=3\n")
	u.ctl("daemon-reload")
	u.ctl("start", "jaild.service")
	before := u.main()
	if err := syscall.Kill(before, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cmdtest.Eventually(t, "another daemon is the service", func() bool {
		pid := u.main()
		return pid != 0 && pid != before
	})
	u.wantActive()
	u.Wants(u.Jail("run", "--", "true"), 0, "")
}

// Boot: what is enabled is wanted by the targets.
func TestServiceEnable(t *testing.T) {
	u := newUnit(t)
	u.ctl("enable", "--runtime", "jaild.socket", "jaild.service")
	for _, link := range []string{"sockets.target.wants/jaild.socket",
		"multi-user.target.wants/jaild.service"} {
		if _, err := os.Stat("/run/systemd/system/" + link); err != nil {
			t.Error(err)
		}
	}
	u.ctl("disable", "--runtime", "jaild.socket", "jaild.service")
}
