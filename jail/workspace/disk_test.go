package workspace

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const insideEnv = "JAIL_WORKSPACE_TEST_INSIDE"

// inPrivateMounts runs the test again in a mount namespace of its own, so that what it mounts is on
// no table of the host and goes with it. It reports whether this is that second run.
func inPrivateMounts(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	if os.Getenv(insideEnv) == t.Name() {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run",
		"^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.timeout", "0")
	cmd.Env = append(os.Environ(), insideEnv+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = cmd.Stdout
	must(t, cmd.Start())
	// As it comes: long forms take a while.
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(strings.TrimSpace(lines.Text()))
	}
	must(t, cmd.Wait())
	return false
}

// fileSystems are those on which commits are tried: the program that makes one, and how large it is
// at least.
var fileSystems = []struct {
	kind string
	mkfs []string
	size int64
}{
	{"ext4", []string{"mkfs.ext4", "-q", "-F", "-O", "has_journal"}, 48 << 20},
	{"xfs", []string{"mkfs.xfs", "-q", "-f"}, 320 << 20},
	{"btrfs", []string{"mkfs.btrfs", "-q", "-f"}, 160 << 20},
}

// eachFileSystem runs f on each of them as a test of its own.
func eachFileSystem(t *testing.T, f func(t *testing.T, fsys *disk)) {
	for _, k := range fileSystems {
		t.Run(k.kind, func(t *testing.T) {
			if _, err := exec.LookPath(k.mkfs[0]); err != nil {
				t.Skipf("%s is not installed", k.mkfs[0])
			}
			f(t, &disk{t: t, kind: k.kind, mkfs: k.mkfs, size: k.size})
		})
	}
}

// A disk is an image with a file system of some kind, on which there are a store and a real
// directory.
type disk struct {
	t    *testing.T
	kind string
	mkfs []string
	size int64
	dir  string // where it is mounted
}

// tempDir is one in memory where there is such a file system, since nothing of these tests is to
// outlive them.
func tempDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "jail-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	return dir
}

// make makes the file system in a file and mounts it.
func (d *disk) make() {
	d.t.Helper()
	tmp := tempDir(d.t)
	image := filepath.Join(tmp, "image")
	must(d.t, os.WriteFile(image, nil, 0o600))
	must(d.t, os.Truncate(image, d.size))
	d.command(append(d.mkfs, image)...)
	d.dir = filepath.Join(tmp, "mnt")
	must(d.t, os.Mkdir(d.dir, 0o755))
	d.command("mount", "-o", "loop", image, d.dir)
	d.t.Cleanup(func() { d.command("umount", "-l", d.dir) })
}

func (d *disk) command(args ...string) {
	d.t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		d.t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// fixture is one on the disk.
func (d *disk) fixture() *fixture {
	d.t.Helper()
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		d.t.Skip("this machine has no loop devices")
	}
	f := &fixture{t: d.t, dir: filepath.Join(d.dir, "store"), real: filepath.Join(d.dir, "real"),
		target: filepath.Join(d.dir, "target")}
	for _, dir := range []string{f.real, f.target} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			d.t.Fatal(err)
		}
	}
	var err error
	f.store, err = Open(f.dir)
	must(d.t, err)
	d.t.Cleanup(func() { f.store.Close() })
	return f
}

// A small tree and what a tool does to it: with every kind of step, and with one change that is
// held back, so that the shadow stays as often as it is committed and reverted.
func (f *fixture) faultTree() {
	f.write("edit", "gone", "both/x", "d/x", "d/y", "whole/a", "whole/b/c", "link -> edit", "mode",
		"swap/a", "file", ".git/HEAD", "closed/f")
	must(f.t, os.Link(filepath.Join(f.real, "edit"), filepath.Join(f.real, "second")))
	must(f.t, os.Chmod(filepath.Join(f.real, "closed"), 0o555))
	f.command("chown", "-hR", "1000:1000", f.real)
}

const faultScript = `echo more >>edit; rm gone; mkdir -p new/in; echo n >new/in/f; rm -r whole; rm d/x; ln -sfn d link; chmod 755 mode
	rm -r swap; echo now a file >swap; rm file; mkdir file; echo in >file/f; chmod u+w closed; echo c >closed/f; chmod 555 closed
	mkdir .git/hooks; echo h >.git/hooks/post-commit`

// faultScriptMany makes so many changes that they are synced with their file system.
const faultScriptMany = faultScript + `; for i in 1 2 3 4 5 6 7 8 9; do echo $i >d/n$i; done`

func (f *fixture) command(args ...string) {
	f.t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		f.t.Fatalf("%v: %v: %s", args, err, out)
	}
}
