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

// Paths and limits of jails of native programs.
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

// Paths where programs look for certificates on Debian and others, unless a variable names one.
const (
	certificatesDir = "/etc/ssl/certs"
	bundleFile      = certificatesDir + "/ca-certificates.crt"
)

// leftOut reports whether the jail is made without the mount m of its policy: the host lacks the
// source, the image takes its place, or the fetch proxy's certificates do.
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

// AllMayRun reports whether policy lets all programs below dir run natively. A writable tree is
// executable as a whole or not at all: Landlock has no rules for names of files that do not exist
// yet.
func AllMayRun(pol policy.Policy, dir string) bool {
	return policy.Globs{policy.Below(dir)}.LessEq(pol.Tools.Native)
}

// newTmpfs returns a tmpfs mount of size bytes. Only for native programs it has many inodes, and is
// executable if the policy lets everything in it run.
func newTmpfs(pol policy.Policy, c Command, target string, size int64) Mount {
	m := Mount{Kind: MountTmpfs, Target: target, Write: true, Size: size, Files: tmpFiles}
	if c.Runner == RunnerNative {
		m.Files, m.Exec = nativeTmpFiles, AllMayRun(pol, target)
	}
	return m
}

// nativeMounts returns the mounts that native programs expect of any system: /dev/shm, a devpts and
// the files of the machine. tmp is the size of a tmpfs in bytes.
func nativeMounts(tmp int64, pol policy.Policy, r Request) []Mount {
	mounts := []Mount{{Kind: MountTmpfs, Target: shmDir, Write: true, Size: min(tmp, maxShm),
		Files: shmFiles}, {Kind: MountPTS, Target: ptsDir, Write: true}}
	// gVisor has a proc of its own, to which ProcFixed does not apply.
	layer, err := pol.Outer.Choose()
	whole := !r.ProcFixed || err == nil && layer == policy.OuterRunsc
	for _, target := range machinePaths {
		if m := (Mount{Kind: MountMachine, Target: target}); whole || !m.InProc() {
			mounts = append(mounts, m)
		}
	}
	return mounts
}

// machinePaths are the mount points of the files of the machine. No policy can mount anything
// there.
var machinePaths = []string{
	"/proc/cpuinfo", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/sys",
}

// DeviceNumbers maps the device nodes that a plan may name to major and minor numbers (the kernel's
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

// nativeLandlock returns the domain for native programs. It lets whole trees run, or the programs
// that the request lists. It grants the device nodes with ioctl(2) and the jail's own files. Named
// pipes and sockets can be made on a tmpfs, in the upper layer of an image and in the shadow, whose
// commit leaves them out.
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

// addRest adds rules for the plan's files and for TCP.
func (l *Landlock) addRest(p Plan, pol policy.Policy, r Request) {
	for _, f := range p.Files {
		// The target of a link has a rule of its own.
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

// ports returns the TCP ports of the jail's loopback on which process 1 listens.
func ports(fetches, agent bool) (all []uint16) {
	if fetches {
		all = append(all, RelayPort)
	}
	if agent {
		all = append(all, AgentPort)
	}
	return all
}

// policyText returns the content of PolicyFile, from which programs can learn what is allowed.
// Nothing is enforced by it.
func policyText(pol policy.Policy) string {
	digest, mounts := pol.Digest(), slices.Clone(pol.Mounts)
	for i, m := range mounts {
		if m.Source != "" {
			// Tools must not learn paths of the host.
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

// newFiles returns the files that native programs expect in /etc, without users of the host, and
// the jail's own files. Files that a mount of the policy covers are left out.
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
		// An image may have a link above the path. Programs find the certificates by variables too.
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

// checkNative returns an error for native programs if workspace.hide would not hold: without a
// shadow only the WebAssembly engine hides files.
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
