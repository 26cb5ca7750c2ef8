package outer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
)

// tryTime bounds a try: a runtime that waits for something that the host has not may wait for ever.
const tryTime = 20 * time.Second

// ownCode is the exit code by which jail-init says that nobody has started it as it should be.
const ownCode = 125

// A Host is what a try needs of jail: the paths of jail-shim and jail-init, and the control group
// above all jails.
type Host struct{ Shim, Init, Cgroup string }

// Try starts a container in which jail-init, from its path on the host, says that it is in no jail.
// It returns why that did not work here.
func Try(ctx context.Context, layer string, runtime jail.Runtime, h Host) error {
	dir, err := os.MkdirTemp("", "jail-outer-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := Bundle{Dir: dir, ID: filepath.Base(dir)}
	root, err := tryRoot(dir)
	if err != nil {
		return err
	}
	args, unified := tryBwrap(root, h.Init), false
	if layer != policy.OuterBwrap {
		adapter, err := For(layer)
		if err != nil {
			return err
		}
		unified = adapter.Unified()
		if args, err = tryContainer(adapter, b, trySpec(root, h.Init), h.Cgroup); err != nil {
			return err
		}
		// Whatever is left of it.
		defer func() {
			remove := exec.Command(h.Shim)
			remove.Args = Gated(-1, unified, runtime.Path, adapter.Delete(b))
			remove.Env = []string{}
			_ = remove.Run()
		}()
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.Shim)
	cmd.Args = Gated(-1, unified, runtime.Path, args)
	cmd.Env, cmd.WaitDelay = []string{}, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if os.Geteuid() == 0 {
		// runsc mounts a network namespace below its state and leaves it there.
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("it did not start a program within %v", tryTime)
	case cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == ownCode:
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)+"\n"+Explain(b)), "\n")
	return errors.Join(errors.New(lines[len(lines)-1]), err)
}

// tryContainer writes the bundle of a container and returns the arguments that run it.
func tryContainer(adapter Adapter, b Bundle, spec *specs.Spec, cgroup string) ([]string, error) {
	if adapter.MakesGroup() {
		spec.Linux.CgroupsPath = filepath.Join(cgroup, b.ID)
	}
	if err := b.Write(spec); err != nil {
		return nil, err
	}
	start := adapter.Start(b)
	if start == nil {
		return adapter.Create(b), nil
	}
	// The same arguments but for what only a container that waits has.
	return append(start[:len(start)-2:len(start)-2], "run", "--bundle", b.Dir, b.ID), nil
}

// tryRoot makes a root that has room for what is mounted there and for init.
func tryRoot(dir string) (string, error) {
	root := filepath.Join(dir, "root")
	// crun looks for a /dev.
	for _, name := range []string{"proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return "", err
		}
	}
	return root, os.WriteFile(filepath.Join(root, "init"), nil, 0o755)
}

// trySpec is a container with a root that holds nothing but init.
func trySpec(root, init string) *specs.Spec {
	spec := &specs.Spec{Version: "1.0.2", Root: &specs.Root{Path: root, Readonly: true},
		Process: &specs.Process{Args: []string{"/init", "try"}, Cwd: "/", NoNewPrivileges: true},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/init", Type: "bind", Source: init, Options: []string{"bind", "ro"}}},
		Linux: &specs.Linux{}}
	for _, kind := range []specs.LinuxNamespaceType{specs.PIDNamespace, specs.MountNamespace,
		specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace} {
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: kind})
	}
	return spec
}

// Explain returns what the runtime has last written of a failure, or nothing.
func Explain(b Bundle) string {
	text, err := os.ReadFile(b.LogFile())
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := lines[len(lines)-1]
	var entry struct {
		Msg string `json:"msg"`
	}
	if json.Unmarshal([]byte(last), &entry) == nil && entry.Msg != "" {
		last = entry.Msg
	}
	const most = 500
	return last[:min(len(last), most)]
}
