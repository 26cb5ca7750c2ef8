// Package config holds the locations of a daemon's files and the bounds on what it runs, with the
// defaults for the system and for a user.
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

// systemSocket is the socket of the host's daemon, which runs as root.
const systemSocket = "/run/jail/jail.sock"

// Config has the locations and bounds of a daemon. Every path is absolute.
type Config struct {
	// StateDir holds runs, workspaces, compiled modules and keys.
	StateDir string
	// LogDir holds the audit log.
	LogDir string
	// Bundles are the directories of the bundles that came with jail. Of two bundles with one name
	// the one in the earlier directory is used.
	Bundles []string
	// Tools holds pulled bundles and the keys of their publishers; everybody can read it.
	Tools string
	// Profiles holds the operator's profiles.
	Profiles string

	// Ceiling, Fetch, Audit and Settings are the paths of the operator's files: the host's ceiling,
	// and the settings of fetches, the audit log and the daemon. Each file may be missing.
	Ceiling, Fetch, Audit, Settings string
	// Approvals is the path of approvals.toml, the operator's settings for approvals. ReadApprovals
	// reads the file, which may be missing.
	Approvals string

	// Containers is the path of oci.toml, the operator's settings for OCI containers. ReadNode
	// reads the file, which may be missing.
	Containers string

	// Exe is the program of the daemon, which also runs as the fetch proxy.
	Exe string
	// Shim, Init and AgentInit are the programs jail-shim, jail-init and jail-init-agent.
	Shim, Init, AgentInit string
	// Slice is the parent cgroup of all jails.
	Slice string
	// Socket is the path of the daemon's socket.
	Socket string
	// Private says that the daemon serves one client only.
	Private bool
	// Bounds limit what runs at one time.
	Bounds Bounds
	// Refusals is true if the daemon reads Landlock's refusals from the host's audit log.
	Refusals bool
	Version  string
	// Log gets the errors of background work; nil drops them.
	Log *daemonlog.Log
}

// Places returns the directories of bundles.
func (c Config) Places() bundle.Places { return bundle.Places{Dirs: c.Bundles, Tools: c.Tools} }

// Default returns the configuration for the program at the path exe. State, logs, settings and the
// socket are in the system's directories, or below $JAIL_STATE if that is set. $JAIL_SOCKET, if
// set, replaces the path of the socket.
//
// Default looks for each helper program first in the directory of exe, where a build leaves it, and
// then in ../libexec/jail, where `make install` puts it. If neither file exists, the path
// is the first one, so that errors name it. Bundles are searched in the directory bundles next to
// exe, and then in ../share/jail/bundles.
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

// Below returns the configuration with state, log and socket below one directory, for several
// instances on one host.
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

// settingsIn sets the paths of the operator's settings to files in dir.
func (c *Config) settingsIn(dir string) {
	c.Fetch = filepath.Join(dir, "fetch.toml")
	c.Audit = filepath.Join(dir, "audit.toml")
	c.Settings = filepath.Join(dir, "jaild.toml")
	c.Approvals = filepath.Join(dir, "approvals.toml")
}

// Jaild returns the path of the daemon next to the program at exe.
func Jaild(exe string) string { return filepath.Join(filepath.Dir(exe), "jaild") }

// firstFile returns the first path that exists. If none does, it returns the first, for the error.
func firstFile(paths ...string) string {
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return paths[0]
}

// Anchors returns the directory that holds the state of the log's anchors.
func (c Config) Anchors() string { return filepath.Join(c.StateDir, "anchors") }

// Version is the version of jail.
const Version = wire.Version

// Bounds limit how much runs at one time, and how much may wait.
type Bounds struct {
	Runs int // how many runs may be admitted at one time
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
	// Compile is a factor on the usual time limit for compiling a module; 0 means 1.
	Compile int
	// Cache is the maximum size of the cache of compiled modules in bytes; 0 means 4 GiB.
	Cache int64
	// Sessions is how many sessions one user may have open; 0 means UserSessions.
	Sessions int
}

// Bounds of the sessions that are open at one time.
const (
	// MostSessions is for all users together.
	MostSessions = 256
	// UserSessions is the default for one user.
	UserSessions = 64
)

// DefaultBounds returns the bounds for a host with memory bytes and a daemon with this many
// descriptors. Four times the memory may be promised, since few runs come near their memory limits,
// which the kernel enforces.
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

// DefaultBounds prewarms at most four jails per processor, one per perWarm bytes of memory, of
// which a jail takes a few hundredths, and maxWarm in all.
const (
	perWarm = 1 << 30
	maxWarm = 64
)

// ForUser returns c with the directories of an ordinary user: below $XDG_STATE_HOME,
// $XDG_DATA_HOME, $XDG_CONFIG_HOME and $XDG_RUNTIME_DIR (the XDG Base Directory Specification). An
// unset or relative variable has the default of the specification below the home directory; without
// $XDG_RUNTIME_DIR the socket is in the state directory. Ceiling and Containers stay as in c.
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

// ForCaller returns ForUser's configuration for an ordinary user if the host has no daemon of root.
// Otherwise, or if $JAIL_STATE or another $JAIL_SOCKET is set, it returns c.
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
