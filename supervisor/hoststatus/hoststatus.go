// Package hoststatus says what a host, and the daemon on it, can enforce, and what is missing.
package hoststatus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/outer"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/anchor"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/fetch"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Checks look at the host of one daemon. A look takes loop devices, mounts and reads every bundle,
// so callers that come within fresh of one share its findings. Checks may be called from several
// goroutines.
type Checks struct {
	config config.Config
	// permissions returns what the ceiling in force lets a caller do.
	permissions func(caller.Caller) caller.Permissions

	runtimes *outer.Runtimes

	mu       sync.Mutex
	done     time.Time
	findings []probe.Finding
	// Starting containers takes longer, so what came of it is kept for longer.
	tried  time.Time
	layers []probe.Finding
}

const fresh, freshOuter = time.Second, time.Minute

// New returns the checks of a daemon with that configuration.
func New(c config.Config, permissions func(caller.Caller) caller.Permissions) *Checks {
	return &Checks{config: c, permissions: permissions, runtimes: RuntimesOf(c)}
}

// Status tries what a run needs from within this process: a service can be refused what a shell of
// root's on the same host is not. The state of the anchors of the log is shown to those who may
// read all records, and by a user's daemon to its user.
func (h *Checks) Status(c caller.Caller) message.HostStatus {
	h.mu.Lock()
	if time.Since(h.done) > fresh {
		h.findings = append(probe.All(h.config.StateDir, h.config.Slice), Installed(h.config)...)
		h.done = time.Now()
	}
	if time.Since(h.tried) > freshOuter {
		h.layers, h.tried = OuterLayers(h.config, h.runtimes), time.Now()
	}
	all := append(append([]probe.Finding{}, h.findings...), h.layers...)
	h.mu.Unlock()
	all = append(all, Approvals(h.config), Fetches(h.config, true))
	if h.permissions(c).Read || rootless.User() != nil {
		all[len(all)-1] = Fetches(h.config, false)
		all = append(all, Anchors(h.config)...)
	}
	return message.HostStatus{Findings: all}
}

// RuntimesOf returns the runtimes of outer layers as the daemon of c looks for them.
func RuntimesOf(c config.Config) *outer.Runtimes {
	return &outer.Runtimes{Dir: filepath.Dir(c.Shim)}
}

// OuterLayers tries the runtime of each outer layer by starting a program in it. No run needs one, so
// one that is not there, or does not work, is no fault of the host's.
func OuterLayers(c config.Config, runtimes *outer.Runtimes) (all []probe.Finding) {
	if os.Geteuid() != 0 || rootless.User() != nil {
		return []probe.Finding{{Name: "outer layers", Answer: probe.Off,
			Detail: "none: only the daemon of the host has them"}}
	}
	for _, l := range policy.OuterLayers() {
		f := probe.Finding{Name: "outer " + l.Name, Answer: probe.Yes}
		ctx := context.Background()
		runtime, err := runtimes.Find(ctx, l.Name)
		if err == nil {
			f.Detail = fmt.Sprintf("works: %s, %s", runtime.Path, runtime.Version)
			err = outer.Try(ctx, l.Name, runtime,
				outer.Host{Shim: c.Shim, Init: c.Init, Cgroup: c.Slice})
		}
		switch {
		case errors.Is(err, outer.ErrMissing):
			f.Answer = probe.Off
			f.Detail = "not there, and no run needs it"
		case err != nil:
			f.Answer = probe.Off
			f.Detail = "does not work here, and --outer " + l.Name + " is refused: " + err.Error()
		}
		all = append(all, f)
	}
	return all
}

// Installed says whether the programs and bundles of jail are there, and whether its
// directories can be written.
func Installed(c config.Config) []probe.Finding {
	return []probe.Finding{
		findProgram("jail-shim", c.Shim), findProgram("jail-init", c.Init),
		findProgram("jail-init-agent", c.AgentInit), findProgram("jaild", config.Jaild(c.Exe)),
		findBundles(c.Places()), findWritable("state directory", c.StateDir),
		findWritable("audit log", c.LogDir),
	}
}

// Existing returns dir, or the nearest directory above it that is there.
func Existing(dir string) string {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func findProgram(name, path string) probe.Finding {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return probe.Finding{Name: name, Answer: probe.No, Detail: fmt.Sprintf("%s: %v", path,
			problem.Cause(err)), Fix: "build or install it beside jail"}
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return probe.Finding{Name: name, Answer: probe.No, Detail: path + " is no program",
			Fix: "build or install it anew"}
	}
	return probe.Finding{Name: name, Answer: probe.Yes, Detail: path}
}

// findBundles reads the manifests, of what came with jail and of what was pulled, and checks each
// module against its manifest.
func findBundles(places bundle.Places) probe.Finding {
	f := probe.Finding{Name: "tool bundles", Answer: probe.No, Fix: "install them anew"}
	set, err := bundle.OpenPlaces(places, false)
	if errors.Is(err, fs.ErrPermission) {
		// what was pulled may be root's alone to see
		set, err = bundle.Open(places.Dirs...)
	}
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	err = errors.Join(set.Problems()...)
	commands, pulled := 0, 0
	for _, b := range set.List() {
		err = errors.Join(err, b.Verify())
		commands += len(b.Commands())
		if b.Origin != nil {
			pulled++
		}
	}
	switch {
	case err != nil:
		f.Detail = err.Error()
	case commands == 0:
		f.Detail, f.Fix = "none below "+strings.Join(places.Dirs, " or "),
			"make build, or make install"
	default:
		f = probe.Finding{Name: f.Name, Answer: probe.Yes,
			Detail: fmt.Sprintf("%s in %s", plural(commands, "command"), plural(len(set.List()),
				"bundle"))}
		if pulled > 0 {
			f.Detail += fmt.Sprintf(", %d of them pulled", pulled)
		}
	}
	return f
}

// findWritable puts a file down, in the directory or in the one that it would be made in.
func findWritable(name, dir string) probe.Finding {
	f := probe.Finding{Name: name, Answer: probe.Yes, Detail: dir}
	where := Existing(dir)
	if where != dir {
		f.Detail += ", to be made"
	}
	if info, err := os.Stat(where); err == nil && os.Geteuid() != 0 &&
		info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return probe.Finding{Name: name, Answer: probe.Unknown,
			Detail: dir + " is not yours to write", Fix: "run jail doctor as root"}
	}
	file, err := os.CreateTemp(where, ".probe-")
	if err == nil {
		err = errors.Join(file.Close(), os.Remove(file.Name()))
	}
	if err != nil {
		return probe.Finding{Name: name, Answer: probe.No, Detail: fmt.Sprintf("%s: %v", where,
			problem.Cause(err)),
			Fix: "make room in it, or name another place with JAIL_STATE"}
	}
	return f
}

// unusable is the finding for settings that cannot be read, and fix for those that can be seen.
func unusable(name string, err error, fix string) probe.Finding {
	if errors.Is(err, fs.ErrPermission) {
		return probe.Finding{Name: name, Answer: probe.Unknown, Detail: err.Error(),
			Fix: "run jail doctor as root"}
	}
	return probe.Finding{Name: name, Answer: probe.No, Detail: err.Error(), Fix: fix}
}

// Approvals says whether the settings of approvals can be used.
func Approvals(c config.Config) probe.Finding {
	f := probe.Finding{Name: "approvals", Answer: probe.Yes, Detail: "decisions by mcp count once"}
	s, err := config.ReadApprovals(c.Approvals)
	if err != nil {
		return unusable(f.Name, err, "correct "+c.Approvals+": until then the daemon does not start")
	}
	if s.NoMCP {
		f.Detail = "no decisions by mcp"
	}
	if len(s.Notify) == 0 {
		return f
	}
	f.Detail += ", notify by " + s.Notify[0]
	if program := findProgram(f.Name, s.Notify[0]); program.Answer != probe.Yes {
		program.Fix = "correct notify in " + c.Approvals
		return program
	}
	return f
}

// Fetches says whether the settings of fetches can be used, and which hosts inside the operator's
// network they open to policies. If short, it says only how many.
func Fetches(c config.Config, short bool) probe.Finding {
	f := probe.Finding{Name: "fetch settings", Answer: probe.Yes, Detail: "no internal hosts"}
	s, err := fetch.ReadSettings(c.Fetch)
	if err != nil {
		return unusable(f.Name, err, "correct "+c.Fetch+": until then no run fetches anything")
	}
	var lines []string
	for _, e := range s.Hosts() {
		text := e.String()
		if e.Socket != "" {
			if info, err := os.Stat(e.Socket); err != nil || info.Mode().Type() != fs.ModeSocket {
				text += " (there is no socket now)"
			}
		}
		lines = append(lines, text)
	}
	if len(lines) > 0 {
		f.Detail = plural(len(lines), "internal host")
		if !short {
			f.Detail += ": " + strings.Join(lines, "; ")
		}
	}
	return f
}

// Anchors says how it stands with the places that heads of the log go to.
func Anchors(c config.Config) []probe.Finding {
	const name = "anchors"
	s, err := anchor.Read(c.Audit)
	if err != nil {
		return []probe.Finding{{Name: name, Answer: probe.No, Detail: err.Error(),
			Fix: "correct it: the daemon does not start with it"}}
	}
	var all []probe.Finding
	for _, t := range s.Anchors {
		f := probe.Finding{Name: "anchor " + t.Name, Answer: probe.Yes}
		st, err := anchor.ReadStatus(c.Anchors(), t)
		switch {
		case err != nil:
			f.Answer, f.Detail, f.Fix = probe.Unknown, fmt.Sprint(problem.Cause(err)),
				"run jail doctor as root"
		case st.Error != "":
			f.Answer, f.Detail, f.Fix = probe.No, fmt.Sprintf("%s, since %s, failed %d times",
				audit.Printable(st.Error), st.Since.Format(time.RFC3339), st.Failed),
				"until it works again, records can be taken away without an anchor to show it"
		case st.Time.IsZero():
			f.Detail = t.To + ": nothing was sent yet"
		default:
			f.Detail = fmt.Sprintf("%s: has %d records, since %s", t.To, st.Size,
				st.Time.Format(time.RFC3339))
		}
		all = append(all, f)
	}
	return all
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
