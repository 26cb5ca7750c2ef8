package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

// Places and bounds of jails of native programs.
const (
	ptsDir = "/dev/pts"
	shmDir = "/dev/shm"
	// Inodes of each tmpfs: a compiler's cache is many small files.
	nativeTmpFiles = 1 << 17
	maxShm         = 64 << 20 // bytes
	shmFiles       = 1024
)

// PolicyFile holds the effective policy of a jail of programs of the host, and its digest, as JSON;
// jail policy explain --self reads it.
const PolicyFile = "/run/jail/policy.json"

// AuthorityFile holds the certificates that the programs of a jail with fetch rules trust: those
// that the proxy trusts, and the proxy's own if it intercepts TLS. The file is empty in the plan;
// it is filled when the proxy has started.
const AuthorityFile = "/run/jail/certificates.pem"

// Trusting returns the plan with these certificates, in PEM, in AuthorityFile, if it has that file.
func (p Plan) Trusting(certificates string) Plan {
	p.Files = slices.Clone(p.Files)
	for i := range p.Files {
		if p.Files[i].Path == AuthorityFile {
			p.Files[i].Text = certificates
		}
	}
	return p
}

// Where programs of Debian and others look for certificates, if no variable says otherwise.
const (
	certificatesDir = "/etc/ssl/certs"
	bundleFile      = certificatesDir + "/ca-certificates.crt"
)

// leftOut reports whether the jail lacks the mount m of its policy: the host lacks the source, or
// the certificates of the fetch proxy are in its place.
func leftOut(pol policy.Policy, r Request, m policy.Mount) bool {
	return slices.Contains(r.Absent, m.Source) || r.Image != nil && OfHost(m) ||
		r.Command.Runner == RunnerNative &&
			len(pol.Fetch.Allow) > 0 && m.Source == certificatesDir && m.Target == certificatesDir
}

// Ports of a jail's own loopback: RelayPort leads to the fetch proxy, AgentPort to the host of the
// agent that the program is.
const (
	RelayPort = 3128
	AgentPort = 3129
)

func outerGroups(c Command) []string {
	if c.Runner == RunnerNative {
		return append(slices.Clone(seccomp.InitGroups), seccomp.NativeGroups...)
	}
	return seccomp.InitGroups
}

func innerGroups(c Command) []string {
	if c.Runner == RunnerNative {
		return seccomp.NativeGroups
	}
	return seccomp.WASIGroups
}

// AllMayRun reports whether policy lets everything below dir, the workspace or a tmpfs, run as a
// program of the host. A tree is executable as a whole or not at all: what a program may come to be
// called that is not there yet, no rule of the kernel can say.
func AllMayRun(pol policy.Policy, dir string) bool {
	return policy.Globs{policy.Below(dir)}.LessEq(pol.Tools.Native)
}

// newTmpfs holds programs that may run only where policy lets all of it run, and many files only
// where compilers work.
func newTmpfs(pol policy.Policy, c Command, target string, size int64) Mount {
	m := Mount{Kind: MountTmpfs, Target: target, Write: true, Size: size, Files: tmpFiles}
	if c.Runner == RunnerNative {
		m.Files, m.Exec = nativeTmpFiles, AllMayRun(pol, target)
	}
	return m
}

// nativeMounts are what programs of the host expect of every system, with terminals of the jail's
// own.
func nativeMounts(tmp int64, pol policy.Policy, r Request) []Mount {
	mounts := []Mount{{Kind: MountTmpfs, Target: shmDir, Write: true, Size: min(tmp, maxShm),
		Files: shmFiles}, {Kind: MountPTS, Target: ptsDir, Write: true}}
	// Another kernel's proc is not this one's.
	layer, err := pol.Outer.Choose()
	whole := !r.ProcFixed || err == nil && layer == policy.OuterRunsc
	for _, target := range machinePaths {
		if m := (Mount{Kind: MountMachine, Target: target}); whole || !m.InProc() {
			mounts = append(mounts, m)
		}
	}
	return mounts
}

// machinePaths are where programs look for what the machine has. No policy can mount anything
// there.
var machinePaths = []string{
	"/proc/cpuinfo", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/sys",
}

// DeviceNumbers are the major and minor numbers of the nodes that a plan may name (the kernel's
// Documentation/admin-guide/devices.txt).
var DeviceNumbers = map[string][2]int64{"null": {1, 3}, "zero": {1, 5}, "full": {1, 7},
	"random": {1, 8}, "urandom": {1, 9}, "tty": {5, 0}}

func newDevices(c Command) []string {
	devices := []string{"null", "zero", "full", "random", "urandom"}
	if c.Runner == RunnerNative {
		devices = append(devices, "tty")
	}
	return devices
}

// nativeLandlock lets run what policy lets run: all of a tree, or what the request found in it of
// its names. It opens the device nodes, with what an ioctl may ask of them, and the files that are
// made for the jail. Named pipes and sockets are for memory of the jail's own and for the shadow, of
// which a commit never takes them.
func nativeLandlock(pol policy.Policy, r Request, p Plan) Landlock {
	l := initDomain()
	if w := p.Workspace; w != nil {
		l.Rules = append(l.Rules, LandlockRule{Path: w.Target, Write: w.Shadow, Exec: w.Exec,
			Pipes: w.Shadow})
	}
	l.Rules = append(l.Rules, imageRules(r.Image, p)...)
	for _, m := range p.Mounts {
		if m.InProc() || m.Kind == MountImage {
			continue
		}
		l.Rules = append(l.Rules, LandlockRule{Path: m.ruleDir(), Write: m.Write, Exec: m.Exec &&
			AllMayRun(pol, m.Target), Pipes: m.Kind == MountTmpfs})
	}
	for _, path := range r.Programs {
		l.Rules = append(l.Rules, LandlockRule{Path: path, Exec: true})
	}
	l.Rules = append(l.Rules, LandlockRule{Path: devDir, Write: true, Device: true})
	l.addRest(p, pol, r)
	return l
}

// addRest adds the rules of the files of a plan, and what a policy grants of its network.
func (l *Landlock) addRest(p Plan, pol policy.Policy, r Request) {
	for _, f := range p.Files {
		// What it leads to has a rule.
		if f.Link == "" {
			l.Rules = append(l.Rules, LandlockRule{Path: f.Path})
		}
	}
	if pol.Syscalls.Has(policy.GroupLoopback) {
		l.Network = true
	} else {
		l.Ports = ports(len(pol.Fetch.Allow) > 0, r.Agent != nil)
	}
}

// ports are those of the jail's loopback at which process 1 listens.
func ports(fetches, agent bool) (all []uint16) {
	if fetches {
		all = append(all, RelayPort)
	}
	if agent {
		all = append(all, AgentPort)
	}
	return all
}

// policyText is what a jail says of itself to its programs, so that one can ask before it tries. It
// decides nothing.
func policyText(pol policy.Policy) string {
	digest, mounts := pol.Digest(), slices.Clone(pol.Mounts)
	for i, m := range mounts {
		if m.Source != "" {
			// Where it lies on the host is not the tool's to know.
			mounts[i].Source = m.Target
		}
	}
	pol.Mounts = mounts
	text, err := json.Marshal(struct {
		Digest string        `json:"digest"`
		Policy policy.Policy `json:"policy"`
	}{digest, pol})
	if err != nil {
		// A policy that has a digest marshals.
		panic("jail: bug: " + err.Error())
	}
	return string(text) + "\n"
}

// newFiles are a system's tables of users and names, with nobody of the host in them. A policy that
// mounts its own has its own.
func newFiles(pol policy.Policy, r Request) []File {
	if r.Command.Runner != RunnerNative {
		return nil
	}
	ids := newIDs(r)
	home := "/"
	for _, v := range r.Command.Env {
		if dir, ok := strings.CutPrefix(v, "HOME="); ok && path.IsAbs(dir) &&
			!strings.ContainsAny(dir, ":\n") {
			home = dir
		}
	}
	users, groups := fmt.Sprintf("tool:x:%d:%d:tool:%s:/bin/sh\n", ids.UID, ids.GID, home),
		fmt.Sprintf("tool:x:%d:\n", ids.GID)
	if ids.UID != 0 {
		users = "root:x:0:0:root:/:/bin/sh\n" + users
	}
	if ids.GID != 0 {
		groups = "root:x:0:\n" + groups
	}
	all := []File{
		{Path: "/etc/passwd", Text: users + "nobody:x:65534:65534:nobody:/:/bin/false\n"},
		{Path: "/etc/group", Text: groups + "nogroup:x:65534:\n"},
		{Path: "/etc/nsswitch.conf", Text: "passwd: files\ngroup: files\nhosts: files\n"},
		{Path: "/etc/hosts", Text: "127.0.0.1 localhost jail\n::1 localhost\n"},
	}
	all = append(all, File{Path: PolicyFile, Text: policyText(pol)})
	if len(pol.Fetch.Allow) > 0 {
		all = append(all, File{Path: AuthorityFile})
		// An image may have a link above it. Variables name the certificates too.
		if r.Image == nil {
			all = append(all, File{Path: bundleFile, Link: AuthorityFile})
		}
	}
	var files []File
	for _, f := range all {
		if !slices.ContainsFunc(pol.Mounts, func(m policy.Mount) bool {
			return paths.Within(m.Target, f.Path) && !leftOut(pol, r, m)
		}) {
			files = append(files, f)
		}
	}
	return files
}

// checkNative refuses what holds for modules only: their engine looks at every name before the
// kernel does.
func checkNative(pol policy.Policy, r Request) error {
	if r.Command.Runner != RunnerNative {
		return nil
	}
	if r.Workspace != nil && pol.Workspace.Access == policy.WorkspaceRead &&
		len(pol.Workspace.Hide) > 0 {
		return errors.New(
			`workspace.hide hides nothing from a program of the host where workspace.access is "read"; use "shadow"`)
	}
	return nil
}
