package supervisor

import (
	"os"
	"path/filepath"

	"github.com/jail-sandbox/jail/profiles"
)

// systemSocket is where a daemon of root's listens.
const systemSocket = "/run/jail/jail.sock"

// Default returns where things are for the program at exe: below $JAIL_STATE if that is set, else in the places of the system. Binaries and
// bundles are looked for beside the program, as a build leaves them, and where `make install` puts them.
func Default(exe string, getenv func(string) string) Config {
	c := Config{
		StateDir: "/var/lib/jail",
		LogDir:   "/var/log/jail/audit",
		Tools:    "/var/lib/jail-tools",
		Socket:   systemSocket,
		Profiles: profiles.Dir,
		Ceiling:  "/etc/jail/ceiling.toml",
		Fetch:    "/etc/jail/fetch.toml",
		Audit:    "/etc/jail/audit.toml",
		Settings: "/etc/jail/jaild.toml",
		Exe:      exe,
		Slice:    "/jail",
		Version:  Version,
	}
	if dir := getenv("JAIL_STATE"); dir != "" {
		c = c.Below(dir)
	}
	if socket := getenv("JAIL_SOCKET"); socket != "" {
		c.Socket = socket
	}
	dir := filepath.Dir(exe)
	prefix := filepath.Dir(dir)
	c.Shim = firstFile(filepath.Join(dir, "jail-shim"), filepath.Join(prefix, "libexec/jail/jail-shim"))
	c.Init = firstFile(filepath.Join(dir, "jail-init"), filepath.Join(prefix, "libexec/jail/jail-init"))
	c.Bundles = []string{filepath.Join(dir, "bundles"), filepath.Join(prefix, "share/jail/bundles")}
	return c
}

// Below returns the configuration with state, log and socket below one directory, as several instances on one host have it.
func (c Config) Below(dir string) Config {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	c.StateDir = filepath.Join(dir, "state")
	c.LogDir = filepath.Join(dir, "audit")
	c.Tools = filepath.Join(dir, "tools")
	c.Fetch = filepath.Join(dir, "fetch.toml")
	c.Audit = filepath.Join(dir, "audit.toml")
	c.Settings = filepath.Join(dir, "jaild.toml")
	c.Socket = filepath.Join(dir, "jail.sock")
	return c
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

// Anchors is where the daemon keeps how it stands with the places that heads of the log go to.
func (c Config) Anchors() string { return filepath.Join(c.StateDir, "anchors") }
