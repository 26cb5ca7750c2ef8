//go:build league

package league

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/cgroup"
)

// control is the attack without a sandbox, as root.
const control = "nothing"

// A sandbox is one column.
type sandbox struct {
	name string
	// It needs to see the host's processes, or thinks that it is in a sandbox already.
	hostPIDs bool
	ours     bool
	// A user starts it; else root does, and the tool inside is a user of a namespace.
	asUser bool
	// Its path, or "" if it is not there.
	binary  func() string
	paths   func(w *world) paths
	prepare func(t *testing.T, w *world, o *outcome)
	// Program's first is the probe's own path.
	argv func(w *world, program ...string) []string
	why  string
}

var rooted = func(*world) paths { return paths{"/data", "/store"} }

const (
	memoryLimit = 256 << 20
	taskLimit   = 64
	tmpLimit    = 16 << 20
)

var sandboxes = []sandbox{
	{name: control, binary: which("unshare"), argv: func(w *world, program ...string) []string {
		return append([]string{"unshare", "--mount", "--uts", w.probe}, program...)
	},
		paths: func(w *world) paths { return paths{w.data, w.store} }},
	{name: "bubblewrap", binary: which("bwrap"), asUser: true, paths: rooted, argv: bubblewrap,
		why: "A user starts it, with every namespace, no way to make more user namespaces, no " +
			"capability, a new session, nothing of the environment, and a root that has only what " +
			"is granted. " +
			"It has no filter of its own (it loads one that the caller compiles, which its " +
			"command line has none of) and no limits but the size of a tmpfs."},
	{name: "firejail", binary: which("firejail"), asUser: true, hostPIDs: true,
		prepare: firejailHost, argv: firejail,
		paths: func(w *world) paths { return paths{w.data, w.store} },
		why: "A user starts the set-user-id program, with the options that its own templates for " +
			"new profiles recommend: no capability, its default filter also for 32-bit programs, " +
			"no network, private /tmp, /dev, /etc and home, no other user ids, no new namespaces, " +
			"limits of processes and file size as rlimits, and of the address space, which is no " +
			"limit of memory (with 512 MiB of it a Go program does not start). It shows the " +
			"host's own root, less what it hides."},
	{name: "runc", binary: which("runc"), paths: rooted, prepare: bundle, argv: runcRun,
		why: "Root starts it over the configuration that `runc spec` writes, hardened as " +
			"container engines do it on request: a user namespace that maps to ids of nobody, uid " +
			"1000, " +
			"no capability, no_new_privs, a read-only root, the default filter that Debian ships " +
			"for podman, limits of memory and tasks, /tmp of 16 MiB."},
	{name: "crun", binary: which("crun"), paths: rooted, prepare: bundle, argv: crunRun,
		why: "The same configuration."},
	{name: "gVisor", binary: func() string { return *runsc }, paths: rooted, prepare: bundle,
		argv: runscRun,
		why: "The same configuration, with `--platform=systrap --network=none --host-uds=none`. " +
			"What it answers is said by a kernel of its own, so most calls that succeed have not " +
			"reached the host's."},
	{name: "jail", ours: true, hostPIDs: true,
		why: "The plan of a policy with a directory to read, one to write and /tmp, and the " +
			"limits above. The attack is native code in jail-init's place: no tool of jail's is " +
			"native, " +
			"so it stands for a WebAssembly guest that has broken out of the engine already."},
}

func which(name string) func() string {
	return func() string {
		for _, dir := range []string{"", "/usr/bin/", "/usr/sbin/"} {
			if path, err := exec.LookPath(dir + name); err == nil {
				return path
			}
		}
		return ""
	}
}

func bubblewrap(w *world, program ...string) []string {
	return append([]string{"bwrap", "--unshare-all", "--unshare-user", "--disable-userns",
		"--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL",
		"--hostname", "sandbox", "--uid", strconv.Itoa(toolUID), "--gid", strconv.Itoa(toolUID),
		"--ro-bind", w.rootfs, "/", "--proc", "/proc", "--dev", "/dev",
		"--size", strconv.Itoa(tmpLimit), "--tmpfs", "/tmp", "--ro-bind", w.data, "/data", "--bind",
		w.store, "/store", "--chdir", "/", "/probe"}, program...)
}

func firejail(w *world, program ...string) []string {
	return append([]string{"firejail", "--quiet", "--noprofile", "--caps.drop=all", "--nonewprivs",
		"--noroot", "--nogroups", "--seccomp", "--seccomp.block-secondary",
		"--restrict-namespaces", "--protocol=unix", "--net=none", "--ipc-namespace",
		"--hostname=sandbox", "--private", "--private-dev", "--private-tmp", "--private-cache",
		"--private-etc=passwd,group", "--disable-mnt", "--nosound", "--no3d", "--novideo",
		"--nodvd", "--notv", "--nou2f", "--noinput", "--nodbus", "--machine-id",
		"--read-only=" + w.data, "--rlimit-as=1073741824", fmt.Sprintf("--rlimit-nproc=%d",
			taskLimit), "--rlimit-fsize=4194304", w.probe}, program...)
}

// firejailHost gives the throwaway the user that firejail wants to find in the lists of users.
func firejailHost(t *testing.T, w *world, _ *outcome) {
	home := filepath.Join(w.dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, uid, uid); err != nil {
		t.Fatal(err)
	}
	for list, line := range map[string]string{
		"/etc/passwd": fmt.Sprintf("league:x:%d:%d::%s:/bin/sh\n", uid, uid, home),
		"/etc/group":  fmt.Sprintf("league:x:%d:\n", uid)} {
		have, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		own := filepath.Join(w.dir, filepath.Base(list))
		if err := os.WriteFile(own, append(have, line...), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(own, list, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
}

func runcRun(w *world, program ...string) []string {
	return containerRun(w, []string{"runc", "--root", w.dir + "/state"}, program)
}

func crunRun(w *world, program ...string) []string {
	args := []string{"crun", "--root", w.dir + "/state"}
	if hybrid {
		args = append(args, "--cgroup-manager=disabled")
	}
	return containerRun(w, args, program)
}

func runscRun(w *world, program ...string) []string {
	args := []string{*runsc, "--root", w.dir + "/state", "--platform=systrap", "--network=none",
		"--host-uds=none"}
	return containerRun(w, args, program)
}

func pureV2() bool {
	layout, err := cgroup.Detect()
	return err == nil && fmt.Sprint(layout) == "v2"
}

var containers int

// containerRun writes the bundle's configuration for this program, and runs it.
func containerRun(w *world, runtime []string, program []string) []string {
	containers++
	if err := writeConfig(w, program); err != nil {
		return []string{"/bin/sh", "-c", "echo " + strings.ReplaceAll(err.Error(), "'", "") +
			" >&2; exit 1"}
	}
	return append(runtime, "run", "--bundle", w.dir,
		fmt.Sprintf("league-%d-%d", os.Getpid(), containers))
}
