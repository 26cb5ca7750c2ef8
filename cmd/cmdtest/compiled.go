package cmdtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A compiled is a state directory of jail in which modules are compiled once for the tests of all
// packages, and of later runs of the tests with the same programs.
type compiled struct{ dir string }

// unusedAge is when the compiled modules of other programs are removed.
const unusedAge = 24 * time.Hour

// openCompiled returns the directory that belongs to the programs in Built, locked until the closer
// is closed.
func openCompiled() (c compiled, lock io.Closer, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return c, nil, err
	}
	programs, err := programsDigest()
	if err != nil {
		return c, nil, err
	}
	all := filepath.Join(cache, "jail-tests")
	c.dir = filepath.Join(all, programs)
	if err := os.MkdirAll(c.records(), 0o755); err != nil {
		return c, nil, err
	}
	file, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return c, nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return c, nil, errors.Join(err, file.Close())
	}
	now := time.Now()
	err = errors.Join(os.Chtimes(c.dir, now, now), CompileSlowly(c.dir))
	others, readErr := os.ReadDir(all)
	err = errors.Join(err, readErr)
	for _, other := range others {
		if i, err := other.Info(); err == nil && now.Sub(i.ModTime()) > unusedAge {
			os.RemoveAll(filepath.Join(all, other.Name()))
		}
	}
	if err != nil {
		return c, nil, errors.Join(err, file.Close())
	}
	return c, file, nil
}

// programsDigest names the programs that compile modules, by their content.
var programsDigest = sync.OnceValues(func() (string, error) {
	sum := sha256.New()
	for _, name := range []string{"jaild", "jail-full", "jail-shim", "jail-init"} {
		f, err := os.Open(filepath.Join(Built, name))
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
})

// Compiled puts the machine code of modules into a state directory that no daemon has used yet, or
// that New has made.
func Compiled(state string, modules ...string) error {
	return putCompiled(state, "run", compiled.run, modules)
}

// CompiledForEngines puts the machine code that shared engines use into such a directory.
func CompiledForEngines(state string, modules ...string) error {
	return putCompiled(state, "engine", compiled.runInEngine, modules)
}

// CompiledBundles is Compiled of the modules of bundles that are built.
func CompiledBundles(h *Host, bundles ...string) {
	h.T.Helper()
	for _, b := range bundles {
		modules, err := filepath.Glob(filepath.Join(Built, "bundles", b, "*.wasm"))
		if err == nil {
			err = Compiled(h.State, modules...)
		}
		if err != nil {
			h.T.Fatal(err)
		}
	}
}

// CompiledBy is Compiled of modules that jail run refuses. The function run, of which there is one
// for each kind, runs a module with a state directory.
func CompiledBy(state, kind string, run func(state, module string) error, modules ...string) error {
	return putCompiled(state, kind, func(c compiled, module string) ([]byte, error) {
		return nil, run(c.dir, module)
	}, modules)
}

func putCompiled(state, kind string, run func(c compiled, module string) ([]byte, error),
	modules []string) error {
	c, lock, err := openCompiled()
	if err != nil {
		return err
	}
	defer lock.Close()
	names := []string{"secret"}
	for _, module := range modules {
		entries, err := c.entries(module, kind, run)
		if err != nil {
			return fmt.Errorf("compile %s: %w", module, err)
		}
		names = append(names, entries...)
	}
	to := filepath.Join(state, "state", "modules")
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	cmd := exec.Command("cp", append(append([]string{"-a"}, names...), to)...)
	cmd.Dir = c.modules()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return nil
}

func (c compiled) modules() string { return filepath.Join(c.dir, "state", "modules") }

// records has a file for each module that was compiled, which names what compiling it added.
func (c compiled) records() string { return filepath.Join(c.dir, "records") }

// entries returns the names of what run adds to the compiled modules. It runs a module once.
func (c compiled) entries(module, kind string,
	run func(c compiled, module string) ([]byte, error)) ([]string, error) {
	text, err := os.ReadFile(module)
	if err != nil {
		return nil, err
	}
	record := filepath.Join(c.records(), fmt.Sprintf("%s-%x", kind, sha256.Sum256(text)))
	if names, err := os.ReadFile(record); !errors.Is(err, fs.ErrNotExist) {
		return strings.Fields(string(names)), err
	}
	before, err := c.recorded()
	if err != nil {
		return nil, err
	}
	// The module may fail, which needs nothing that its tests give it.
	out, runErr := run(c, module)
	names, err := c.list()
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(before, name) })
	if len(names) == 0 {
		return nil, fmt.Errorf("nothing was compiled: %w\n%s", runErr, out)
	}
	begun := filepath.Join(c.dir, "begun")
	return names, errors.Join(os.WriteFile(begun, []byte(strings.Join(names, "\n")), 0o600),
		os.Rename(begun, record))
}

// recorded returns the names of the compiled modules that are on record, and removes the others:
// tests that were killed left them, and no run would add them again.
func (c compiled) recorded() (names []string, err error) {
	records, err := os.ReadDir(c.records())
	for _, record := range records {
		text, readErr := os.ReadFile(filepath.Join(c.records(), record.Name()))
		names, err = append(names, strings.Fields(string(text))...), errors.Join(err, readErr)
	}
	all, listErr := c.list()
	if err = errors.Join(err, listErr); err != nil {
		return nil, err
	}
	for _, name := range all {
		if !slices.Contains(names, name) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(c.modules(), name)))
		}
	}
	return names, err
}

// list returns the names of the compiled modules.
func (c compiled) list() (names []string, err error) {
	all, err := os.ReadDir(c.modules())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, entry := range all {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

func (c compiled) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(Built, program), args...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "JAIL_STATE="+c.dir)
	return cmd
}

func (c compiled) run(module string) ([]byte, error) {
	// Some modules ask for the network, and reach nothing.
	return c.command("jail", "run", "--no-workspace", "--profile", "fetch", "--fetch",
		"up.example.com", "--", module).CombinedOutput()
}

func (c compiled) runInEngine(module string) (out []byte, err error) {
	daemon := c.command("jaild")
	if err := daemon.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	defer func() { err = errors.Join(err, daemon.Process.Signal(syscall.SIGTERM), <-ended) }()
	for deadline := time.Now().Add(Bound); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", filepath.Join(c.dir, "jail.sock"))
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			return nil, err
		}
	}
	start := c.command("jail", "session", "start", "--no-workspace", "--shared-engine")
	id, err := start.Output()
	if err != nil {
		return id, err
	}
	out, err = c.command("jail", "session", "exec", strings.TrimSpace(string(id)), "--",
		module).CombinedOutput()
	stopped, stopErr := c.command("jail", "session", "stop",
		strings.TrimSpace(string(id))).CombinedOutput()
	return append(out, stopped...), errors.Join(err, stopErr)
}
