package outer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
)

// ErrMissing is wrapped by Find's error for a runtime that is not installed.
var ErrMissing = errors.New("it is not installed")

// systemDirs are the directories in which Find looks for runtimes.
var systemDirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"}

// versionTime is the timeout of --version.
const versionTime = 10 * time.Second

// Runtimes finds the programs of outer layers. Its methods may be called from several goroutines.
type Runtimes struct {
	// Dir, if not "", is searched before systemDirs: the absolute directory of jail's own programs.
	Dir string

	mu    sync.Mutex
	known map[string]known
}

// known is a cached result of Find and the state of the file then.
type known struct {
	stamp   string
	runtime jail.Runtime
}

// Find returns the runtime of a layer, with its version and the digest of its program. A program
// that users other than root and the caller can change is an error.
func (r *Runtimes) Find(ctx context.Context, layer string) (jail.Runtime, error) {
	path, stamp, err := r.look(layer)
	if err != nil {
		return jail.Runtime{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, ok := r.known[path]; ok && k.stamp == stamp {
		return k.runtime, nil
	}
	runtime := jail.Runtime{Path: path}
	if runtime.Digest, err = digest(path); err != nil {
		return jail.Runtime{}, err
	}
	if runtime.Version, err = version(ctx, path); err != nil {
		return jail.Runtime{}, err
	}
	if err := recent(layer, runtime.Version); err != nil {
		return jail.Runtime{}, fmt.Errorf("%s: %w", path, err)
	}
	if r.known == nil {
		r.known = map[string]known{}
	}
	r.known[path] = known{stamp, runtime}
	return runtime, nil
}

// look returns the path of the program, and a stamp that changes whenever the file changes.
func (r *Runtimes) look(layer string) (path, stamp string, err error) {
	dirs := systemDirs
	if r.Dir != "" {
		dirs = append([]string{r.Dir}, dirs...)
	}
	for _, dir := range dirs {
		// Follow links, such as Debian's alternatives.
		path, err := filepath.EvalSymlinks(filepath.Join(dir, layer))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", "", err
		}
		info, err := os.Stat(path)
		if err != nil {
			return "", "", err
		}
		st := info.Sys().(*syscall.Stat_t)
		if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return "", "", fmt.Errorf("%s is no program", path)
		}
		if info.Mode()&0o022 != 0 || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
			return "", "", fmt.Errorf("%s can be changed by others than root", path)
		}
		return path, fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim), nil
	}
	return "", "", fmt.Errorf("%w in any of %s", ErrMissing, strings.Join(dirs, ", "))
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// bwrapOldest is N of the oldest supported bubblewrap 0.N.
const bwrapOldest = 8

// recent returns an error for an unsupported old version of a runtime. said is the result of
// version.
func recent(layer, said string) error {
	if layer != policy.OuterBwrap {
		return nil
	}
	var major, minor int
	if n, err := fmt.Sscanf(said, "bubblewrap %d.%d", &major, &minor); n != 2 {
		return fmt.Errorf("it says no version that can be compared with 0.%d: %q: %w", bwrapOldest, said,
			err)
	}
	if major == 0 && minor < bwrapOldest {
		return fmt.Errorf("%s is too old: 0.%d or newer is needed", said, bwrapOldest)
	}
	return nil
}

// version returns the first line of the program's --version, at most 100 bytes. It is for display;
// the digest identifies the program.
func version(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env, cmd.WaitDelay = []string{}, time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, errors.Join(err, ctx.Err()))
	}
	line, _, _ := strings.Cut(string(out), "\n")
	const most = 100
	return strings.TrimSpace(line[:min(len(line), most)]), nil
}

// tryTime is the timeout of Try: a runtime may wait forever for something that the host lacks.
const tryTime = 20 * time.Second

// ownCode is jail-init's exit code if it was not started in a jail.
const ownCode = 125

// A Host holds what Try needs: the paths of jail-shim and jail-init, and the cgroup above all
// jails.
type Host struct{ Shim, Init, Cgroup string }

// Try starts a container with the runtime and runs jail-init in it, which exits with ownCode. It
// returns nil if that works, and otherwise an error that says why not.
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
		unified = adapter.Unified
		if args, err = tryContainer(adapter, b, trySpec(root, h.Init), h.Cgroup); err != nil {
			return err
		}
		// Remove what the runtime leaves.
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
		// runsc leaves a mount of a network namespace below its state. It ends with this mount
		// namespace.
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
func tryContainer(adapter *Adapter, b Bundle, spec *specs.Spec, cgroup string) ([]string, error) {
	if adapter.MakesGroup {
		spec.Linux.CgroupsPath = filepath.Join(cgroup, b.ID)
	}
	return adapter.command(b, "run", "--bundle", b.Dir, b.ID), b.Write(spec)
}

// tryRoot makes a root directory in dir with the mount points of trySpec, and returns its path.
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

// trySpec returns the config.json of a container that runs "init try" and has nothing else.
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

// Explain returns the last message in the runtime's log, at most 500 bytes, or "".
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
