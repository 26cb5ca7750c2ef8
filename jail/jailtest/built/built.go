// Package built builds the programs that tests start. Only tests import it.
package built

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// unused is the age at which a kept program is removed.
const unused = 24 * time.Hour

// Program calls go build with args, the last of which is an import path, and with env beside the
// environment. It writes the program to path, where every user can execute it. The programs of the
// tests of all packages are kept in the user's cache directory: go links a program again only where
// its sources have changed.
func Program(path string, env []string, args ...string) error {
	root := Tree()
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "jail-test-programs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// Builds take turns, also those of other processes.
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	key := sha256.Sum256(fmt.Append(nil, root, env, args))
	kept := filepath.Join(dir, fmt.Sprintf("%x", key[:10]))
	cmd := exec.Command("go", append([]string{"build", "-buildvcs=false", "-trimpath", "-o", kept},
		args...)...)
	// The compilers take a quarter less processor time where they collect garbage less often.
	cmd.Dir, cmd.Env = root, append(append(os.Environ(), "GOGC=400"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build of %s: %w\n%s", args[len(args)-1], err, out)
	}
	return errors.Join(removeUnused(dir), copyTo(path, kept))
}

// Tree returns the path of a file of the source tree, in which the tests run.
func Tree(elem ...string) string {
	root, err := os.Getwd()
	for err == nil && root != "/" {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Dir(root)
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

// removeUnused removes the programs that no test has asked for in a day. go build sets the time of a
// program that has not changed.
func removeUnused(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, infoErr := e.Info()
		if infoErr == nil && e.Name() != "lock" && time.Since(info.ModTime()) > unused {
			infoErr = os.Remove(filepath.Join(dir, e.Name()))
		}
		err = errors.Join(err, infoErr)
	}
	return err
}

// copyTo copies a program. A test may change its copy.
func copyTo(path, program string) error {
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Chmod(0o755), to.Close())
}
