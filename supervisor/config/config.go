// Package config says where a daemon's files are and how much the daemon may run: the defaults of
// the system and of a user. It decides nothing about a run.
package config

import (
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/daemonlog"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// systemSocket is the socket of a daemon of root's.
const systemSocket = "/run/jail/jail.sock"

// Config says where things are. Every path is absolute.
type Config struct {
	// StateDir holds runs, workspaces, compiled modules and keys.
	StateDir string
	// LogDir holds the audit log.
	LogDir string
	// Bundles are the directories of the tool bundles that came with jail, in order.
	Bundles []string
	// Tools holds pulled bundles and the keys of their publishers; everybody can read it.
	Tools string
	// Profiles holds the operator's profiles.
	Profiles string

	// Ceiling, Fetch, Audit and Settings are files of the operator: the host's ceiling, and what
	// they say of fetches, of the log and of the daemon. None need exist.
	Ceiling, Fetch, Audit, Settings string
	// Approvals is a file of the operator that need not exist: see ReadApprovals.
	Approvals string

	// Containers is a file of the operator that need not exist: see ReadNode.
	Containers string

	// Exe is the daemon's own program, which is the fetch proxy's too.
	Exe string
	// Shim, Init and AgentInit are the programs jail-shim, jail-init, and the jail-init of agents.
	Shim, Init, AgentInit string
	// Slice is the control group above all jails.
	Slice string
	// Socket is where the daemon listens; the record of its start names it.
	Socket string
	// Private says that the daemon serves one client only.
	Private bool
	// Bounds hold what runs at one time.
	Bounds Bounds
	// Refusals says that what Landlock refuses is read from the host's audit log.
	Refusals bool
	Version  string
	// Log is for what fails in the background; nil drops it.
	Log *daemonlog.Log
}

// Places returns the directories of bundles.
func (c Config) Places() bundle.Places { return bundle.Places{Dirs: c.Bundles, Tools: c.Tools} }

// Default returns the configuration for the program at exe: below $JAIL_STATE if that is set, else
// in the places of the system. Default looks for binaries and bundles beside the program, as a
// build leaves them, and where `make install` puts them.
func Default(exe string, getenv func(string) string) Config {
	c := Config{
		StateDir:   "/var/lib/jail",
		LogDir:     "/var/log/jail/audit",
		Tools:      "/var/lib/jail-tools",
		Socket:     systemSocket,
		Profiles:   profiles.Dir,
		Ceiling:    "/etc/jail/ceiling.toml",
		Containers: "/etc/jail/oci.toml",
		Exe:        exe,
		Slice:      "/jail",
		Version:    Version,
	}
	c.settingsIn("/etc/jail")
	if dir := getenv("JAIL_STATE"); dir != "" {
		c = c.Below(dir)
	}
	if socket := getenv("JAIL_SOCKET"); socket != "" {
		c.Socket = socket
	}
	dir := filepath.Dir(exe)
	prefix := filepath.Dir(dir)
	c.Shim = firstFile(filepath.Join(dir, "jail-shim"),
		filepath.Join(prefix, "libexec/jail/jail-shim"))
	c.Init = firstFile(filepath.Join(dir, "jail-init"),
		filepath.Join(prefix, "libexec/jail/jail-init"))
	c.AgentInit = firstFile(filepath.Join(dir, "jail-init-agent"),
		filepath.Join(prefix, "libexec/jail/jail-init-agent"))
	c.Bundles = []string{filepath.Join(dir, "bundles"), filepath.Join(prefix, "share/jail/bundles")}
	return c
}

// Below returns the configuration with state, log and socket below one directory, as several
// instances on one host have it.
func (c Config) Below(dir string) Config {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	c.StateDir = filepath.Join(dir, "state")
	c.LogDir = filepath.Join(dir, "audit")
	c.Tools = filepath.Join(dir, "tools")
	c.settingsIn(dir)
	c.Containers = filepath.Join(dir, "oci.toml")
	c.Socket = filepath.Join(dir, "jail.sock")
	return c
}

// settingsIn puts the files of the operator into a directory.
func (c *Config) settingsIn(dir string) {
	c.Fetch = filepath.Join(dir, "fetch.toml")
	c.Audit = filepath.Join(dir, "audit.toml")
	c.Settings = filepath.Join(dir, "jaild.toml")
	c.Approvals = filepath.Join(dir, "approvals.toml")
}

// Jaild returns the path of the daemon that belongs to the program at exe.
func Jaild(exe string) string { return filepath.Join(filepath.Dir(exe), "jaild") }

// firstFile returns the first of paths that exists, or the first, for the message that it does not.
func firstFile(paths ...string) string {
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return paths[0]
}

// Anchors returns the directory of the state of each anchor of the log.
func (c Config) Anchors() string { return filepath.Join(c.StateDir, "anchors") }

// Version is the version of jail.
const Version = wire.Version

// Bounds say how much runs at one time, and how much may wait for that.
type Bounds struct {
	Runs int // at one time
	// Memory is the sum of the memory limits of the runs that are admitted, in bytes.
	Memory int64
	// Waiting is how many runs may wait for admission. One more is refused as busy.
	Waiting int
	// Wait is how long a run may wait for admission.
	Wait time.Duration
	// Warm is how many jails may be prewarmed; 0: none.
	Warm int

	// Connections is how many connections clients may have open.
	Connections int
	// Compile is how many times the usual time a module may take to compile; 0 is 1.
	Compile int
	// Cache is how many bytes of compiled modules are kept; 0 is 4 GiB.
	Cache int64
	// Sessions is how many sessions one user may have open; 0 is UserSessions.
	Sessions int
}

// Sessions that are open at one time.
const (
	// MostSessions are those of all users together.
	MostSessions = 256
	// UserSessions are those of one user, where the settings say nothing.
	UserSessions = 64
)

// DefaultBounds returns the bounds for a host with so many bytes of memory and a daemon with so
// many descriptors. Limits of memory are upper bounds that few runs come near to, and the kernel
// holds each: so four times the host's memory may be promised.
func DefaultBounds(memory int64, descriptors uint64) Bounds {
	const (
		// perRun is the number of descriptors that the daemon opens for a run.
		perRun = 32
		// descriptors for the daemon itself and for clients that it turns away
		own = 48
	)
	connections := min(max(descriptors/8, 16), 4096)
	runs := int(min(max((max(descriptors, own+connections)-own-connections)/perRun, 1), 1024))
	return Bounds{Runs: runs, Memory: max(memory, 1<<30) * 4, Waiting: min(1024, runs*4),
		Wait:        30 * time.Second,
		Warm:        int(min(int64(runtime.NumCPU())*4, memory/perWarm, int64(runs/2), maxWarm)),
		Connections: int(connections)}
}

// Up to four jails are prewarmed for each processor, if the host has a gibibyte for each: a jail
// takes some hundredths of that.
const (
	perWarm = 1 << 30
	maxWarm = 64
)

// ForUser returns the configuration with everything in the places of an ordinary user: below
// $XDG_STATE_HOME, $XDG_DATA_HOME, $XDG_CONFIG_HOME and
// $XDG_RUNTIME_DIR (the XDG Base Directory Specification). The ceiling stays that of the host.
func (c Config) ForUser(getenv func(string) string) Config {
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil {
			home = u.HomeDir
		}
	}
	place := func(name, other string) string {
		if dir := getenv(name); filepath.IsAbs(dir) {
			return filepath.Join(dir, "jail")
		}
		return filepath.Join(home, other, "jail")
	}
	state, config := place("XDG_STATE_HOME", ".local/state"), place("XDG_CONFIG_HOME", ".config")
	c.StateDir = filepath.Join(state, "state")
	c.LogDir = filepath.Join(state, "audit")
	c.Tools = filepath.Join(place("XDG_DATA_HOME", ".local/share"), "tools")
	c.Profiles = filepath.Join(config, "profiles")
	c.settingsIn(config)
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		c.Socket = filepath.Join(dir, "jail", "jail.sock")
	} else {
		c.Socket = filepath.Join(state, "jail.sock")
	}
	return c
}

// ForCaller is ForUser for an ordinary user on a host where no daemon of root has its socket, and
// who names no socket: the daemon of the host comes first.
func (c Config) ForCaller(getenv func(string) string) Config {
	if os.Geteuid() == 0 || getenv("JAIL_STATE") != "" {
		return c
	}
	if _, err := os.Lstat(systemSocket); err == nil && getenv("JAIL_SOCKET") == "" {
		return c
	}
	user := c.ForUser(getenv)
	if socket := getenv("JAIL_SOCKET"); socket != "" {
		if user.Socket != socket {
			return c
		}
		user.Socket = socket
	}
	return user
}
