package launch_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// TestLiveJail asks the kernel, from outside, what a jail is that waits for its orders. Two live at
// once, and share nothing.
func TestLiveJail(t *testing.T) {
	a, b := jailtest.New(t), jailtest.New(t)
	live := []*liveJail{look(t, a), look(t, b)}
	for _, l := range live {
		t.Run("threads", l.threads)
		t.Run("ids", l.ids)
		t.Run("namespaces", l.namespaces)
		t.Run("descriptors", l.descriptors)
		t.Run("mounts", l.mounts)
		t.Run("texts", l.texts)
		t.Run("proc", l.proc)
		t.Run("control group", l.controlGroup)
		t.Run("network", l.network)
	}
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		if one, other := live[0].link("ns/"+kind), live[1].link("ns/"+kind); one == other {
			t.Errorf("two jails share the %s namespace", kind)
		}
	}
	if a.HostUID() == b.HostUID() {
		t.Errorf("two jails share the host uid %d", a.HostUID())
	}
}

type liveJail struct {
	*jailtest.Setup
	*jailtest.Jail
	t testing.TB
}

func look(t *testing.T, s *jailtest.Setup) *liveJail {
	for _, f := range []*seccomp.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
		// To read what the tool cannot.
		allow(f, []string{"uname"})
	}
	l := &liveJail{s, s.Start(t), t}
	// It has answered, so all of its restrictions stand.
	l.One("getpid")
	return l
}

func (l *liveJail) path(name string) string { return fmt.Sprintf("/proc/%d/%s", l.PID, name) }

func (l *liveJail) read(name string) string {
	l.t.Helper()
	content, err := os.ReadFile(l.path(name))
	if err != nil {
		l.t.Fatal(err)
	}
	return string(content)
}

func (l *liveJail) link(name string) string {
	l.t.Helper()
	to, err := os.Readlink(l.path(name))
	if err != nil {
		l.t.Fatal(err)
	}
	return to
}

// status reads a status file of /proc into its fields.
func status(content string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(content) {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}

// Every thread has every restriction (T-033, T-035, T-058).
func (l *liveJail) threads(t *testing.T) {
	tasks, err := filepath.Glob(l.path("task/*/status"))
	if err != nil || len(tasks) < 2 {
		t.Fatalf("%d threads, %v; a Go program has several", len(tasks), err)
	}
	none := strings.Repeat("0", 16)
	user := fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d", l.HostUID())
	for _, task := range tasks {
		content, err := os.ReadFile(task)
		if err != nil {
			// A thread that has ended.
			continue
		}
		got := status(string(content))
		for key, want := range map[string]string{"CapInh": none, "CapPrm": none, "CapEff": none,
			"CapBnd": none, "CapAmb": none,
			"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "2", "Groups": "", "Uid": user,
			"Gid": user} {
			if got[key] != want {
				t.Errorf("%s: %s is %q, want %q", task, key, got[key], want)
			}
		}
	}
}

// The tool is nobody of the host (T-034).
func (l *liveJail) ids(t *testing.T) {
	base := l.Plan.IDs.Base
	want := fmt.Sprintf("0 %d %d", base, l.Plan.IDs.Size)
	for _, name := range []string{"uid_map", "gid_map"} {
		if got := strings.Join(strings.Fields(l.read(name)), " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if uid := l.HostUID(); uid <= base || uid-base >= l.Plan.IDs.Size {
		t.Errorf("host uid %d is not of the jail's own range from %d", uid, base)
	}
}

func (l *liveJail) namespaces(t *testing.T) {
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		host, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		if inside := l.link("ns/" + kind); inside == host {
			t.Errorf("the %s namespace is the host's", kind)
		}
	}
}

// Nothing of the host is open inside (T-001).
func (l *liveJail) descriptors(t *testing.T) {
	allowed := map[string]string{"0": `^pipe:\[\d+\]$`, "1": `^pipe:\[\d+\]$`,
		"2": `^pipe:\[\d+\]$`, "3": `^socket:\[\d+\]$`}
	// Made inside, by the Go runtime.
	own := regexp.MustCompile(`^anon_inode:\[(eventpoll|eventfd)\]$`)
	fds, err := filepath.Glob(l.path("fd/*"))
	if err != nil || len(fds) < 4 {
		t.Fatalf("%d descriptors, %v", len(fds), err)
	}
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if err != nil {
			t.Fatal(err)
		}
		want, ok := allowed[filepath.Base(fd)]
		if ok && !regexp.MustCompile(want).MatchString(to) || !ok && !own.MatchString(to) {
			t.Errorf("descriptor %s is %s", filepath.Base(fd), to)
		}
	}
	if cwd, root := l.link("cwd"), l.link("root"); cwd != "/" || root != "/" {
		t.Errorf("working directory %s, root %s", cwd, root)
	}
	inside, err := os.Stat(l.path("root"))
	if err != nil {
		t.Fatal(err)
	}
	if host, err := os.Stat("/"); err != nil || os.SameFile(inside, host) {
		t.Errorf("the root is the host's, or %v", err)
	}
}

// Mounts are what the plan says, with no way to the host's, and propagate nowhere (T-010, T-013,
// T-015, T-023).
func (l *liveJail) mounts(t *testing.T) {
	want := map[string]string{"/": "ro", "/data": "ro", "/store": "rw", "/tmp": "rw", "/dev": "ro",
		"/proc": "rw", "/run/jail/init": "ro"}
	for _, d := range l.Plan.Devices {
		want["/dev/"+d] = "rw"
	}
	seen := map[string]bool{}
	for line := range strings.Lines(l.read("mountinfo")) {
		f := strings.Fields(line)
		target, options := f[4], strings.Split(f[5], ",")
		seen[target] = true
		access, ok := want[target]
		if !ok {
			t.Errorf("mount that the plan does not have: %s", line)
		}
		need := []string{access, "nosuid", "nodev", "noexec"}
		if strings.HasPrefix(target, "/dev/") {
			need = []string{access, "nosuid", "noexec"}
		}
		if target == "/" || target == "/run/jail/init" {
			need = need[:3]
		}
		for _, o := range need {
			if !slices.Contains(options, o) {
				t.Errorf("mount %s: is not %s: %s", target, o, f[5])
			}
		}
		if f[6] != "-" {
			t.Errorf("mount %s propagates: %s", target, f[6])
		}
	}
	for target := range want {
		if !seen[target] {
			t.Errorf("no mount on %s", target)
		}
	}
	l.tree(t)
}

// tree looks at every name of the root that is not in a mount of data, and at every device.
func (l *liveJail) tree(t *testing.T) {
	want := []string{"/", "/data", "/data/f", "/dev", "/proc", "/run", "/run/jail",
		"/run/jail/init", "/store", "/store/f", "/tmp"}
	for _, d := range l.Plan.Devices {
		want = append(want, "/dev/"+d)
	}
	slices.Sort(want)
	root := l.path("root")
	var got []string
	err := filepath.WalkDir(root+"/", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside := "/" + strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
		got = append(got, inside)
		if d.Type()&(fs.ModeDevice|fs.ModeSocket|fs.ModeNamedPipe|fs.ModeSymlink) != 0 &&
			!strings.HasPrefix(inside, "/dev/") {
			t.Errorf("%s is a %v", inside, d.Type())
		}
		if inside == "/proc" {
			return fs.SkipDir
		}
		return nil
	})
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the tree is %q, want %q (%v)", got, want, err)
	}
}

// What a jail can read of itself says nothing of who started it. The one exception is known:
// mountinfo names the directories of the host that binds show (T-024).
func (l *liveJail) texts(t *testing.T) {
	if got := l.read("cmdline"); got != "/run/jail/init\x00restricted\x00" {
		t.Errorf("command line %q", got)
	}
	for v := range strings.SplitSeq(strings.TrimRight(l.read("environ"), "\x00"), "\x00") {
		if name, _, _ := strings.Cut(v, "="); !slices.Contains([]string{"GOTRACEBACK", "GOMAXPROCS",
			"GOGC", "GOMEMLIMIT", "HOME"}, name) {
			t.Errorf("variable %q", v)
		}
	}
	if got := string(l.One("uname", buf(390)).Data[65:70]); got != "jail\x00" {
		t.Errorf("host name %q", got)
	}
	if got := string(l.One("=read", text("/proc/self/cgroup")).Data); strings.Contains(got,
		string(l.Plan.ID)) {
		t.Errorf("the control group shows its path: %s", got)
	}
}

// Proc shows processes only, and of these only the jail's own (T-017, T-038).
func (l *liveJail) proc(t *testing.T) {
	r := l.One("=readdir", text("/proc"))
	names := strings.Split(strings.TrimRight(string(r.Data), "\x00"), "\x00")
	slices.Sort(names)
	if want := []string{"1", "self", "thread-self"}; !slices.Equal(names, want) {
		t.Errorf("proc shows %q, want %q", names, want)
	}
	for _, name := range []string{"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger",
		"/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/kmsg",
		"/proc/timer_list", "/proc/sched_debug", "/proc/mounts/..", "/sys/kernel", "/sys/firmware",
		"/sys/fs/cgroup", "/etc/passwd", "/home", "/root"} {
		if r := l.One("newfstatat", i(-100), text(name), buf(144), i(0)); r.Errno != "ENOENT" &&
			r.Errno != "ENOTDIR" {
			t.Errorf("%s: %v", name, r)
		}
	}
	for _, name := range []string{"/proc/1/oom_score_adj", "/proc/1/coredump_filter",
		"/proc/self/comm", "/proc/self/uid_map", "/proc/self/mem"} {
		if r := l.One("openat", i(-100), text(name), i(1)); r.Errno != "EACCES" {
			t.Errorf("open %s to write: %v", name, r)
		}
	}
}

// The kernel holds the very limits of the plan.
func (l *liveJail) controlGroup(t *testing.T) {
	for _, line := range strings.Split(strings.TrimSpace(l.read("cgroup")), "\n") {
		f := strings.SplitN(line, ":", 3)
		if f[2] != l.Plan.Cgroup.Path && !strings.Contains(f[1], "hugetlb") &&
			!strings.Contains(f[1], "net_") {
			t.Errorf("control group %s, want %s", line, l.Plan.Cgroup.Path)
		}
	}
	layout, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	c := l.Plan.Cgroup
	want := map[string]string{"memory/memory.limit_in_bytes": fmt.Sprint(c.Memory),
		"memory/memory.memsw.limit_in_bytes": fmt.Sprint(c.Memory),
		"pids/pids.max":                      fmt.Sprint(c.PIDs),
		"cpu/cpu.cfs_quota_us":               fmt.Sprint(c.CPUQuota),
		"cpu/cpu.cfs_period_us":              fmt.Sprint(c.CPUPeriod),
		"devices/devices.list":               "c 1:3 rw\nc 1:5 rw\nc 1:7 rw\nc 1:8 rw\nc 1:9 rw"}
	if layout == cgroup.V2 {
		want = map[string]string{"memory.max": fmt.Sprint(c.Memory), "memory.swap.max": "0",
			"pids.max": fmt.Sprint(c.PIDs),
			"cpu.max":  fmt.Sprintf("%d %d", c.CPUQuota, c.CPUPeriod)}
	}
	for file, value := range want {
		controller, name := "", file
		if layout != cgroup.V2 {
			controller, name, _ = strings.Cut(file, "/")
		}
		content, err := os.ReadFile(filepath.Join(cgroup.Root, controller, c.Path, name))
		if err != nil {
			t.Error(err)
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		slices.Sort(lines)
		if got := strings.Join(lines, "\n"); got != value {
			t.Errorf("%s is %q, want %q", file, got, value)
		}
	}
	if got, _ := strconv.Atoi(strings.TrimSpace(l.read("oom_score_adj"))); got != c.OOMScore {
		t.Errorf("oom_score_adj is %d, want %d", got, c.OOMScore)
	}
	limits := l.read("limits")
	for name, value := range map[string]string{"Max core file size": "0", "Max open files": "88",
		"Max file size": "4194304", "Max locked memory": "0", "Max cpu time": "40"} {
		if !regexp.MustCompile(`(?m)^` + name + ` +` + value + ` +` + value +
			` `).MatchString(limits) {
			t.Errorf("%s is not %s:\n%s", name, value, limits)
		}
	}
}

// The only device is loopback, and nothing leads anywhere (T-070).
func (l *liveJail) network(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(l.read("net/dev")), "\n")[2:]
	if len(lines) != 1 || !strings.HasPrefix(strings.TrimSpace(lines[0]), "lo:") {
		t.Errorf("network devices: %q", lines)
	}
	if routes := strings.Split(strings.TrimSpace(l.read("net/route")), "\n"); len(routes) != 1 {
		t.Errorf("routes: %q", routes)
	}
	if unix := strings.Split(strings.TrimSpace(l.read("net/unix")), "\n"); len(unix) != 1 {
		t.Errorf("unix sockets: %q", unix)
	}
}
