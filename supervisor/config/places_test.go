package config

import "testing"

// Each place of a user's is where the XDG Base Directory Specification puts it, and the ceiling
// stays the host's.
func TestForUser(t *testing.T) {
	env := func(vars map[string]string) func(string) string {
		return func(n string) string {
			return vars[n]
		}
	}
	all := map[string]string{"HOME": "/home/u", "XDG_RUNTIME_DIR": "/run/user/7",
		"XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d"}
	c := Default("/usr/bin/jaild", env(nil)).ForUser(env(all))
	for _, p := range [][2]string{{c.Socket, "/run/user/7/jail/jail.sock"},
		{c.StateDir, "/s/jail/state"}, {c.LogDir, "/s/jail/audit"}, {c.Tools, "/d/jail/tools"},
		{c.Profiles, "/c/jail/profiles"}, {c.Fetch, "/c/jail/fetch.toml"},
		{c.Ceiling, "/etc/jail/ceiling.toml"}} {
		if p[0] != p[1] {
			t.Errorf("%s, want %s", p[0], p[1])
		}
	}
	// A relative path is to be ignored, says the specification.
	c = Default("/usr/bin/jaild", env(nil)).ForUser(env(map[string]string{"HOME": "/home/u",
		"XDG_STATE_HOME": "s", "XDG_RUNTIME_DIR": "r"}))
	for _, p := range [][2]string{{c.Socket, "/home/u/.local/state/jail/jail.sock"},
		{c.StateDir, "/home/u/.local/state/jail/state"},
		{c.Profiles, "/home/u/.config/jail/profiles"}} {
		if p[0] != p[1] {
			t.Errorf("%s, want %s", p[0], p[1])
		}
	}
}
