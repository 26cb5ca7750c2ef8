package oci

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

// Mount points for one kind of file system only.
const (
	procDir   = "/proc"
	sysDir    = "/sys"
	cgroupDir = "/sys/fs/cgroup"
	devDir    = "/dev"
)

// cleanPath reports whether p is absolute and in the form of path.Clean, without "..".
func cleanPath(p string) bool { return path.IsAbs(p) && path.Clean(p) == p }

// A kind describes a type of file system, other than a bind, that a container may mount.
type kind struct {
	// at are the allowed mount points; nil is anywhere outside of /proc and /sys.
	at []string
	// force are options that are always set, whatever config.json says.
	force []string
	// data are the names of further allowed options, which are not flags.
	data []string
}

var kinds = map[string]kind{
	"proc": {at: []string{procDir}, force: []string{"nosuid", "nodev", "noexec"}},
	"sysfs": {at: []string{sysDir},
		force: []string{"ro", "nosuid", "nodev", "noexec"}},
	"cgroup": {at: []string{cgroupDir},
		force: []string{"ro", "nosuid", "nodev", "noexec"}},
	"cgroup2": {at: []string{cgroupDir},
		force: []string{"ro", "nosuid", "nodev", "noexec"}},
	"devpts": {at: []string{"/dev/pts"}, force: []string{"nosuid", "noexec"},
		data: []string{"newinstance", "ptmxmode", "mode", "uid", "gid", "max"}},
	"mqueue": {at: []string{"/dev/mqueue"}, force: []string{"nosuid", "nodev", "noexec"}},
	"tmpfs": {force: []string{"nosuid", "nodev"},
		data: []string{"size", "mode", "uid", "gid", "nr_inodes", "nr_blocks"}},
}

// flagOptions maps each option that is a mount flag to its opposite, or to "".
var flagOptions = map[string]string{
	"ro": "rw", "rw": "ro", "nosuid": "suid", "suid": "nosuid", "nodev": "dev", "dev": "nodev",
	"noexec": "exec", "exec": "noexec", "sync": "async", "async": "sync", "dirsync": "",
	"atime": "noatime", "noatime": "atime", "diratime": "nodiratime", "nodiratime": "diratime",
	"relatime": "norelatime", "norelatime": "relatime", "strictatime": "nostrictatime",
	"nostrictatime": "strictatime", "silent": "loud", "loud": "silent", "defaults": "",
	"rro": "rrw", "rrw": "rro", "rnosuid": "rsuid", "rsuid": "rnosuid", "rnodev": "rdev",
	"rdev": "rnodev", "rnoexec": "rexec", "rexec": "rnoexec", "nosymfollow": "symfollow",
	"symfollow": "nosymfollow", "rnosymfollow": "", "rrelatime": "", "rnoatime": "",
	"rstrictatime": "", "rnodiratime": "", "rdiratime": "", "ratime": "", "tmpcopyup": "",
	"bind": "", "rbind": "",
}

// mounts returns an error for a mount that is not granted, and forces the flags of a jail's mounts
// on the others. It adds /dev and /proc if they are missing.
func (g *granter) mounts() error {
	var out []specs.Mount
	for _, m := range g.plan.Spec.Mounts {
		made, err := g.mount(m)
		if err != nil {
			return fmt.Errorf("mount %s of config.json: %w", m.Destination, err)
		}
		out = append(out, made)
	}
	has := func(target string) bool {
		return slices.ContainsFunc(out, func(m specs.Mount) bool { return m.Destination == target })
	}
	if !has(devDir) {
		out = slices.Insert(out, 0, specs.Mount{Destination: devDir, Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}})
	}
	if !has(procDir) {
		out = slices.Insert(out, 0, specs.Mount{Destination: procDir, Type: "proc", Source: "proc",
			Options: []string{"nosuid", "nodev", "noexec"}})
	}
	g.plan.Spec.Mounts = out
	g.plan.Spec.Linux.RootfsPropagation = "rprivate"
	return nil
}

// IsBind reports whether a mount shows a tree of the host.
func IsBind(m specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") ||
		slices.Contains(m.Options, "rbind")
}

func (g *granter) mount(m specs.Mount) (specs.Mount, error) {
	switch {
	case !cleanPath(m.Destination) || m.Destination == "/":
		return m, fmt.Errorf("the destination is no absolute path below the root, or has %q in it",
			"..")
	case len(m.UIDMappings)+len(m.GIDMappings) > 0:
		return m, fmt.Errorf("mapped ids are not supported")
	}
	if IsBind(m) {
		return g.bind(m)
	}
	k, ok := kinds[m.Type]
	if !ok {
		return m, fmt.Errorf("a container has no file system of type %q", m.Type)
	}
	if len(k.at) > 0 && !slices.Contains(k.at, m.Destination) {
		return m, fmt.Errorf("%s is for %s only", m.Type, strings.Join(k.at, ", "))
	}
	if len(k.at) == 0 {
		if err := notSystem(m.Destination); err != nil && m.Destination != devDir {
			return m, err
		}
	}
	force := k.force
	if m.Destination == devDir {
		// Not nodev: the container's device nodes are in it.
		force = []string{"nosuid", "noexec"}
	}
	options, dropped, err := options(m.Options, k.data)
	if err != nil {
		return m, err
	}
	for _, o := range dropped {
		g.drop("mount %s: %s", m.Destination, o)
	}
	m.Options = forced(options, force...)
	return m, nil
}

// notSystem returns an error for a mount point in /proc or /sys, or at /dev.
func notSystem(target string) error {
	for _, dir := range []string{procDir, sysDir} {
		if paths.Within(dir, target) {
			return fmt.Errorf("nothing is mounted in %s", dir)
		}
	}
	if target == devDir {
		return fmt.Errorf("%s is the container's own", devDir)
	}
	return nil
}

// bind returns the bind m with forced flags. The operator or the profile, and the ceiling, must
// grant it: a write access that is not granted is an error, a missing right to execute makes it
// noexec.
func (g *granter) bind(m specs.Mount) (specs.Mount, error) {
	if err := notSystem(m.Destination); err != nil {
		return m, err
	}
	if !cleanPath(m.Source) {
		return m, fmt.Errorf("the source %q is no absolute path", m.Source)
	}
	options, dropped, err := options(m.Options, nil)
	if err != nil {
		return m, err
	}
	for _, o := range dropped {
		g.drop("mount %s: %s", m.Destination, o)
	}
	want := policy.Mount{Source: m.Source, Target: m.Destination, Access: policy.Read}
	write := !slices.Contains(options, "ro") && !slices.Contains(options, "rro")
	if write {
		want.Access |= policy.Write
	}
	if by := g.refuses(want); by != "" {
		return m, fmt.Errorf("%s of %s is not granted by %s", want.Access, m.Source, by)
	}
	exec := want
	exec.Access |= policy.Exec
	mayRun := !slices.Contains(options, "noexec") && g.refuses(exec) == ""
	force := []string{"nosuid", "nodev", "rnosuid", "rnodev", "rprivate"}
	if !write {
		force = append(force, "ro", "rro")
	}
	if !mayRun {
		force = append(force, "noexec", "rnoexec")
	}
	m.Options = forced(options, force...)
	g.binds = append(g.binds, jail.Mount{Kind: jail.MountBind, Source: m.Source,
		Target: m.Destination, Write: write, Exec: mayRun})
	return m, nil
}

// refuses returns the name of the policy that does not grant a mount, or "" if it is granted.
func (g *granter) refuses(want policy.Mount) string {
	granted := slices.Clone(g.profile().Mounts)
	for _, v := range g.node.Volumes {
		// CheckNode has checked the words.
		rights, _ := rightsOf(v)
		granted = append(granted, policy.Mount{Source: v.Source, Access: rights})
	}
	all := policy.Mounts{want}
	if !all.LessEq(granted) {
		return "a mount of the profile or a volume of the operator's oci.toml"
	}
	if ceiling, _ := g.eff.Ceiling(); !all.LessEq(ceiling.Mounts) {
		return "the ceiling"
	}
	return ""
}

// profile returns the policy of the container's profile, the last layer.
func (g *granter) profile() policy.Policy {
	layers := g.eff.Layers()
	return layers[len(layers)-1].Policy
}

// options splits the options of a mount into those to keep and dropped propagation options. data
// are the names of allowed options that are not flags. Other options are an error.
func options(all, data []string) (kept, dropped []string, err error) {
	for _, o := range all {
		name, _, _ := strings.Cut(o, "=")
		_, flag := flagOptions[o]
		switch {
		case flag, slices.Contains(data, name):
			kept = append(kept, o)
		case slices.Contains([]string{"private", "rprivate"}, o):
		case slices.Contains([]string{"slave", "rslave"}, o):
			dropped = append(dropped, "propagation "+o)
		case slices.Contains([]string{"shared", "rshared", "unbindable", "runbindable"}, o):
			return nil, nil, fmt.Errorf("propagation %s is not supported: no mount of a container "+
				"reaches the host", o)
		default:
			return nil, nil, fmt.Errorf("option %q is not supported", o)
		}
	}
	return kept, dropped, nil
}

// forced returns the options with force added and their opposites removed.
func forced(all []string, force ...string) []string {
	kept := slices.DeleteFunc(slices.Clone(all), func(o string) bool {
		return slices.ContainsFunc(force, func(f string) bool { return flagOptions[f] == o || f == o })
	})
	return append(kept, force...)
}
