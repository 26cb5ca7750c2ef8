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
		return Places{Socket: filepath.Join(dir, "agentd.sock"), Folder: filepath.Join(dir, "agents"),
			Models:      filepath.Join(dir, "models.toml"),
			Gatekeepers: filepath.Join(dir, "gatekeepers.toml"), State: filepath.Join(dir, "agentd")}
	}
	if os.Geteuid() == 0 {
		return Places{Socket: "/run/jail/agentd.sock", Folder: "/etc/jail/agents",
			Models: "/etc/jail/models.toml", Gatekeepers: "/etc/jail/gatekeepers.toml", State: "/var/lib/jail-agents"}
	}
	user := config.Config{}.ForUser(getenv)
	return Places{Socket: filepath.Join(filepath.Dir(user.Socket), "agentd.sock"),
		Folder:      filepath.Join(filepath.Dir(user.Profiles), "agents"),
		Models:      filepath.Join(filepath.Dir(user.Profiles), "models.toml"),
		Gatekeepers: filepath.Join(filepath.Dir(user.Profiles), "gatekeepers.toml"),
		State:       filepath.Join(user.StateDir, "agentd")}
}

// Program returns the path of jail-agentd that belongs to the program at exe.
func Program(exe string) string { return filepath.Join(filepath.Dir(exe), "jail-agentd") }
