//go:build league

package league

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/cgroup"
)

// defaultFilter is the one of container engines, as Debian ships it.
const defaultFilter = "/usr/share/containers/seccomp.json"

// slice is the control group above the containers, with the name of the test's own directory, which
// is no other's.
func slice() string { return "/" + filepath.Base(*shared) }

// bundle prepares what the runtimes have in common.
func bundle(t *testing.T, w *world, o *outcome) {
	if out, err := exec.Command(which("runc")(), "spec", "--bundle",
		w.dir).CombinedOutput(); err != nil {
		t.Fatalf("runc spec: %v: %s", err, out)
	}
	if err := os.Rename(filepath.Join(w.dir, "config.json"),
		filepath.Join(w.dir, "default.json")); err != nil {
		t.Fatal(err)
	}
	if *inside == "crun" && !pureV2() {
		o.Notes = append(o.Notes,
			"It refuses the control groups of this machine, which are v1 and v2 beside each "+
				"other: it ran without, and so without limits of memory and processes.")
		// Its own look at them must find v2. The mount is the throwaway's.
		if err := unix.Mount("none", cgroup.Root, "cgroup2", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, pattern := range []string{cgroup.Root + slice(), cgroup.Root + "/*" + slice()} {
			dirs, _ := filepath.Glob(pattern)
			for _, dir := range dirs {
				if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("control group %s: %v", dir, err)
				}
			}
		}
	})
}

// hybrid says that there were control groups v1 before crun was shown others.
var hybrid = !pureV2()

func writeConfig(w *world, program []string) error {
	text, err := os.ReadFile(filepath.Join(w.dir, "default.json"))
	if err != nil {
		return err
	}
	var s specs.Spec
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	s.Root.Path = "rootfs"
	s.Process.Terminal = false
	s.Process.Args = append([]string{"/probe"}, program...)
	s.Process.User = specs.User{UID: toolUID, GID: toolUID}
	s.Process.Capabilities = &specs.LinuxCapabilities{}
	s.Process.Env = nil
	s.Mounts = append(s.Mounts,
		specs.Mount{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid",
			"nodev", "noexec", fmt.Sprintf("size=%d", tmpLimit), "mode=1777"}},
		specs.Mount{Destination: "/data", Type: "bind", Source: w.data,
			Options: []string{"bind", "ro", "nosuid", "nodev"}},
		specs.Mount{Destination: "/store", Type: "bind", Source: w.store, Options: []string{"bind",
			"rw", "nosuid", "nodev"}})
	// /sys of a network namespace that is another's cannot be mounted in a user namespace: engines
	// bind the host's, read-only.
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: idBase, Size: 65536}}
	s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
	s.Linux.UIDMappings, s.Linux.GIDMappings = ids, ids
	s.Linux.CgroupsPath = slice() + "/box"
	memory, tasks := int64(memoryLimit), int64(taskLimit)
	if *inside != "crun" || !hybrid {
		s.Linux.Resources = &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false,
			Access: "rwm"}},
			Memory: &specs.LinuxMemory{Limit: &memory, Swap: &memory},
			Pids:   &specs.LinuxPids{Limit: &tasks}}
	} else {
		s.Linux.Resources, s.Linux.CgroupsPath = nil, ""
	}
	if s.Linux.Seccomp, err = engineFilter(); err != nil {
		return err
	}
	out, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.dir, "config.json"), out, 0o644)
}

// engineFilter is the default filter as it comes out for a container without capabilities on amd64.
func engineFilter() (*specs.LinuxSeccomp, error) {
	text, err := os.ReadFile(defaultFilter)
	if err != nil {
		return nil, err
	}
	type only struct{ Caps, Arches []string }
	var profile struct {
		DefaultAction   specs.LinuxSeccompAction
		DefaultErrnoRet *uint
		Syscalls        []struct {
			Names              []string
			Action             specs.LinuxSeccompAction
			ErrnoRet           *uint
			Args               []specs.LinuxSeccompArg
			Includes, Excludes only
		}
	}
	if err := json.Unmarshal(text, &profile); err != nil {
		return nil, fmt.Errorf("%s: %w", defaultFilter, err)
	}
	f := &specs.LinuxSeccomp{DefaultAction: profile.DefaultAction,
		DefaultErrnoRet: profile.DefaultErrnoRet,
		Architectures:   []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32}}
	for _, c := range profile.Syscalls {
		if len(c.Includes.Caps) > 0 || len(c.Includes.Arches) > 0 &&
			!slices.Contains(c.Includes.Arches, "amd64") || slices.Contains(c.Excludes.Arches,
			"amd64") {
			continue
		}
		f.Syscalls = append(f.Syscalls, specs.LinuxSyscall{Names: c.Names, Action: c.Action,
			ErrnoRet: c.ErrnoRet, Args: c.Args})
	}
	return f, nil
}
