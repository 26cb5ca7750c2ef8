package jailtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// UID is the tool's uid, and the owner of the directories that it is given.
const UID = 1000

// A Setup is a jail to be started: the plan of a policy, which a test can inspect or weaken.
type Setup struct {
	Plan     jail.Plan
	Launcher launch.Launcher
	RunDir   string
	// A directory of the host, at /data, read-only; the tool's own.
	Data string
	// A directory of the host, at /store, writable; the tool's own.
	Store   string
	Files   launch.Files // of the workspace
	Policy  policy.Effective
	Request jail.Request
	// The shadow is attached after the jail has started.
	Later bool
	// If set, it is called before the shadow is attached.
	BeforeAttach func(*launch.Process)
	// If set, the shadow and the tmpfs mounts are shared with this jail.
	Holder *Jail
	// Context is the context of the start; nil is one that does not end.
	Context context.Context
	// If set, the jail's streams instead of pipes, which a daemon never does.
	Terminal *os.File
}

const policyText = `policy = 1
name = "test"
[[mount]]
target = "/tmp"
access = "tmpfs"
[[mount]]
source = %q
target = "/data"
access = "read"
[[mount]]
source = %q
target = "/store"
access = "write"
[limits]
wall = "30s"
cpu_time = "20s"
cpus = 1.0
memory = "64MiB"
pids = 32
open_files = 64
output = "1MiB"
workspace = "16MiB"
workspace_files = 100
file_size = "4MiB"
[tools]
modules = ["**"]
[workspace]
access = "shadow"
[syscalls]
groups = ["wasi"]
`

// New returns the setup of a jail, and checks after the test that nothing is left of it.
func New(t testing.TB) *Setup {
	t.Helper()
	Require(t)
	s := &Setup{Launcher: launch.Launcher{Shim: Binary(t, Shim), Init: Binary(t, Probe),
		Patience: patience}}
	dir := t.TempDir()
	checkLeaks(t, dir)
	s.RunDir, s.Data, s.Store = filepath.Join(dir, "run"), filepath.Join(dir, "data"),
		filepath.Join(dir, "store")
	for _, d := range []string{s.RunDir, s.Data, s.Store} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{s.Data, s.Store} {
		if err := os.WriteFile(filepath.Join(d, "f"), []byte("canary\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		own(t, d, filepath.Join(d, "f"))
	}
	if err := cgroup.MakeSlice(Slice(), cgroup.Ceiling{}); err != nil {
		t.Fatal(err)
	}
	file, err := syntax.Parse(syntax.Profile, "test.toml",
		fmt.Appendf(nil, policyText, s.Data, s.Store), nil)
	if err != nil {
		t.Fatal(err)
	}
	eff, err := policy.Resolve(policy.Layer{Name: "test", Policy: file.Policy})
	if err != nil {
		t.Fatal(err)
	}
	s.Policy, s.Request = eff, jail.Request{ID: jail.NewID(), Base: takeBase(t), Slice: Slice(),
		Command: jail.Command{Runner: "probe", Cwd: "/"}}
	s.Plan, err = jail.NewPlan(s.Policy, s.Request)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func own(t testing.TB, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if err := os.Chown(p, UID, UID); err != nil {
			t.Fatal(err)
		}
	}
}

// takeBase reserves a range of host ids as daemons do, so that no live jail shares it.
func takeBase(t testing.TB) uint32 {
	t.Helper()
	for range jail.Bases {
		slot := rand.IntN(jail.Bases)
		hold, err := net.ListenPacket("unixgram", fmt.Sprintf("@jail/ids/%d", slot))
		if err == nil {
			t.Cleanup(func() { hold.Close() })
			return jail.FirstBase + uint32(slot)*jail.BaseSize
		}
	}
	t.Fatal("every range of host ids is in use")
	return 0
}

// HostUID returns the tool's uid on the host.
func (s *Setup) HostUID() uint32 {
	uid, _ := s.Plan.IDs.Host()
	return uid
}

// WithoutLandlock makes the probe, in jail-init's place, not restrict itself with Landlock.
func (s *Setup) WithoutLandlock(t testing.TB) { s.Launcher.Init = Binary(t, probeNoLandlock) }

// Early makes the probe attack before it restricts itself. The call "=early" returns the results.
func (s *Setup) Early(t testing.TB) { s.Launcher.Init = Binary(t, probeEarly) }

// Stuck makes the probe never restrict itself.
func (s *Setup) Stuck(t testing.TB) { s.Launcher.Init = Binary(t, probeStuck) }

// ProcFixed reports whether this kernel cannot narrow a mounted proc, so that jails have no files
// of the machine there.
func ProcFixed(t *testing.T) bool {
	t.Helper()
	fixed, err := probe.ProcFixed()
	if err != nil {
		t.Fatal(err)
	}
	return fixed
}
