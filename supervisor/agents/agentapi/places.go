package agentapi

import (
	"os"
	"path/filepath"

	"github.com/jail-sandbox/jail/supervisor/config"
)

// Places are the files and directories of a user's agents. Every path is absolute.
type Places struct {
	// Socket is the Unix socket of jail-agentd.
	Socket string
	// Folder is the directory that has a directory of files for each agent.
	Folder string
	// Models is the path of models.toml.
	Models string
	// Gatekeepers is the path of gatekeepers.toml.
	Gatekeepers string
	// State is the directory of the databases of jail-agentd and the agents.
	State string
}

// PlacesOf returns the Places of the caller: below $JAIL_STATE if it is set, system directories for
// root, else directories of the user.
func PlacesOf(getenv func(string) string) Places {
	if dir := getenv("JAIL_STATE"); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		return placesIn(dir, dir, filepath.Join(dir, "agentd"))
	}
	if os.Geteuid() == 0 {
		return placesIn("/run/jail", "/etc/jail", "/var/lib/jail-agents")
	}
	user := config.Config{}.ForUser(getenv)
	return placesIn(filepath.Dir(user.Socket), filepath.Dir(user.Profiles),
		filepath.Join(user.StateDir, "agentd"))
}

func placesIn(run, settings, state string) Places {
	return Places{Socket: filepath.Join(run, "agentd.sock"), Folder: filepath.Join(settings, "agents"),
		Models: filepath.Join(settings, "models.toml"), State: state,
		Gatekeepers: filepath.Join(settings, "gatekeepers.toml")}
}

// Program returns the path of jail-agentd: in the directory of the program exe.
func Program(exe string) string { return filepath.Join(filepath.Dir(exe), "jail-agentd") }
