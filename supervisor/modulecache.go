package supervisor

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/runners/wasi"
)

// moduleCache keeps the compiled forms of modules: machine code, made inside a jail of its own from a module that nobody trusts, and later
// run in other jails. An entry therefore serves only runs of the very module that it was made from, is stored where only root writes, and carries
// a seal that is checked at each use.
//
//	<dir>/secret            the key of the seals
//	<dir>/<key>/wazero-…/…  one entry, mounted read-only into the jail
//	<dir>/<key>/seal        over the entry's content, and, once that is settled, over its place, size and times
//	<dir>/lock              says which entries are in use
type moduleCache struct {
	dir     string
	secret  []byte
	machine string        // what the engine's machine code depends on besides the module
	settles time.Duration // how old a change of an entry must be for its times to count; tests have another
	most    int64         // bytes that the entries take
}

// openModuleCache opens the cache in a directory, of at most so many bytes; 0 is defaultCache.
func openModuleCache(dir string, most int64) (*moduleCache, error) {
	if most == 0 {
		most = defaultCache
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	machine, err := describeMachine()
	if err != nil {
		return nil, err
	}
	c := &moduleCache{dir: dir, machine: machine, settles: settledAfter, most: most}
	path := filepath.Join(dir, "secret")
	if c.secret, err = os.ReadFile(path); err == nil && len(c.secret) == sha256.Size {
		return c, nil
	}
	// Missing or cut short: a new secret makes every entry worthless, and each is made anew when it is needed.
	if err == nil {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	c.secret = make([]byte, sha256.Size)
	rand.Read(c.secret)
	if err := writeWhole(path, c.secret); err != nil {
		return nil, err
	}
	// Another daemon may have been faster: its secret counts.
	c.secret, err = os.ReadFile(path)
	return c, err
}

// describeMachine names the processor's features, as the kernel lists them.
func describeMachine() (string, error) {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "flags") || strings.HasPrefix(s.Text(), "Features") {
			return s.Text(), nil
		}
	}
	return "", errors.New("/proc/cpuinfo does not name the processor's features")
}

func (c *moduleCache) path(module [sha256.Size]byte) string {
	return filepath.Join(c.dir, wasi.CacheKey(module, c.machine))
}

const (
	sealName = "seal"
	unplaced = "new-" // what is being written begins with it
)

// find returns the directory of the module's compiled form, which stays there while hold is open. An entry that does not match its seal is removed and counts
// as missing.
func (c *moduleCache) find(hold *cacheHold, module [sha256.Size]byte) (dir string, ok bool, err error) {
	dir = c.path(module)
	if err := hold.keep(c, dir); err != nil {
		return dir, false, err
	}
	switch err = c.look(dir); {
	case err == nil:
		return dir, true, c.mark(dir)
	case !isUseless(err):
		return dir, false, err
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return dir, false, nil
	}
	return dir, false, c.remove(dir)
}

func (c *moduleCache) look(dir string) error {
	entry, err := c.open(dir)
	if err != nil {
		return err
	}
	defer entry.Close()
	return c.check(dir, entry)
}

// isUseless reports whether an entry is to be made anew.
func isUseless(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, wasi.ErrSeal) }

// remove takes a useless entry away, unless another run has put a new one in its place by now.
func (c *moduleCache) remove(dir string) error {
	lock, err := c.changing()
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := c.look(dir); !isUseless(err) {
		return err
	}
	return os.RemoveAll(dir)
}

// check believes an entry whose file is the one that was sealed and has not been written since: whoever could forge that could
// read the secret. Everything else of it, a copy of the state directory for one, is read again.
func (c *moduleCache) check(dir string, entry *os.File) error {
	seal, err := os.ReadFile(filepath.Join(dir, sealName))
	if err != nil {
		return err
	}
	content, stamp := seal[:min(len(seal), sha256.Size)], seal[min(len(seal), sha256.Size):]
	now, settled, err := c.stamp(dir, entry)
	if err != nil || settled && hmac.Equal(stamp, now) {
		return err
	}
	if err := wasi.CheckSeal(c.secret, filepath.Base(dir), entry, content); err != nil || !settled {
		return err
	}
	return replaceWhole(filepath.Join(dir, sealName), append(content, now...))
}

// stamp seals where a file is and when it was last changed. One that is not settled says nothing: before Linux 6.13 the kernel's times go on in steps
// of a tick, so a change that comes right after another leaves the same ones.
func (c *moduleCache) stamp(dir string, f *os.File) (stamp []byte, settled bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	st := info.Sys().(*syscall.Stat_t)
	text := fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim)
	stamp, err = wasi.Seal(c.secret, "stamp of "+filepath.Base(dir), strings.NewReader(text))
	return stamp, time.Since(time.Unix(st.Ctim.Unix())) >= c.settles, err
}

func (c *moduleCache) open(dir string) (*os.File, error) {
	found, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fs.ErrNotExist
	}
	return os.Open(found[0])
}

// entryName is what the engine calls an entry; anything else is refused, since the name comes from inside.
var entryName = regexp.MustCompile(`^wazero-[A-Za-z0-9._-]{1,80}/[0-9a-f]{64}$`)

// maxEntry bounds a compiled module, in bytes.
const maxEntry = 512 << 20

// store takes what a compiling jail wrote: a line with the entry's name, and its bytes. Others go that there is no room for any more, and so may this one
// where nobody has looked for it.
func (c *moduleCache) store(module [sha256.Size]byte, written []byte) error {
	name, entry, ok := bytes.Cut(written, []byte("\n"))
	if !ok || !entryName.Match(name) || len(entry) == 0 || len(entry) > maxEntry {
		return errors.New("the compiling jail did not write a compiled module")
	}
	dir := c.path(module)
	seal, err := wasi.Seal(c.secret, filepath.Base(dir), bytes.NewReader(entry))
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp(c.dir, unplaced)
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	path := filepath.Join(temp, string(name))
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// The jail's users read it through a read-only mount.
	if err := errors.Join(os.WriteFile(path, entry, 0o444), os.Chmod(temp, 0o755)); err != nil {
		return err
	}
	// What was written a moment ago has no stamp yet: check adds it.
	if err := os.WriteFile(filepath.Join(temp, sealName), seal, 0o400); err != nil {
		return err
	}
	lock, err := c.changing()
	if err != nil {
		return err
	}
	defer lock.Close()
	err = os.Rename(temp, dir)
	if errors.Is(err, fs.ErrExist) || err != nil && strings.Contains(err.Error(), "not empty") {
		return nil // another run was faster
	}
	return errors.Join(err, c.shrink(lock))
}

// replaceWhole puts a file in the place of another, so that nobody ever sees a part of it.
func replaceWhole(path string, content []byte) error { return replace(path, content, false) }

// replaceDurably is replaceWhole for what must outlive a power loss from then on.
func replaceDurably(path string, content []byte) error { return replace(path, content, true) }

func replace(path string, content []byte, durable bool) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "new-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(content)
	if err == nil && durable {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// writeWhole writes a file so that nobody ever sees a part of it.
func writeWhole(path string, content []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "new-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(content)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}
	err = os.Link(temp.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// limited collects at most max bytes of what a jail writes.
type limited struct {
	bytes.Buffer
	max int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > l.max {
		return 0, fmt.Errorf("more than %d bytes: %w", l.max, io.ErrShortWrite)
	}
	return l.Buffer.Write(p)
}
