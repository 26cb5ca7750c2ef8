// Package jailtest starts jails for tests: the real shim and the real stack around a probe that
// attacks it from inside. It is imported by tests only. A jail is weakened by changing its plan,
// which is a value, and by nothing that is in a shipped program.
package jailtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/jailtest/built"
	"github.com/jail-sandbox/jail/jail/landlock"
)

// NoSkip is the environment variable that makes a skip a failure, for machines on which everything
// is meant to exist.
const NoSkip = "JAIL_TEST_NO_SKIP"

// Require skips the test if this machine cannot run jails, and says what is missing.
func Require(t testing.TB) {
	t.Helper()
	for _, need := range []func() error{root, controllers, hasLandlock} {
		err := need()
		switch {
		case err == nil:
		case os.Getenv(NoSkip) != "":
			t.Fatalf("%s is set, and %v", NoSkip, err)
		default:
			t.Skip(err)
		}
	}
}

func root() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("only root can start jails; this is uid %d", os.Geteuid())
	}
	return nil
}

func controllers() error {
	missing, err := cgroup.Missing()
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("control groups without %v", missing)
	}
	return err
}

func hasLandlock() error {
	_, err := landlock.ABI()
	return err
}

// Slice returns the cgroup above all jails of this test binary.
func Slice() string { return fmt.Sprintf("/jailtest-%d", os.Getpid()) }

// RemoveSlice removes an empty control group of a test's own from every hierarchy.
func RemoveSlice(path string) error {
	var errs []error
	for _, pattern := range []string{path, "/*" + path} {
		dirs, err := filepath.Glob(cgroup.Root + pattern)
		errs = append(errs, err)
		for _, dir := range dirs {
			errs = append(errs, os.Remove(dir))
		}
	}
	return errors.Join(errs...)
}

// Main runs the tests of a package that starts jails, and cleans up after all of them. It is for
// TestMain.
func Main(m *testing.M) int {
	defer func() {
		if binaries.dir != "" {
			os.RemoveAll(binaries.dir)
		}
		if err := RemoveSlice(Slice()); err != nil {
			fmt.Fprintln(os.Stderr, "jailtest:", err)
		}
	}()
	return m.Run()
}

var binaries struct {
	once sync.Once
	dir  string
	err  error
}

const module = "github.com/jail-sandbox/jail/"

// Names of the built programs.
const (
	Shim            = "jail-shim"
	Probe           = "probe"
	probeNoLandlock = "probe-without-landlock"
	probeEarly      = "probe-without-patience"
	probeStuck      = "probe-without-progress"
)

// Binary returns the path of a program that was built for the tests, once for each test binary.
func Binary(t testing.TB, name string) string {
	t.Helper()
	binaries.once.Do(func() { binaries.err = build() })
	if binaries.err != nil {
		t.Fatal(binaries.err)
	}
	return filepath.Join(binaries.dir, name)
}

func build() error {
	dir, err := os.MkdirTemp("", "jailtest-bin-")
	if err != nil {
		return err
	}
	binaries.dir = dir
	probe := module + "jail/jailtest/testdata/probe"
	for _, b := range []struct {
		name, cgo string
		args      []string
	}{
		{Shim, "1", []string{"-tags", "seccomp,runc_nocriu,netgo,osusergo", "-ldflags",
			`-s -w -linkmode external -extldflags "-static"`, module + "cmd/jail-shim"}},
		{Probe, "0", []string{"-ldflags", "-s -w", probe}},
		{probeNoLandlock, "0", []string{"-ldflags", "-s -w -X main.without=landlock", probe}},
		{probeEarly, "0", []string{"-ldflags", "-s -w -X main.without=patience", probe}},
		{probeStuck, "0", []string{"-ldflags", "-s -w -X main.without=progress", probe}},
	} {
		if err := built.Program(filepath.Join(dir, b.name), []string{"CGO_ENABLED=" + b.cgo},
			b.args...); err != nil {
			return err
		}
	}
	return nil
}
