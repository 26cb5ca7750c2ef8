package policies

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// Rewrite applies an edit to a policy file atomically.
func Rewrite(path string, edit syntax.Edit) error {
	text, err := Read(path)
	if err != nil {
		return err
	}
	after, err := edit.Apply(text)
	if err != nil {
		return exit.Usage("write it by hand", "%s: %v", path, err)
	}
	return Write(path, string(after), true)
}

// Write writes a policy file atomically. An existing file must be a regular one, and is replaced
// only if over is set.
func Write(path, text string, over bool) error {
	mode := fs.FileMode(0o644)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return readError(path, err)
	case !info.Mode().IsRegular():
		return exit.Usage("name the file itself", "%s is no regular file", path)
	case !over:
		return exit.Usage("--force replaces it", "%s exists", path)
	default:
		mode = info.Mode().Perm()
	}
	if err := atomicfile.Write(path, []byte(text), mode, atomicfile.Durable); err != nil {
		return exit.About(err, "%s", path)
	}
	return nil
}

// Read reads a policy file of at most syntax.MaxBytes, which must be UTF-8.
func Read(path string) ([]byte, error) {
	// O_NONBLOCK keeps a stray FIFO from blocking. A FIFO that a shell passes is in /dev/fd.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, readError(path, err)
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, readError(path, err)
	case info.IsDir():
		return nil, exit.Usage("name a file in it", "policy %s: it is a directory", path)
	case info.Mode()&fs.ModeNamedPipe != 0 && !strings.HasPrefix(path, "/dev/") &&
		!strings.HasPrefix(path, "/proc/"):
		return nil, exit.Usage("put the policy into a file, or hand it over as /dev/stdin",
			"policy %s: it is a FIFO", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, syntax.MaxBytes+1))
	switch {
	case err != nil:
		return nil, readError(path, err)
	case len(text) > syntax.MaxBytes:
		return nil, exit.Usage("", "policy %s: larger than %s", path, output.Size(syntax.MaxBytes))
	case !utf8.Valid(text):
		return nil, exit.Usage("", "policy %s: it is not UTF-8", path)
	}
	return text, nil
}

func readError(path string, err error) error {
	e := exit.About(err, "policy %s", path)
	if errors.Is(err, fs.ErrNotExist) {
		e.Hint = "jail profile list shows the profiles; a file is named by its path from here"
	}
	return e
}
