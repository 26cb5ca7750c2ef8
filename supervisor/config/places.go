package config

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
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
	c.Fetch = filepath.Join(config, "fetch.toml")
	c.Audit = filepath.Join(config, "audit.toml")
	c.Settings = filepath.Join(config, "jaild.toml")
	c.Approvals = filepath.Join(config, "approvals.toml")
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
