// Package hoststatus reports what a host and its daemon can enforce, and what is missing.
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

// Checks examine the host of one daemon. An examination uses loop devices and mounts, and reads
// every bundle, so callers within the time fresh share one result. Checks are safe for concurrent
// use.
type Checks struct {
	config config.Config
	// permissions returns the caller's permissions under the ceiling in force.
	permissions func(caller.Caller) caller.Permissions

	runtimes *outer.Runtimes

	mu       sync.Mutex
	done     time.Time
	findings []probe.Finding
	// Starting containers takes longer, so these results are kept longer.
	tried  time.Time
	layers []probe.Finding
}

const fresh, freshOuter = time.Second, time.Minute

// New returns the checks of the daemon with configuration c. See Checks for permissions.
func New(c config.Config, permissions func(caller.Caller) caller.Permissions) *Checks {
	return &Checks{config: c, permissions: permissions, runtimes: RuntimesOf(c)}
}

// Status checks in this process what a run needs, since a service may lack rights that a root shell
// on the same host has. It shows the state of the log's anchors to callers who may read all
// records, and to the user of a user's own daemon.
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

// RuntimesOf returns the runtimes of outer layers that a daemon with configuration c uses.
func RuntimesOf(c config.Config) *outer.Runtimes {
	return &outer.Runtimes{Dir: filepath.Dir(c.Shim)}
}

// OuterLayers tests the runtime of each outer layer by starting a program in it. A missing or
// failing runtime is no fault of the host, since no run needs one.
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

// Installed reports whether jail's programs and bundles are present and its directories are
// writable.
func Installed(c config.Config) []probe.Finding {
	return []probe.Finding{
		findProgram("jail-shim", c.Shim), findProgram("jail-init", c.Init),
		findProgram("jail-init-agent", c.AgentInit), findProgram("jaild", config.Jaild(c.Exe)),
		findBundles(c.Places()), findWritable("state directory", c.StateDir),
		findWritable("audit log", c.LogDir),
	}
}

// Existing returns dir, or its nearest ancestor that is a directory.
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

// findBundles reads the manifests of installed and pulled bundles and checks each module against
// its manifest.
func findBundles(places bundle.Places) probe.Finding {
	f := probe.Finding{Name: "tool bundles", Answer: probe.No, Fix: "install them anew"}
	set, err := bundle.OpenPlaces(places, false)
	if errors.Is(err, fs.ErrPermission) {
		// Only root may read the pulled bundles on some hosts.
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

// findWritable tests, with a temporary file, whether dir or its nearest ancestor is writable.
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

// unusable returns the finding for settings that cannot be read. fix is the advice if they are
// invalid; if permission is missing the advice is to be root.
func unusable(name string, err error, fix string) probe.Finding {
	if errors.Is(err, fs.ErrPermission) {
		return probe.Finding{Name: name, Answer: probe.Unknown, Detail: err.Error(),
			Fix: "run jail doctor as root"}
	}
	return probe.Finding{Name: name, Answer: probe.No, Detail: err.Error(), Fix: fix}
}

// Approvals reports whether the settings of approvals are valid.
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

// Fetches reports whether the settings of fetches are valid, and lists the internal hosts that they
// open to policies. If short is set it gives only their number.
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

// Anchors reports the state of each place to which heads of the log are sent.
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
