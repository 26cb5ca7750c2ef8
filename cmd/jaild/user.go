package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// scopedArg marks a daemon that already runs in a scope of the user's service manager.
const scopedArg = "--scoped"

// systemdRun is an absolute path, since PATH is not trusted.
const systemdRun = "/usr/bin/systemd-run"

// asUser runs an ordinary user's daemon: it checks the owners of files, gets a control group,
// starts the daemon in its namespaces and returns its exit code. own says that the control group is
// delegated already, scoped that it is in a scope.
func asUser(config config.Config, exe string, args []string, own, scoped bool) (int, error) {
	// Inside the namespace, the owners of files cannot be told apart.
	for _, dir := range append([]string{config.Profiles, filepath.Dir(config.Ceiling),
		filepath.Dir(config.Fetch)}, config.Bundles...) {
		if err := profiles.CheckOwners(dir); err != nil {
			return 0, &problem.Error{Code: problem.Failed, Message: err.Error(), Err: err}
		}
	}
	if !own && !scoped && userManager() {
		err := syscall.Exec(systemdRun, append([]string{systemdRun, "--user", "--scope", "--quiet",
			"--collect", "--property=Delegate=yes", "--", exe, scopedArg}, args...), os.Environ())
		return 0, &problem.Error{Code: problem.Failed, Message: systemdRun + ": " + err.Error(),
			Err: err}
	}
	// Before there is a second process: a group that enables controllers for its children may
	// contain none.
	if _, err := cgroup.Delegated(); err != nil {
		return 0, noDelegation(err)
	}
	code, err := rootless.Run(exe, args)
	if _, ok := errors.AsType[*rootless.SpaceError](err); ok {
		return 0, noNamespaces(err)
	}
	return code, err
}

// noNamespaces returns the error for a failed user namespace, in the words of jail doctor if it
// finds the cause.
func noNamespaces(err error) error {
	if e := problem.Missing(probe.UserNamespace(), err); e != nil {
		return e
	}
	return problem.New(problem.Layer, "%w", err).
		WithHint("jail doctor says what this host can enforce")
}

// probeArg lets a user's daemon print what it can enforce inside its namespaces, and end.
const probeArg = "--probe"

func probeInside(config config.Config, stdout io.Writer) int {
	if rootless.Inside() {
		if err := rootless.Settle(); err != nil {
			return problem.ExitFailed
		}
	}
	if err := os.MkdirAll(config.StateDir, 0o700); err != nil {
		return problem.ExitFailed
	}
	if err := json.NewEncoder(stdout).Encode(probe.All(config.StateDir, config.Slice)); err != nil {
		return problem.ExitFailed
	}
	return 0
}

// userManager reports whether the user's service manager can provide a control group with limits.
func userManager() bool {
	if layout, err := cgroup.Detect(); err != nil || layout != cgroup.V2 {
		return false
	}
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(dir) {
		return false
	}
	for _, path := range []string{systemdRun, filepath.Join(dir, "systemd/private")} {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	return true
}

// noDelegation returns the error for a missing control group: no run is started without its limits.
func noDelegation(err error) error {
	if errors.Is(err, cgroup.ErrShared) {
		return problem.New(problem.Layer,
			"the limits of a run need a control group that is jaild's alone: %w", err).
			WithHint("start it where the user's service manager can be asked for one " +
				"(XDG_RUNTIME_DIR is set there), or in one of its own")
	}
	if e := problem.Missing(probe.Delegation(), err); e != nil {
		return e
	}
	return problem.New(problem.Layer,
		"the limits of a run need a control group of this user's own: %w", err).
		WithHint("jail doctor says what this host can enforce")
}
