package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/policy/syntax"
)

// Limits of the directory of an agent.
const (
	MaxFiles = 1000
	MaxBytes = 256 << 20
)

// An Agent is an agent whose directory was read and checked.
type Agent struct {
	*Manifest
	// Dir is the absolute path of the directory.
	Dir string
	// Files are the paths of its files, sorted and relative to Dir.
	Files []string
	// Digest is over the names and the contents of all files: sha256:HEX.
	Digest string
}

// Options say what Load allows.
type Options struct {
	// Host allows the runtime host, for agents whose files and all directories above them only root
	// can change.
	Host bool
}

// Load reads the directory of an agent and checks that the agent can run: the manifest, the files
// that it names, and the imports of the module or scripts. Errors about files are syntax.Errors,
// with file, line and column. If dir has no manifest, the error wraps fs.ErrNotExist.
func Load(dir string, o Options) (*Agent, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name, text, err := readManifest(root, dir)
	if err != nil {
		return nil, err
	}
	m, err := Parse(filepath.Join(dir, name), text)
	if err != nil {
		return nil, err
	}
	if m.OnHost() && !o.Host {
		return nil, reportAt(m, text, "runtime", `write runtime = "sandboxed", or leave it out`,
			"runtime: an agent of a user runs in a jail; host is for agents of the host's own folder")
	}
	a := &Agent{Manifest: m, Dir: dir}
	if err := a.files(root); err != nil {
		return nil, err
	}
	if m.OnHost() {
		if err := a.ownedByRoot(); err != nil {
			return nil, reportAt(m, text, "runtime", "let root own it, and nobody else write to it",
				"runtime: %v", err)
		}
	}
	return a, a.check(root, text)
}

// ownedByRoot returns an error if a user other than root can change a file of the agent or a
// directory above it, since the agent runs as root.
func (a *Agent) ownedByRoot() error {
	seen := map[string]bool{}
	for _, name := range a.Files {
		for path := filepath.Join(a.Dir, name); !seen[path]; path = filepath.Dir(path) {
			seen[path] = true
			info, err := os.Lstat(path)
			if err != nil {
				return err
			}
			owner, ok := info.Sys().(*syscall.Stat_t)
			// In a directory with the sticky bit, others cannot replace root's files.
			shared := info.Mode().Perm()&0o022 != 0 &&
				!(info.IsDir() && info.Mode()&os.ModeSticky != 0)
			if !ok || owner.Uid != 0 || shared || info.Mode()&os.ModeSymlink != 0 {
				return fmt.Errorf("%s can be changed by others than root", path)
			}
		}
	}
	return nil
}

func readManifest(root *os.Root, dir string) (name string, text []byte, err error) {
	for _, name := range []string{File, FileJSON} {
		text, err = readFile(root, name, syntax.MaxBytes+1)
		if err == nil {
			return name, text, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return name, nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
	}
	return "", nil, fmt.Errorf("%s has no %s: %w", dir, File, fs.ErrNotExist)
}

// readFile returns the contents of a regular file. It returns an error if they exceed most bytes.
func readFile(root *os.Root, name string, most int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, cause(err)
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	return io.ReadAll(io.LimitReader(f, most))
}

func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// reportAt returns an error about a key of the manifest.
func reportAt(m *Manifest, text []byte, key, hint, format string, args ...any) error {
	// The text was parsed before, so it has no errors.
	r, _, _ := open(plainOf(m.Source), m.Source, text)
	r.fail(key, hint, format, args...)
	return syntax.Report(m.Source, text, r.errs)
}

// files sets Files and Digest from the files of the directory.
func (a *Agent) files(root *os.Root) error {
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", filepath.Join(a.Dir, name), cause(err))
		case skipped(name) && d.IsDir():
			return fs.SkipDir
		case d.IsDir() || skipped(name):
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is neither a file nor a directory: copy what it names",
				filepath.Join(a.Dir, name))
		case len(a.Files) >= MaxFiles:
			return fmt.Errorf("%s has more than %d files: keep what is no part of the agent "+
				"elsewhere", a.Dir, MaxFiles)
		}
		a.Files = append(a.Files, name)
		return nil
	})
	if err != nil {
		return err
	}
	slices.Sort(a.Files)
	sum, left := sha256.New(), int64(MaxBytes)
	for _, name := range a.Files {
		n, err := hashFile(sum, root, name, left)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(a.Dir, name), err)
		}
		if left -= n; left < 0 {
			return fmt.Errorf("%s has more than %d MiB: keep what is no part of the agent elsewhere",
				a.Dir, MaxBytes>>20)
		}
	}
	a.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return nil
}

// skipped reports whether a file or directory is not part of an agent: those of version control,
// editors and compilers.
func skipped(name string) bool {
	switch base := path.Base(name); base {
	case ".":
		return false
	case "__pycache__", "target", "node_modules":
		return true
	default:
		return base[0] == '.' || strings.HasSuffix(base, "~")
	}
}

func hashFile(sum io.Writer, root *os.Root, name string, left int64) (int64, error) {
	f, err := root.Open(name)
	if err != nil {
		return 0, cause(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, cause(err)
	}
	fmt.Fprintf(sum, "%q %d\n", name, info.Size())
	n, err := io.Copy(sum, io.LimitReader(f, left+1))
	if err == nil && n != info.Size() && n <= left {
		err = errors.New("it changed while it was read: try again")
	}
	return n, err
}
