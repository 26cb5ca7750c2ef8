package verify_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
	"github.com/jail-sandbox/jail/jail/verify"
)

func TestMain(m *testing.M) { os.Exit(jailtest.Main(m)) }

// start starts a jail and returns what it is by its plan.
func start(t *testing.T, s *jailtest.Setup) verify.Jail {
	t.Helper()
	j := s.Start(t)
	// It has answered, so all of its restrictions stand.
	j.One("getpid")
	started, err := j.StartTime()
	if err != nil {
		t.Fatal(err)
	}
	return verify.Jail{Plan: s.Plan, PID: j.PID, Start: started}
}

func look(t *testing.T, j verify.Jail, others ...int) []verify.Finding {
	t.Helper()
	findings, err := verify.Look(j, others, nil)
	if err != nil {
		t.Fatal(err)
	}
	return findings
}

// differing are the names of the findings that differ.
func differing(findings []verify.Finding) []string {
	var all []string
	for _, f := range findings {
		if f.Answer == verify.Differs {
			all = append(all, f.Layer+": "+f.What)
		}
	}
	return all
}

// TestAsPlanned: two live jails are what their plans say; what no kernel shows is said to be so and
// not to be in order.
func TestAsPlanned(t *testing.T) {
	a, b := start(t, jailtest.New(t)), start(t, jailtest.New(t))
	findings := look(t, a, b.PID)
	layers := map[string]int{}
	for _, f := range findings {
		layers[f.Layer]++
		if f.Answer == verify.Differs {
			t.Errorf("%+v", f)
		}
		hidden := f.Layer == "landlock" || f.Layer == "seccomp" && strings.HasSuffix(f.What,
			"filter")
		if hidden && f.Answer != verify.Unreadable {
			t.Errorf("%+v: no kernel shows that", f)
		}
	}
	for _, layer := range []string{"namespaces", "ids", "capabilities", "seccomp", "landlock",
		"mounts", "control group", "descriptors", "rlimits", "process"} {
		if layers[layer] == 0 {
			t.Errorf("nothing was found out about %s", layer)
		}
	}
}

// TestPlanted starts jails that are not what the plan in hand says; each difference is found, and
// nothing else is.
func TestPlanted(t *testing.T) {
	for _, c := range []struct {
		name string
		// Into the plan that the jail is started by.
		plant func(p *jail.Plan)
		want  []string
	}{
		{"memory", func(p *jail.Plan) { p.Cgroup.Memory += 4096 },
			[]string{"control group: memory", "control group: memory and swap"}},
		{"tasks", func(p *jail.Plan) { p.Cgroup.PIDs++ }, []string{"control group: pids"}},
		{"cpu", func(p *jail.Plan) { p.Cgroup.CPUQuota += 1000 },
			[]string{"control group: cpu quota"}},
		{"period", func(p *jail.Plan) { p.Cgroup.CPUPeriod *= 2 },
			[]string{"control group: cpu period"}},
		{"out of memory", func(p *jail.Plan) { p.Cgroup.OOMScore++ },
			[]string{"control group: oom_score_adj"}},
		{"rlimit", func(p *jail.Plan) {
			p.Rlimits[slices.IndexFunc(p.Rlimits,
				func(l jail.Rlimit) bool { return l.Name == "nofile" })].Value++
		}, []string{"rlimits: " + "nofile"}},
		{"ids", func(p *jail.Plan) { p.IDs.Size-- }, []string{"ids: uid_map", "ids: gid_map"}},
		{"who is charged", func(p *jail.Plan) { p.IDs.Owner = 0 },
			[]string{"ids: owner of the user namespace"}},
		{"signals", func(p *jail.Plan) {
			p.Rlimits[slices.IndexFunc(p.Rlimits,
				func(l jail.Rlimit) bool { return l.Name == "sigpending" })].Value++
		}, []string{"rlimits: " + "sigpending"}},
		{"user", func(p *jail.Plan) { p.IDs.UID++ }, []string{"ids: Uid of each thread"}},
		{"a network", func(p *jail.Plan) { dropNamespace(p, "net") },
			withDevices("namespaces: net")},
		{"a namespace", func(p *jail.Plan) { dropNamespace(p, "ipc") },
			[]string{"namespaces: ipc"}},
		{"a writable bind", func(p *jail.Plan) { mountAt(p, "/data").Write = true },
			[]string{"mounts: /data"}},
		{"a bind to execute from", func(p *jail.Plan) { mountAt(p, "/data").Exec = true },
			[]string{"mounts: /data"}},
		{"another directory", func(p *jail.Plan) {
			mountAt(p, "/data").Source = mountAt(p, "/store").Source
		}, []string{"mounts: /data"}},
		{"a larger tmpfs", func(p *jail.Plan) { mountAt(p, "/tmp").Size += 4096 },
			[]string{"mounts: /tmp"}},
		{"a mount that is not there", func(p *jail.Plan) {
			p.Mounts = slices.DeleteFunc(p.Mounts,
				func(m jail.Mount) bool { return m.Target == "/tmp" })
			p.Landlock.Rules = slices.DeleteFunc(p.Landlock.Rules,
				func(r jail.LandlockRule) bool { return r.Path == "/tmp" })
		}, []string{"mounts: /tmp"}},
		{"capabilities", func(p *jail.Plan) { p.Capabilities = []string{"CAP_SYS_ADMIN"} },
			[]string{"capabilities: CapInh of each thread", "capabilities: CapPrm of each thread",
				"capabilities: CapEff of each thread", "capabilities: CapBnd of each thread",
				"capabilities: CapAmb of each thread"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := jailtest.New(t)
			plan := clone(s.Plan)
			c.plant(&s.Plan)
			j := start(t, s)
			j.Plan = plan
			if got := differing(look(t, j)); !slices.Equal(got, c.want) {
				t.Errorf("differ: %q, want %q", got, c.want)
			}
		})
	}
}

func clone(p jail.Plan) jail.Plan {
	p.Mounts, p.Rlimits, p.Namespaces = slices.Clone(p.Mounts), slices.Clone(p.Rlimits),
		slices.Clone(p.Namespaces)
	p.Landlock.Rules = slices.Clone(p.Landlock.Rules)
	return p
}

func dropNamespace(p *jail.Plan, name jail.Namespace) {
	p.Namespaces = slices.DeleteFunc(p.Namespaces, func(n jail.Namespace) bool { return n == name })
}

func mountAt(p *jail.Plan, target string) *jail.Mount {
	for n := range p.Mounts {
		if p.Mounts[n].Target == target {
			return &p.Mounts[n]
		}
	}
	return nil
}

// TestMountsBelow: what the host has mounted below the source of a bind is in the jail, too, with
// the bind's rights, also where one mount covers another; what the host has no more, or has another
// one of, differs.
func TestMountsBelow(t *testing.T) {
	s := jailtest.New(t)
	below := filepath.Join(s.Data, "below")
	other := t.TempDir()
	for _, dir := range []string{below, filepath.Join(other, "deep"), filepath.Join(other, "a")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	deep := filepath.Join(below, "deep")
	mountOn(t, other, below)
	mountOn(t, filepath.Join(other, "a"), deep)
	uncover := mountOn(t, other, deep)
	j := start(t, s)
	if got := differing(look(t, j)); len(got) > 0 {
		t.Errorf("differ: %q", got)
	}
	uncover()
	if got := differing(look(t, j)); !slices.Equal(got, []string{"mounts: /data/below/deep"}) {
		t.Errorf("one mount fewer: differ: %q", got)
	}
	writable := j
	writable.Plan = clone(j.Plan)
	mountAt(&writable.Plan, "/data").Write = true
	want := []string{"mounts: /data", "mounts: /data/below", "mounts: /data/below/deep"}
	if got := differing(look(t, writable)); !slices.Equal(got, want) {
		t.Errorf("a bind that should be writable: differ: %q, want %q", got, want)
	}
}

// mountOn binds the directory source on target until the test ends, or until the function that it
// returns is called.
func mountOn(t *testing.T, source, target string) (undo func()) {
	t.Helper()
	if err := syscall.Mount(source, target, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	undo = sync.OnceFunc(func() {
		if err := syscall.Unmount(target, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(undo)
	return undo
}

// TestChanged changes a live jail behind its daemon's back.
func TestChanged(t *testing.T) {
	s := jailtest.New(t)
	j := start(t, s)
	leaf := filepath.Join(cgroup.Root, s.Plan.Cgroup.Path)
	if layout, err := cgroup.Detect(); err != nil {
		t.Fatal(err)
	} else if layout != cgroup.V2 {
		leaf = filepath.Join(cgroup.Root, "pids", s.Plan.Cgroup.Path)
	}
	if err := os.WriteFile(filepath.Join(leaf, "pids.max"), []byte("max"), 0); err != nil {
		t.Fatal(err)
	}
	if got := differing(look(t, j)); !slices.Equal(got, []string{"control group: pids"}) {
		t.Errorf("differ: %q", got)
	}
}

// TestJoined lets a process of the host into the jail's process namespace, which nothing of jail's
// own ever does (T-003, T-004).
func TestJoined(t *testing.T) {
	j := start(t, jailtest.New(t))
	cmd := exec.Command("nsenter", "--target", strconv.Itoa(j.PID), "--pid", "--", "sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got := differing(look(t, j))
		if slices.Equal(got, []string{"namespaces: processes that joined"}) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("differ: %q", got)
		}
	}
}

// TestProc: a proc that shows the processes of the host is found, although it has the options of
// the plan, and so is one that hides no process.
func TestProc(t *testing.T) {
	for _, c := range []struct {
		name    string
		host    bool
		options []string
		want    string
	}{
		{"of the host", true, []string{"hidepid=4", "subset=pid"},
			"mounts: processes in /proc"},
		{"without hidepid", false, []string{"subset=pid"}, "mounts: /proc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := start(t, jailtest.New(t))
			of := j.PID
			if c.host {
				of = os.Getpid()
			}
			tree, err := sys.ProcOf(of, c.options...)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			if got := differing(look(t, j)); len(got) > 0 {
				t.Errorf("before: differ: %q", got)
			}
			if err := sys.AttachIn(tree, j.PID, "/proc"); err != nil {
				t.Fatal(err)
			}
			if got := differing(look(t, j)); !slices.Equal(got, []string{c.want}) {
				t.Errorf("differ: %q, want %q", got, c.want)
			}
		})
	}
}

// TestShared: a namespace that another jail has too is none of the jail's own.
func TestShared(t *testing.T) {
	j := start(t, jailtest.New(t))
	if got := differing(look(t, j, j.PID)); len(got) != 7 {
		t.Errorf("shared with itself: %q, want each of its seven namespaces", got)
	}
}

// TestAnotherProcess: what has the number of the jail's first process now, and is another, is not
// looked at (T-005).
func TestAnotherProcess(t *testing.T) {
	s := jailtest.New(t)
	live := s.Start(t)
	live.Do(victim.Do("getpid"))
	begun, err := live.StartTime()
	if err != nil {
		t.Fatal(err)
	}
	j := verify.Jail{Plan: s.Plan, PID: live.PID, Start: begun}
	for name, wrong := range map[string]verify.Jail{
		"a later start":   {Plan: j.Plan, PID: j.PID, Start: j.Start + 1},
		"another process": {Plan: j.Plan, PID: os.Getpid(), Start: j.Start},
		"no process":      {Plan: j.Plan, PID: 1 << 30, Start: j.Start},
	} {
		if got, err := verify.Look(wrong, nil, nil); !errors.Is(err, verify.ErrGone) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	live.End()
	if got, err := verify.Look(j, nil, nil); !errors.Is(err, verify.ErrGone) {
		t.Errorf("after its end: %v, %v", got, err)
	}
}

// TestDisks: a bound of a disk that is not the plan's is found.
func TestDisks(t *testing.T) {
	if err := cgroup.MissingIO(""); err != nil {
		t.Skip(err)
	}
	s := jailtest.New(t)
	s.Plan.Cgroup.IORead = 8 << 20
	j := start(t, s)
	root, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	disk, err := cgroup.Disk(root)
	if err != nil {
		t.Skip(err)
	}
	leaf, err := cgroup.Open(s.Plan.Cgroup.Path)
	if err != nil {
		t.Fatal(err)
	}
	for bound, want := range map[int64][]string{8 << 20: nil,
		16 << 20: {"control group: disk reads"}} {
		if err := leaf.LimitIO(disk, bound, 0); err != nil {
			t.Fatal(err)
		}
		if got := differing(look(t, j)); !slices.Equal(got, want) {
			t.Errorf("bound of %d: %q differ, want %q", bound, got, want)
		}
	}
}

// withDevices adds the finding of the host's network devices, where the host has any beside lo.
func withDevices(found ...string) []string {
	if devices, err := os.ReadDir("/sys/class/net"); err == nil && len(devices) > 1 {
		found = append(found, "namespaces: network devices")
	}
	return found
}
