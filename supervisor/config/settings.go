package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// leastCache is the smallest cache of compiled modules that the settings may ask for, in bytes.
const leastCache = 1 << 20

// Settings are the operator's settings of the daemon, from a TOML file that only root and the
// daemon's user may write. jaild(8) describes them. DefaultBounds supplies values that are missing.
//
//	metrics = "127.0.0.1:9464"   # serve metrics to Prometheus here, too; "" for the socket only
//
//	[admission]
//	runs    = 64                 # admitted at one time
//	memory  = "32GiB"            # sum of the memory limits of admitted runs
//	waiting = 256                # runs that wait for admission; one more is refused as busy
//	wait    = "30s"              # longest wait for admission
//
//	[pool]
//	size = 8                     # prewarmed jails, at most; 0 for none
//
//	[compile]
//	times = 1                    # factor on the time limit for compiling; more on a slow host
//	cache = "4GiB"               # of compiled modules; the least recently used are removed
//
//	[sessions]
//	user = 64                    # open sessions of one user, at most
//
//	[denied]
//	landlock = false             # whether refusals of Landlock are read from the host's audit log
type Settings struct {
	Metrics   string `json:"metrics"`
	Admission struct {
		Runs    *int   `json:"runs"`
		Memory  string `json:"memory"`
		Waiting *int   `json:"waiting"`
		Wait    string `json:"wait"`
	} `json:"admission"`
	Pool struct {
		Size *int `json:"size"`
	} `json:"pool"`
	Compile struct {
		Times *int   `json:"times"`
		Cache string `json:"cache"`
	} `json:"compile"`
	Sessions struct {
		User *int `json:"user"`
	} `json:"sessions"`
	Denied struct {
		Landlock bool `json:"landlock"`
	} `json:"denied"`
}

// ReadSettings reads the settings of the daemon from the file at path. It returns the zero Settings
// and no error if the file is missing. An untrusted file (see profiles.ReadTrusted) or an invalid
// setting is an error with the code usage.
func ReadSettings(path string) (s Settings, err error) {
	err = read(path, "the daemon", "jaild(8) has the keys of jaild.toml",
		func(text []byte) error { return s.parse(path, text) })
	return s, err
}

func (s *Settings) parse(path string, text []byte) error {
	return syntax.Decode(path, text, s, func() error {
		_, err := s.Bounds()
		if err == nil && s.Metrics != "" {
			err = loopback(s.Metrics)
		}
		return err
	})
}

// read passes the text of the file at path to parse. If the file is missing, it returns nil and
// does not call parse. of names the owner of the settings in errors. Errors have the code usage and
// the hint, but a lack of memory or descriptors has the code failed and no hint.
func read(path, of, hint string, parse func(text []byte) error) error {
	text, err := profiles.ReadTrusted(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// A lack of memory or descriptors is not the file's fault.
	if problem.IsShort(err) {
		return problem.New(problem.Failed, "settings of %s: %w", of, err)
	}
	if err == nil {
		err = parse(text)
	}
	if err != nil {
		return problem.New(problem.Usage, "settings of %s: %w", of, err).WithHint(hint)
	}
	return nil
}

// loopback returns an error unless address is a loopback IP address with a port from 1 to 65535.
// The metrics endpoint has no authentication, so other hosts must not reach it.
func loopback(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("metrics = %q: %w", address, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("metrics = %q: port %q is none", address, port)
	}
	if a, err := netip.ParseAddr(host); err != nil || !a.IsLoopback() {
		return fmt.Errorf(
			"metrics = %q: want an address of this host alone, 127.0.0.1 or [::1]; put a proxy "+
				"that asks for a password before it for others", address)
	}
	return nil
}

// Bounds returns the bounds in the settings. Missing settings have the values of DefaultBounds for
// this host. A value out of range is an error.
func (s *Settings) Bounds() (Bounds, error) {
	var info syscall.Sysinfo_t
	var files syscall.Rlimit
	if err := errors.Join(os.NewSyscallError("sysinfo", syscall.Sysinfo(&info)),
		os.NewSyscallError("getrlimit", syscall.Getrlimit(syscall.RLIMIT_NOFILE,
			&files))); err != nil {
		return Bounds{}, err
	}
	b := DefaultBounds(int64(info.Totalram)*int64(info.Unit), files.Cur)
	a := s.Admission
	for _, n := range []struct {
		name        string
		from        *int
		to          *int
		least, most int
	}{{"admission.runs", a.Runs, &b.Runs, 1, 100_000}, {"admission.waiting", a.Waiting, &b.Waiting,
		1, 100_000}, {"pool.size", s.Pool.Size, &b.Warm, 0, 1000},
		{"compile.times", s.Compile.Times, &b.Compile, 1, 100},
		{"sessions.user", s.Sessions.User, &b.Sessions, 1, MostSessions}} {
		if n.from == nil {
			continue
		}
		if *n.from < n.least || *n.from > n.most {
			return b, fmt.Errorf("%s = %d: want %d to %d", n.name, *n.from, n.least, n.most)
		}
		*n.to = *n.from
	}
	var l policy.Limits
	if a.Memory != "" {
		if err := l.Set("memory", a.Memory); err != nil {
			return b, fmt.Errorf("admission.memory: %w", err)
		}
		b.Memory = l.Memory
	}
	if c := s.Compile.Cache; c != "" {
		n, err := policy.Bytes.Parse(c)
		if err != nil {
			return b, fmt.Errorf("compile.cache: %w", err)
		}
		if n < leastCache {
			return b, fmt.Errorf("compile.cache = %q: want 1MiB or more", c)
		}
		b.Cache = n
	}
	if a.Wait != "" {
		d, err := time.ParseDuration(a.Wait)
		if err != nil || d <= 0 || d > time.Hour {
			return b, fmt.Errorf("admission.wait = %q: want a time up to 1h", a.Wait)
		}
		b.Wait = d
	}
	return b, nil
}

// ReadNode reads the operator's settings for OCI containers from the TOML file at path. It returns
// the zero Node and no error if the file is missing. A file that others than root and the caller
// may write (see profiles.ReadTrusted) or an invalid setting is an error with the code usage.
// docs/oci.md describes the keys.
//
//	profile  = "container"             # the profile of containers that name none
//	profiles = ["container-strict"]    # profiles that the annotation jail.profile may name
//	join     = ["network", "ipc", "uts"]  # namespaces that the containers of a pod may share
//	hooks    = ["/usr/libexec/x"]      # host programs that config.json may use as hooks
//
//	[[volume]]
//	source = "/var/lib/kubelet/pods"   # containers may mount this host directory and paths in it
//	access = "write"                   # read, read+exec, write, write+exec
func ReadNode(path string) (n oci.Node, err error) {
	err = read(path, "containers", "docs/oci.md has the keys of oci.toml", func(text []byte) error {
		return syntax.Decode(path, text, &n, func() error { return oci.CheckNode(n) })
	})
	return n, err
}
