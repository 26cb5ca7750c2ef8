package outer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
)

// ErrMissing is wrapped by the error for a runtime that is not installed.
var ErrMissing = errors.New("it is not installed")

// systemDirs are where distributions and administrators put runtimes.
var systemDirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"}

// versionTime bounds the question for a version: a broken program may not answer.
const versionTime = 10 * time.Second

// Runtimes finds the programs of outer layers. Its methods may be called from several goroutines.
type Runtimes struct {
	// Dir is looked in before the directories of the system: that of jail's own programs, absolute.
	Dir string

	mu    sync.Mutex
	known map[string]known
}

// known is a runtime as it was found, and the state of its file then.
type known struct {
	stamp   string
	runtime jail.Runtime
}

// Find returns the runtime of a layer, with its version and the digest of its program. A program
// that somebody but root or the caller can change is refused.
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

// look returns the path of the program and what changes when the file does.
func (r *Runtimes) look(layer string) (path, stamp string, err error) {
	dirs := systemDirs
	if r.Dir != "" {
		dirs = append([]string{r.Dir}, dirs...)
	}
	for _, dir := range dirs {
		// Behind links, as those of Debian's alternatives.
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

// bwrapOldest is the oldest minor version of bubblewrap 0 that jail works with.
const bwrapOldest = 8

// recent returns an error for a runtime that is older than it may be.
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

// version returns the first line of what the program says of its version. The digest identifies the
// program; a version is for reading.
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
