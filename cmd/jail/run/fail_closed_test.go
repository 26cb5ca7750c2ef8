package run_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A point is one system call of jail's own programs, as testdata/inject records it.
type point struct {
	Role, Call, Detail string
	N                  int
	Ran, Failed        bool
}

func (p point) key() string { return p.Role + " " + p.Call + " " + p.Detail }

// errnos are what calls fail with where EPERM would be none of theirs.
var errnos = map[string]string{
	"clone": "EAGAIN", "clone3": "EAGAIN", "fork": "EAGAIN", "vfork": "EAGAIN", "write": "ENOSPC",
	"pwrite64": "ENOSPC", "fsync": "EIO", "fdatasync": "EIO",
	"mkdir": "ENOSPC", "mkdirat": "ENOSPC", "ftruncate": "EFBIG", "memfd_create": "ENFILE",
	"socket": "EMFILE", "socketpair": "EMFILE", "pipe2": "EMFILE",
	"openat": "EMFILE", "openat2": "EACCES", "recvmsg": "ECONNRESET", "sendmsg": "ECONNRESET",
	"fsopen": "ENODEV", "ioctl": "ENXIO", "landlock_create_ruleset": "ENOSYS",
	"flock": "ENOLCK", "pidfd_open": "EMFILE", "mount_setattr": "EINVAL",
}

// harmless are the calls whose failure takes nothing from a jail: the run goes on, whole, and its
// end is as any other's.
var harmless = []struct{ pattern, why string }{
	{`^\S+ openat r (/sys/(kernel|fs/cgroup/[^ ]*/cpu\.(cfs|max))|/proc/self/(maps|cgroup|mountinfo|exe)$|/proc/filesystems$)`, "the Go runtime and libraries tune themselves by it"},
	{`^\S+ (pidfd_open|pidfd_send_signal|waitid|clone 0x5100)\b`,
		"the Go runtime asks whether there are pidfds, and waits in the older way"},
	{`^\S+ prlimit64 7 soft$`,
		"the Go runtime asks for as many files as may be open, where it may have more"},
	{`^shim prlimit64 8 unlimited$`,
		"libcontainer wants to lock memory for its filter of devices, which no kernel since 5.11 counts as such"},
	{`^jaild openat r .*/bin/(jaild|bundles/)`,
		"a bundle that cannot be read has no commands, and this tool is in none"},
	{`^jaild openat r .*/state/modules/(secret|H|H/wazero[^/]*)$`,
		"the secret is read again; what was compiled is compiled anew"},
	{`^(jaild|shim-init) openat r /etc/passwd$`,
		"a home directory that is not known; libcontainer needs none"},
	{`^jaild ioctl 0x40049409 `, "the image is copied where it cannot be shared"},
	{`^jaild unlinkat .*/state/(terms/new-N|runs/|workspaces/[^/]*/(journal.json|upper.img)$)`,
		"the next attempt, or the next daemon, removes it"},
	{`^jaild ((openat2 w|flock) .*/state/workspaces/\.live/lock|mkdirat .*/state/workspaces/\.live|flock .*/state/workspaces)$`,
		"the next daemon sweeps what dead ones left in the store"},
	{`^jaild openat r .*/state/runs/`, "the next attempt removes it"},
	{`^jaild openat r .*/state/sessions$`,
		"the next daemon forgets the sessions that none can wake"},
	{`^jaild openat r .*/state/names/ids$`, "names of runs that are gone stay until the next look"},
	{`^jaild openat r .*/state/output/[^/]*/about\.json$`,
		"an id that somebody may have is a name of a run with another id"},
	{`^jaild (openat2 [rp] (/upper|.*/work/(filled|HEAD))|openat r /proc/self/fd/N)`,
		"the first look at the shadow only saves work; the review that counts looks again"},
	{`^jaild (openat w|write) /sys/fs/cgroup/(\S*/)?jail/[^/]*/cpu\.(cfs_quota_us|max)$`,
		"a jail that is ended dies a little slower"},
	{`^jaild openat r /sys/fs/cgroup/(\S*/)?jail/[^/]*/pids\.(peak|events)$`,
		"a figure that the kernel does not have everywhere"},
	{`^jaild openat r /proc/N/stat$`,
		"who the first process is, for jail verify, which finds that it cannot tell"},
	{`^jaild (syncfs .*/state/workspaces/[^/]*|\S+ (w )?.*/state/workspaces/[^/]*/past-H.json.new)$`, "the commit is made; that it cannot be reverted is on its record"},
	{`^jaild (fstatfs /|openat2 r .*/work)$`, "the first look at the shadow, and a figure of it"},
	{`^jaild renameat .*/state/runs/[^.][^/]*$`,
		"the run's directory is removed under its own name"},
	{`^jaild openat2 r .*/state/workspaces(/[^/]*)?$`,
		"the next daemon settles an interrupted commit, or reports that the shadow of this id exists; preparing the shadow looks again"},
	{`^jaild openat r .*/state/terms/[^/]*\.json$`,
		"a list shows a shadow whose terms cannot be read as one that is never committed"},
	{`^jaild (openat w|write) /sys/fs/cgroup/(\S*/)?cgroup\.procs$`,
		"the daemon asks to be moved where it is, so that the kernel is ready sooner"},
	{`^jaild (fsopen proc|fsconfig \d (subset)?|fsmount )$`,
		"the daemon tries what the kernel lets it change of a proc; where it may not try, the version of the kernel says it"},
	{`^shim prctl 0x1 0x9$`,
		"the copy of the shim that makes the user namespace looks for its parent, too, and is killed a moment later"},
	{`^shim mount_setattr /$`,
		"a read-only bind without mapped owners shows fewer rights, never more"},
	{`^shim move_mount /mnt/run/jail/cache(/N)?$`,
		"as above: it is tried once more without mapped owners"},
	{`^shim \S+ (. )?/sys/fs/cgroup/(systemd|unified)/`,
		"these hold no limits; without the one that kills at once, the processes are frozen and killed one by one"},
	{`^shim unlinkat (/sys/fs/cgroup/|.*/state/runs/)`, "libcontainer tries again"},
	{`^shim openat r .*/state/runs/`, "libcontainer tries again"},
	{`^shim (openat2 p|openat r|fstatfs) /sys/fs/cgroup$`,
		"libcontainer opens files of control groups by their names instead, as where there is no openat2"},
	{`^shim(-init)? (open_tree /(proc)?|fsopen proc|fsconfig \d (subset|hidepid)?|fsmount |fstatfs /|` +
		`openat2? [rp] (/N|\.|(/proc)?/thread-self)[^ ]*|fcntl 0x40[6a] 0x0|openat p /jail-shim)$`,
		"libcontainer has a second way to a proc that nobody can have replaced, and to a copy of its own program"},
	{`^shim-init (openat p|fstatfs) /proc$`,
		"libcontainer keeps no handle of proc then, but opens and checks one for each use"},
	{`^shim-init mount /  0x1021$`,
		"libcontainer tries it with fewer flags first, which the kernel never takes here"},
	{`^shim(-init)? close_range\b`, "libcontainer marks the descriptors one by one instead"},
	{`^shim-init prctl 0xf `, "the name of a process"},
	{`^shim(-init)? seccomp ([13] 0x[0-9a-f]+|0 0x1|2 0x0)$`,
		"libseccomp asks what the kernel knows"},
}

// afterwards are the calls with which a daemon ends: the run is over and on record, and that the
// daemon did not end well is the client's to hear.
var afterwards = []struct{ pattern, why string }{
	{`^jaild \S+ (. )?.*/(audit/head|state/keys/audit.head|state/runs/.*)$`,
		"the head of the log, and the run's directory"},
}

// unrecorded are the calls without which there is no record to write, or nobody who asked: nothing
// has been started.
var unrecorded = []struct{ pattern, why string }{
	{`^jaild \S+ .*/audit(/|$)`, "the log itself"},
	{`^jaild \S+ .*/state/keys`, "the log's keys"},
	{`^jaild openat2? r .*/state/(workspaces|runs|terms|pool)(/[^/]*(/meta.json)?)?$`,
		"the daemon looks for what dead ones left, and does not start where it cannot"},
	{`^jaild flock .*/state/(runs|pool)$`,
		"the daemon removes what was half made, and does not start where it cannot"},
	{`^jaild symlinkat `, "without a name the run has no id"},
	{`^jaild openat r (.*/state/policy-versions.json|/etc/jail/profiles)$`,
		"the daemon reads its policies, and does not start where it cannot"},
	{`^jaild (recvmsg|getsockopt|fcntl|write socket:)`,
		"the client's connection: the request never came, or its answer never went"},
}

func listed(list []struct{ pattern, why string }, p point) bool {
	return slices.ContainsFunc(list, func(x struct{ pattern, why string }) bool {
		return regexp.MustCompile(x.pattern).MatchString(p.key())
	})
}

// untold is a failure that process 1 of the jail says on standard error, since it can tell nobody
// else.
var untold = regexp.MustCompile(`^(jail-init: |exec /run/jail/init: )[^\n]*\n`)

// injectInto runs a tool in a jail while one system call of jail's fails, and returns what came of
// it and the call; false if it was never made.
func injectInto(h *cmdtest.Host, p point, n int, args ...string) (cmdtest.Outcome, point, bool) {
	h.T.Helper()
	errno := errnos[p.Call]
	if errno == "" {
		errno = "EPERM"
	}
	file := filepath.Join(h.Root, "points")
	match := "^" + regexp.QuoteMeta(p.key()) + "$"
	o := h.Run(h.Program(cmdtest.Must(cmdtest.InjectProgram())(h.T), append([]string{"-match", match, "-n",
		strconv.Itoa(n), "-errno", errno, "-record", file, "--",
		filepath.Join(h.Bin, "jail")}, args...)...))
	for _, q := range pointsOf(h, file) {
		if q.Failed {
			return o, q, true
		}
	}
	return o, p, false
}

func pointsOf(h *cmdtest.Host, file string) []point {
	h.T.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		h.T.Fatal(err)
	}
	var all []point
	for line := range bytes.Lines(text) {
		var p point
		if err := json.Unmarshal(line, &p); err != nil {
			// Cut short: the program was ended.
			continue
		}
		if p.Role == "client" {
			continue // it has no privileges
		}
		all = append(all, p)
	}
	return all
}

// T-085, and section 0.6 of the catalogue: every system call with which jail sets up, watches and
// takes down a jail fails once, one after the other. The normal test takes a sample of them,
// JAIL_TEST_LONG=1 all.
func TestFailsClosed(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the tracer knows the system calls of amd64 only")
	}
	h := cmdtest.New(t)
	file := filepath.Join(h.Root, "points")
	const control = "baseline"
	tool := []string{"--commit", "--", h.Probe, "fillwhen", "0"}
	// What only a first run makes is made.
	h.Wants(h.Jail("run", "--", h.Probe), 0, "")
	o := h.Run(h.Program(cmdtest.Must(cmdtest.InjectProgram())(t), append([]string{"-record", file, "--",
		filepath.Join(h.Bin, "jail"), "run", "--id", control}, tool...)...))
	if _, err := os.Stat(filepath.Join(h.Work, "filled")); o.Code != 0 || o.Out != "ready\n" ||
		err != nil {
		t.Fatalf("control: %+v, %v", o, err)
	}
	h.Discard(control)
	all := pointsOf(h, file)
	points := distinct(all)
	t.Logf("%d points, %d of them different", len(all), len(points))
	clearWork(h)
	if os.Getenv("JAIL_TEST_LONG") == "" {
		points = sample(points)
	}
	if len(points) < 30 {
		t.Fatalf("only %d points", len(points))
	}
	classes := map[string]int{}
	for i, p := range points {
		id := "point" + letters(i)
		p.Detail = strings.ReplaceAll(p.Detail, control, id)
		n := 1
		if p.N > 1 {
			n = p.N
		}
		p.Detail = strings.ReplaceAll(p.Detail, "ROOT", h.Root)
		daemons := len(h.Records("", "daemon.started"))
		o, at, ok := injectInto(h, p, n, append([]string{"run", "--id", id}, tool...)...)
		// What several threads do is not the same in each run.
		if !ok {
			classes["not made"]++
			if testing.Verbose() {
				t.Logf("%s: not made", strings.ReplaceAll(p.key(), h.Root, "ROOT"))
			}
			clearRun(h, id)
			continue
		}
		class := check(h, id, at, o, daemons)
		classes[class]++
		if testing.Verbose() {
			t.Logf("%s: %s", strings.ReplaceAll(at.key(), h.Root, "ROOT"), class)
		}
		clearRun(h, id)
	}
	t.Logf("%v", classes)
}

func clearWork(h *cmdtest.Host) {
	for _, name := range cmdtest.NamesIn(h.Work) {
		os.RemoveAll(filepath.Join(h.Work, name))
	}
}

func clearRun(h *cmdtest.Host, id string) {
	clearWork(h)
	if slices.Contains(h.Kept(), id) {
		h.Discard(id)
	}
}

// check is what must hold whatever failed, and returns what came of it. A daemon that did not start
// had no log to write to: daemons is how many have started before.
func check(h *cmdtest.Host, id string, p point, o cmdtest.Outcome, daemons int) string {
	t := h.T
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s #%d fails (ran %v): %s", strings.ReplaceAll(p.key(), h.Root, "ROOT"), p.N,
			p.Ran, fmt.Sprintf(format, args...))
	}
	_, err := os.Stat(filepath.Join(h.Work, "filled"))
	changed := err == nil
	ran := changed || o.Out != "" || slices.Contains(h.Kept(), id)
	ends := h.Records(id, "run.finished")
	class := "tolerated"
	switch {
	case o.Code == 0 && o.Out == "ready\n" && changed:
		if !listed(harmless, p) {
			fail("nobody noticed")
		}
	case o.Code == 125 || o.Code == 126:
		class = fmt.Sprint(o.Code)
		said := untold.ReplaceAllString(changedLine.ReplaceAllString(o.Err, ""), "")
		if !cmdtest.Sentence.MatchString(said) {
			fail("not one sentence: %s", o.Err)
		}
		if !strings.Contains(o.Err, "\njail: hint: ") {
			fail("no hint: %s", o.Err)
		}
		if ran && !p.Ran {
			fail("the tool ran: %+v, kept %v", o, h.Kept())
		}
		if (len(ends) != 1 || ends[0].Error == "" && !(p.Ran && listed(afterwards, p))) &&
			!(len(ends) == 0 && (listed(unrecorded, p) ||
				len(h.Records("", "daemon.started")) == daemons)) {
			fail("%d records of the end: %+v\n%s", len(ends), ends, o.Err)
		}
	default:
		fail("%+v", o)
	}
	for _, name := range cmdtest.NamesIn(h.Work) {
		if name != "filled" {
			fail("%s is left in the real directory", name)
		}
	}
	if left := leftSoon(h); len(left) > 0 {
		fail("left behind: %v", left)
	}
	return class
}

// leftSoon returns what is left after the processes that have ended were waited for. The durability
// marker of an upper layer stays for the next daemon if this one could not close the layer in
// order, and so does the directory of a run whose end the log did not take.
func leftSoon(h *cmdtest.Host) (left []string) {
	for deadline := time.Now().Add(cmdtest.Bound); ; time.Sleep(5 * time.Millisecond) {
		left = cmdtest.Left(h, h.Kept())
		next := func(name string) bool {
			return name == "workspaces/.live" || strings.HasPrefix(name, "runs/")
		}
		if len(left) > 0 && !slices.ContainsFunc(left,
			func(name string) bool { return !next(name) }) {
			h.Wants(h.Jail("workspaces"), 0, "")
			left = cmdtest.Left(h, h.Kept())
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

var changedLine = regexp.MustCompile(`^jail: run \S+ changed [^\n]*\n`)

// distinct drops what is the same call of the same program with the same argument.
func distinct(all []point) []point {
	seen := map[string]bool{}
	var out []point
	for _, p := range all {
		if !seen[p.key()] {
			seen[p.key()] = true
			out = append(out, p)
		}
	}
	return out
}

// inSample is how many points the normal test takes.
const inSample = 40

// sample takes one point of each program and call, less those that are known to be harmless, and of
// these some evenly.
func sample(all []point) []point {
	seen := map[string]bool{}
	var each []point
	for _, p := range all {
		if k := p.Role + " " + p.Call; !seen[k] && !listed(harmless, p) {
			seen[k] = true
			each = append(each, p)
		}
	}
	var out []point
	for i := range inSample {
		out = append(out, each[i*len(each)/inSample])
	}
	return out
}

// letters is a number without digits, which the tracer leaves out of names.
func letters(n int) string {
	return strings.Map(func(r rune) rune { return r - '0' + 'a' }, strconv.Itoa(n))
}
