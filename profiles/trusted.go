package profiles

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/jail-sandbox/jail/policy/syntax"
)

// ErrUntrusted is wrapped by errors about files and directories that somebody else could have
// written.
var ErrUntrusted = errors.New("not trusted")

const maxDirDepth = 3 // profiles/tools/python.toml is one deep

// ReadTrusted reads a policy file such as the ceiling. It refuses a file that anyone but root or
// the caller could have written or replaced, one with several hard links, a symbolic link, any
// other than a regular file, and more than syntax.MaxBytes.
func ReadTrusted(path string) ([]byte, error) {
	dir, name := filepath.Split(path)
	root, err := openDir(filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return readFile(root, filepath.Clean(dir), name)
}

// openDir opens a directory that only root and the caller can write or replace.
func openDir(dir string) (*os.Root, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, err
	}
	if err := trustedParents(root, abs); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

func trustedParents(root *os.Root, abs string) error {
	opened, err := root.Stat(".")
	if err != nil {
		return err
	}
	// directories that others can write, which chmod can correct
	var open []string
	why := ""
	for dir := abs; ; dir = filepath.Dir(dir) {
		info, err := os.Lstat(dir)
		if err != nil {
			return err
		}
		if dir == abs && !os.SameFile(info, opened) {
			return fmt.Errorf("directory %s: %w: is a link, or was exchanged while it was opened",
				dir, ErrUntrusted)
		}
		if why := badOwner(info); why != "" {
			return fmt.Errorf("directory %s: %w: %s", dir, ErrUntrusted, why)
		}
		if bad := badMode(info, dir != abs); bad != "" {
			open, why = append(open, dir), cmp.Or(why, bad)
		}
		if dir != filepath.Dir(dir) {
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("directory %s: %w: %s; mend it with: chmod go-w %s", open[0],
				ErrUntrusted, why, quoted(open))
		}
		return nil
	}
}

// badOwner returns a phrase with the owner if that is neither root nor the caller, or "".
func badOwner(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "its owner cannot be known"
	}
	if stat.Uid != 0 && int(stat.Uid) != os.Geteuid() && !unnamed(stat.Uid) {
		return fmt.Sprintf("its owner is uid %d", stat.Uid)
	}
	return ""
}

// badMode returns a phrase if others can write a file or directory, or "". parent allows the sticky
// bit, as on /tmp, with which nobody can replace others' files. An ordinary user's private group
// may write, as with umask 0002; for root no group may.
func badMode(info fs.FileInfo, parent bool) string {
	if parent && info.Mode()&fs.ModeSticky != 0 {
		return ""
	}
	switch perm := info.Mode().Perm(); {
	case info.Mode()&fs.ModeSymlink != 0:
		// The mode of a link says nothing; who may exchange it is in its directory's.
		return ""
	case perm&0o002 != 0:
		return fmt.Sprintf("everyone can write to it (mode %04o)", perm)
	case perm&0o020 != 0 && !ownGroup(info):
		return fmt.Sprintf("its group can write to it (mode %04o)", perm)
	}
	return ""
}

// ownGroup reports whether a file belongs to the caller, who is not root, and to a group without
// other members.
func ownGroup(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	uid := os.Geteuid()
	return ok && uid != 0 && int(stat.Uid) == uid && hostAccounts().isPrivate(stat.Gid, stat.Uid)
}

// othersWrite combines badOwner and badMode for an entry of a trusted directory.
func othersWrite(info fs.FileInfo, path string) string {
	if why := badOwner(info); why != "" {
		return why
	}
	if why := badMode(info, false); why != "" {
		return why + "; mend it with: chmod go-w " + quoted([]string{path})
	}
	return ""
}

// quoted returns paths quoted for a shell.
func quoted(paths []string) string {
	var out []string
	for _, p := range paths {
		if strings.ContainsFunc(p, func(r rune) bool {
			return !strings.ContainsRune("/._-+,:@%", r) && !unicode.IsLetter(r) &&
				!unicode.IsDigit(r)
		}) {
			p = "'" + strings.ReplaceAll(p, "'", `'\''`) + "'"
		}
		out = append(out, p)
	}
	return strings.Join(out, " ")
}

// readFile reads a file of a trusted directory. It opens the file once and checks owner and mode by
// the descriptor, so that the file cannot be exchanged between the check and the read.
func readFile(root *os.Root, dir, name string) ([]byte, error) {
	return readChecked(root, dir, name, func(info fs.FileInfo) string {
		return othersWrite(info, filepath.Join(dir, name))
	})
}

// ReadWorkspace reads a policy file that can only narrow from an open directory. It must belong to
// root or one of owners, whose groups may write it, and not be writable by everyone. Else it is
// held to the rules of ReadTrusted. Parent directories are not checked.
func ReadWorkspace(dir *os.File, name string, owners ...uint32) ([]byte, error) {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return readChecked(root, dir.Name(), name, func(info fs.FileInfo) string {
		stat, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !ok || stat.Uid != 0 && !slices.Contains(owners, stat.Uid):
			return "its owner is neither you nor the owner of the directory"
		case info.Mode().Perm()&0o002 != 0:
			return fmt.Sprintf("everyone can write to it (mode %04o)", info.Mode().Perm())
		}
		return ""
	})
}

func readChecked(root *os.Root, dir, name string, bad func(fs.FileInfo) string) ([]byte, error) {
	path := filepath.Join(dir, name)
	named, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: it is no regular file but %s", path, ErrUntrusted,
			kindOf(named.Mode()))
	}
	// It may have become a FIFO, which must not block.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(named, info) || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: it was exchanged while it was opened", path, ErrUntrusted)
	}
	if why := bad(info); why != "" {
		return nil, fmt.Errorf("%s: %w: %s", path, ErrUntrusted, why)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Nlink > 1 {
		return nil, fmt.Errorf("%s: %w: it has another name (hard link)", path, ErrUntrusted)
	}
	text, err := io.ReadAll(io.LimitReader(f, syntax.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > syntax.MaxBytes {
		return nil, fmt.Errorf("%s: larger than 1 MiB", path)
	}
	return text, nil
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode.IsDir():
		return "a directory"
	}
	return "a device or socket"
}

// readDir reads each *.toml below a directory. Refused files are in the result with their errors.
// It returns nil if the directory does not exist.
func readDir(dir string) (map[string]entry, error) {
	root, err := openDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return readBelow(root, dir, "", 0)
}

func readBelow(root *os.Root, dir, prefix string, depth int) (map[string]entry, error) {
	here, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer here.Close()
	files, err := here.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	out := map[string]entry{}
	for _, f := range files {
		if f.IsDir() && depth < maxDirDepth {
			below, err := readSubdir(root, dir, f.Name(), prefix, depth)
			if err != nil {
				return nil, err
			}
			maps.Copy(out, below)
			continue
		}
		stem, ok := strings.CutSuffix(f.Name(), ".toml")
		if !ok {
			// Editors leave other files here.
			continue
		}
		e := entry{origin: filepath.Join(dir, f.Name())}
		if e.err = syntax.CheckName(prefix + stem); e.err == nil {
			e.text, e.err = readFile(root, dir, f.Name())
		}
		if e.err == nil {
			e.signature, e.err = readSignature(root, dir, f.Name())
		}
		out[prefix+stem] = e
	}
	return out, nil
}

// readSignature returns the signature of a policy file, or nil if there is none.
func readSignature(root *os.Root, dir, name string) ([]byte, error) {
	text, err := readFile(root, dir, strings.TrimSuffix(name, ".toml")+signatureSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

func readSubdir(root *os.Root, dir, name, prefix string, depth int) (map[string]entry, error) {
	path := filepath.Join(dir, name)
	sub, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	info, err := sub.Stat(".")
	if err != nil {
		return nil, err
	}
	if why := othersWrite(info, path); why != "" {
		return nil, fmt.Errorf("directory %s: %w: %s", path, ErrUntrusted, why)
	}
	return readBelow(sub, path, prefix+name+"/", depth+1)
}

// TrustDirectory returns an error if anyone but root and the caller can write or replace a
// directory.
func TrustDirectory(dir string) error {
	root, err := openDir(dir)
	if err != nil {
		return err
	}
	return root.Close()
}
