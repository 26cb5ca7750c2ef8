package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/cmd/jail/internal/inherit"
	"github.com/jail-sandbox/jail/jail/id"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// A request has the fields of message.Request and message.ExecRequest that the front uses, with the
// same JSON names: TestRequest.
type request struct {
	ID          string   `json:"id,omitempty"`
	Tool        string   `json:"tool"`
	Args        []string `json:"args,omitempty"`
	Profile     string   `json:"profile,omitempty"`
	Dir         string   `json:"dir"`
	Workspace   string   `json:"workspace,omitempty"`
	NoWorkspace bool     `json:"no_workspace,omitempty"`
	Fate        string   `json:"fate,omitempty"`
	Inherit     []string `json:"inherit,omitempty"`
}

// An ask is a parsed command line that the front can carry out.
type ask struct {
	request request
	// path and query are the request path in the API.
	path, query string

	quiet   bool
	explain string
}

// parse parses a command line. ok is false if the front cannot carry it out, so that jail-full
// must.
func parse(args []string) (a ask, ok bool) {
	switch {
	case len(args) > 1 && args[0] == "run":
		a.path, a.request.Profile = wire.PathRuns, "default"
		args, ok = a.flags(args[1:], true)
	case len(args) > 3 && args[0] == "session" && args[1] == "exec":
		if args, ok = a.flags(args[2:], false); !ok || len(args) == 0 || id.Check(args[0]) != nil {
			return a, false
		}
		a.path = wire.PathSessions + "/" + args[0] + "/exec"
		args, ok = a.flags(args[1:], false)
		if ok && len(args) > 0 && args[0] == "--" {
			args = args[1:]
		}
	}
	if !ok || len(args) == 0 || args[0] == "" {
		return a, false
	}
	a.request.Tool, a.request.Args = args[0], args[1:]
	return a, a.surroundings()
}

// flags parses the flags before the first other argument, and for run also the "--" after them. ok
// is false for a flag that it does not know.
func (a *ask) flags(args []string, run bool) (rest []string, ok bool) {
	fate := func(f string) bool {
		twice := a.request.Fate != "" && a.request.Fate != f
		a.request.Fate = f
		return !twice
	}
	for ok = true; ok && len(args) > 0 && strings.HasPrefix(args[0], "-"); args = args[1:] {
		name, value, joined := strings.Cut(args[0], "=")
		switch {
		case name == "--":
			if !joined && run {
				return args[1:], true
			}
			return args, !joined
		case name == "--quiet" && !joined:
			a.quiet = true
			continue
		case run && !joined && (name == "--keep" || name == "--discard" || name == "--commit"):
			ok = fate(name[2:])
			continue
		case run && !joined && name == "--no-workspace":
			a.request.NoWorkspace = true
			continue
		case name != "--id" && (!run || name != "--profile" && name != "--workspace"):
			return nil, false
		}
		if !joined {
			if len(args) < 2 {
				return nil, false
			}
			value, args = args[1], args[1:]
		}
		switch name {
		case "--id":
			a.request.ID, ok = value, id.Check(value) == nil
		case "--profile":
			a.request.Profile, a.explain = value, "--profile "+value+" "
			ok = value != "" && utf8.ValidString(value)
		case "--workspace":
			a.request.Workspace, ok = value, filepath.IsAbs(value)
		}
	}
	return args, ok && !(a.request.NoWorkspace && a.request.Workspace != "")
}

// surroundings adds the directory, environment and streams of this process to the request. It
// reports whether the front can send the request: all texts are UTF-8 and no output is a terminal.
func (a *ask) surroundings() bool {
	var err error
	if a.request.Dir, err = os.Getwd(); err != nil {
		return false
	}
	if a.request.ID == "" {
		a.request.ID = id.New()
	}
	req := a.request
	for _, text := range append([]string{req.Tool, req.Dir, req.Workspace}, req.Args...) {
		if !utf8.ValidString(text) {
			return false
		}
	}
	a.request.Inherit = inherit.Variables(os.Environ(), req.Workspace, req.Dir)
	var asks []string
	out, err := os.Stdout.Stat()
	errOut, errErr := os.Stderr.Stat()
	if err == nil && errErr == nil && os.SameFile(out, errOut) {
		asks = append(asks, wire.Joined)
	}
	if inherit.NoInput(os.Stdin) {
		asks = append(asks, wire.NoInput)
	}
	if asks != nil {
		a.query = "?" + strings.Join(asks, "&")
	}
	return !terminal(out) && !terminal(errOut)
}

// terminal reports whether a stream may be a terminal, for which only jail-full filters the tool's
// output. info is nil for a closed stream.
func terminal(info os.FileInfo) bool {
	if info == nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	// Memory devices have the major number 1: /dev/null, /dev/full.
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || st.Rdev>>8 != 1
}

// socket returns the path of the daemon's socket, as config.Default and Config.ForCaller do, or ""
// if only jail-full can find it.
func socket() string {
	const system = "/run/jail/jail.sock"
	if path := os.Getenv("JAIL_SOCKET"); path != "" {
		return path
	}
	if dir := os.Getenv("JAIL_STATE"); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		return filepath.Join(dir, "jail.sock")
	}
	if os.Geteuid() == 0 {
		return system
	}
	if _, err := os.Lstat(system); err == nil {
		return system
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "jail", "jail.sock")
	}
	return ""
}
