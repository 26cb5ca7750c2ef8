package agentapi

import (
	"os"
	"path/filepath"

	"github.com/jail-sandbox/jail/supervisor/config"
)

// Places say where the agents of a user are. Every path is absolute.
type Places struct {
	// Socket is where jail-agentd listens.
	Socket string
	// Folder has a directory for each agent, with its files.
	Folder string
	// Models is the file of the models that jail agent chat may ask.
	Models string
	// Gatekeepers is the file of the gatekeepers of the owner's resources.
	Gatekeepers string
	// State holds the database of jail-agentd, and those of the agents.
	State string
}

// PlacesOf returns those of the caller: below $JAIL_STATE if that is set, those of the system for
// root, else those of the user.
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

// Program returns the path of jail-agentd that belongs to the program at exe.
func Program(exe string) string { return filepath.Join(filepath.Dir(exe), "jail-agentd") }
