package learn

import (
	"math"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// Asked is what a learning run may use. It is wide, but still jailed: its changes are discarded, it
// sees no directories with keys, sockets or homes and no secrets in the workspace, and it has only
// the named hosts of the network.
type Asked struct {
	Name, About, Run string
	Native           bool // programs of the host
	// Mounts are those of WideMounts that this host has, and those that the user named.
	Mounts []policy.Mount
	Hosts  []HostPort
	// Given are the names of variables that the run is given.
	Given       []string
	NoWorkspace bool
}

// A HostPort is a host that the runs may reach, or "*" for every public one.
type HostPort struct {
	Host  string   `json:"host"`
	Ports []uint16 `json:"ports"`
}

// Home is the home directory of tools in the jail.
const Home = "/home/tool"

// WideMounts returns the mounts that a learning run of a host program may have. From /etc they show
// only settings that programs need, nothing about users or keys.
func WideMounts() []policy.Mount {
	var out []policy.Mount
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt"} {
		out = append(out, policy.Mount{Source: dir, Target: dir, Access: policy.Read | policy.Exec})
	}
	for _, p := range []string{"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf",
		"/etc/ld.so.conf.d", "/etc/localtime", "/etc/timezone", "/etc/mime.types",
		"/etc/magic", "/etc/inputrc", "/etc/locale.alias", "/etc/protocols", "/etc/services",
		"/etc/perl", "/etc/python3", "/etc/python3.11", "/etc/python3.12",
		"/etc/python3.13", "/etc/openssl", "/etc/gitconfig", "/etc/fonts", "/etc/terminfo",
		"/etc/debian_version", "/etc/os-release", "/etc/lsb-release"} {
		out = append(out, policy.Mount{Source: p, Target: p, Access: policy.Read})
	}
	return out
}

// memoryDirs returns the directories that are tmpfs mounts.
func memoryDirs() []string { return []string{Home, "/tmp"} }

// wideEnv returns the environment of programs of the host.
func wideEnv() []string {
	return []string{"GOPROXY=off", "GOTELEMETRY=off", "GOTOOLCHAIN=local", "HOME=" + Home,
		"LANG=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"PIP_NO_INDEX=1", "PYTHONDONTWRITEBYTECODE=1", "TMPDIR=/tmp", "npm_config_offline=true",
		"npm_config_update_notifier=false"}
}

// Wide returns the policy of a learning run.
func Wide(a Asked) Draft {
	d := Draft{Name: a.Name, About: a.About, Run: a.Run, Native: a.Native,
		Access: policy.WorkspaceShadow}
	if a.NoWorkspace {
		d.Access = policy.WorkspaceNone
	}
	all := "the learning policy"
	for _, m := range a.Mounts {
		d.Items = append(d.Items, Item{Kind: KindMount, Name: m.Target, Mount: m, Why: all})
	}
	d.Items = append(d.Items, memory(a.Native)...)
	d.Items = append(d.Items, Item{Kind: KindModule, Name: "**", Why: all},
		Item{Kind: KindGroup, Name: policy.GroupWASI, Why: all})
	if a.Native {
		d.Items = append(d.Items, Item{Kind: KindNative, Name: "/**", Why: all},
			Item{Kind: KindGroup, Name: policy.GroupNative, Why: all},
			Item{Kind: KindGroup, Name: policy.GroupLoopback, Why: all})
	} else {
		d.Items = append(d.Items, Item{Kind: KindTool, Name: "**", Why: all})
	}
	d.Items = append(d.Items, environment(a)...)
	for _, h := range a.Hosts {
		d.Items = append(d.Items, Item{Kind: KindFetch, Name: h.Host, Why: all,
			Rule: Rule{Host: h.Host, Ports: h.Ports, Methods: []string{"*"},
				Paths: []string{"/**"}}})
	}
	d.Limits = wideLimits(len(a.Hosts) > 0)
	return d
}

func memory(native bool) []Item {
	var out []Item
	for _, dir := range memoryDirs() {
		if dir == Home && !native {
			continue
		}
		out = append(out, Item{Kind: KindMount, Name: dir, Mount: policy.Mount{Target: dir,
			Access: policy.Tmpfs},
			Why:   "Memory. What is done in it is not observed; without it the run is another.",
			Blind: true})
	}
	return out
}

func environment(a Asked) []Item {
	var out []Item
	vars := []string{"LANG=C.UTF-8"}
	if a.Native {
		vars = wideEnv()
	}
	for _, v := range vars {
		name, _, _ := strings.Cut(v, "=")
		if slices.Contains(a.Given, name) {
			continue
		}
		out = append(out, Item{Kind: KindEnv, Name: v, Blind: true,
			Why: "reads of it are not observed; without it the run is another"})
	}
	for _, name := range a.Given {
		out = append(out, Item{Kind: KindGiven, Name: name, Fixed: true, Why: "given with --env"})
	}
	return out
}

// wideLimits returns limits that suffice for a large build.
func wideLimits(fetches bool) []LimitLine {
	var out []LimitLine
	for _, l := range []struct{ section, name, value string }{
		{"limits", "wall", "10m"}, {"limits", "cpu_time", "20m"}, {"limits", "cpus", "4"},
		{"limits", "memory", "2GiB"}, {"limits", "pids", "512"},
		{"limits", "open_files", "1024"}, {"limits", "output", "64MiB"}, {"limits", "workspace",
			"2GiB"}, {"limits", "workspace_files", "100000"}, {"limits", "file_size", "1GiB"},
		{"fetch.limits", "requests", "1000"}, {"fetch.limits", "bytes_in", "500MiB"},
		{"fetch.limits", "bytes_out", "10MiB"}, {"fetch.limits", "concurrent", "8"},
		{"fetch.limits", "timeout", "60s"},
	} {
		if l.section == "fetch.limits" && !fetches {
			continue
		}
		line := LimitLine{Section: l.section, Name: l.name, Why: "of a run that is learnt from"}
		var err error
		if line.Value, err = line.field().Unit.Parse(l.value); err != nil {
			// It is no valid limit; Text reports it.
			line.Value = math.MaxInt64
		}
		out = append(out, line)
	}
	return out
}
