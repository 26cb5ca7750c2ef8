package review_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/workspace"
)

// A cacheHost is a host whose runs have caches.
type cacheHost struct{ *cmdtest.Host }

func newCacheHost(t *testing.T) cacheHost { return cacheHost{cmdtest.New(t)} }

// cachedPolicy writes a policy of programs of the host with a cache at /cache.
func (h cacheHost) cachedPolicy(name, size, more string) string {
	h.T.Helper()
	file := filepath.Join(h.Root, name+".toml")
	text := "policy = 1\nname = \"" + name + "\"\nabout = \"x\"\ninclude = [\"build\"]\n" +
		"[[mount]]\ntarget = \"/cache\"\naccess = \"cache\"\nname = \"things\"\nsize = \"" + size +
		"\"\n" + more
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		h.T.Fatal(err)
	}
	return file
}

// dropCaches removes all caches, as what a test leaves behind is an error.
func (h cacheHost) dropCaches() {
	h.T.Helper()
	for _, c := range h.idleCaches() {
		h.Wants(h.Jail("cache", "rm", c.ID), 0, "")
	}
}

// idleCaches are the caches once the jails that had them have gone. A run answers before its jail
// has.
func (h cacheHost) idleCaches() (all []workspace.CacheInfo) {
	h.T.Helper()
	cmdtest.Eventually(h.T, "no cache is in use", func() bool {
		all = h.caches()
		return !slices.ContainsFunc(all, func(c workspace.CacheInfo) bool { return c.InUse })
	})
	return all
}

// caches are those that jail cache list shows.
func (h cacheHost) caches() (all []workspace.CacheInfo) {
	h.T.Helper()
	o := h.Jail("cache", "list", "--json")
	h.Wants(o, 0, "")
	if err := json.Unmarshal([]byte(o.Out), &all); err != nil {
		h.T.Fatalf("%v: %s", err, o.Out)
	}
	return all
}

// A cache is kept for runs and sessions of one user and one profile, and nothing of it is seen
// where anything of that differs.
func TestCacheApart(t *testing.T) {
	h := newCacheHost(t)
	h.Daemon().Admit()
	mine := h.cachedPolicy("mine", "4MiB", "")
	// Files are compared by their names alone where the target is the same.
	show := []string{"--", "sh", "-c", "cat /cache/left 2>/dev/null || echo nothing"}
	h.Wants(h.Jail("run", "--policy", mine, "--id", "first", "--", "sh", "-c",
		"echo poison > /cache/left"), 0, "")
	if r := h.Result("--policy", mine, "--", "sh", "-c", "cat /cache/left"); string(
		r.Stdout) != "poison\n" || r.Workspace != "discarded" || r.Changes.Added != 0 {
		t.Errorf("the next run: %q, workspace %s, %+v", r.Stdout, r.Workspace, r.Changes)
	}
	all := h.idleCaches()
	if len(all) != 1 || all[0].Name != "things" || all[0].UID != 0 || all[0].Size != 4<<20 ||
		all[0].Disk == 0 || all[0].Disk > 6<<20 {
		t.Fatalf("caches %+v", all)
	}
	if logged := h.Jail("audit", "query", "--run", "first", "--json"); !strings.Contains(
		logged.Out, `"caches":["/cache from cache things `+all[0].ID+`"]`) {
		t.Errorf("the record of the start does not name the cache: %+v", logged)
	}

	elsewhere, narrowed := filepath.Join(h.Root, "elsewhere"), filepath.Join(h.Root, "narrowed")
	own := filepath.Join(h.Root, "own")
	for _, dir := range []string{elsewhere, narrowed, own} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.Wants(h.Jail("plan", "--policy", mine, "--", "sh"), 0, "")
	if err := os.Chown(own, cmdtest.Stranger, cmdtest.Stranger); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(narrowed, ".jail.toml"),
		[]byte("policy = 1\n[syscalls]\ngroups = [\"native\"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	session := h.Session("--policy", mine)
	wants := func(what, out, want string) {
		t.Helper()
		if strings.TrimSpace(out) != want {
			t.Errorf("%s sees %q, want %q", what, out, want)
		}
	}
	wants("an invocation", h.Exec(session, show...).Out, "poison")
	h.StopSession(session, 0)
	run := func(flags ...string) string {
		t.Helper()
		o := h.Jail(append(append([]string{"run"}, flags...), show...)...)
		h.Wants(o, 0, "")
		return o.Out
	}
	wants("a run with a lower limit", run("--policy", mine, "--limit", "wall=1m"), "poison")
	wants("another directory of the user", run("--policy", mine, "--workspace", elsewhere),
		"poison")
	wants("another profile", run("--policy", h.cachedPolicy("other", "4MiB", "")), "nothing")
	wants("a directory that narrows the policy", run("--policy", mine, "--workspace", narrowed),
		"nothing")
	wants("the tool of another owner's directory", run("--policy", mine, "--workspace", own),
		"nothing")
	wants("a run that asks for less", run("--policy", mine, "--no-workspace"), "nothing")
	o := h.Run(cmdtest.As(h.Command(append([]string{"run", "--policy", mine, "--workspace", own},
		show...)...), cmdtest.Stranger))
	wants("another user", o.Out, "nothing")
	h.cachedPolicy("mine", "4MiB", "[env]\npass = [\"CACHED_*\"]\n")
	wants("the changed profile", run("--policy", mine), "nothing")
	h.cachedPolicy("mine", "4MiB", "")
	wants("the profile as it was", run("--policy", mine), "poison")

	listed := h.Run(cmdtest.As(h.Command("cache", "list", "--json"), cmdtest.Stranger))
	var theirs []workspace.CacheInfo
	if err := json.Unmarshal([]byte(listed.Out), &theirs); err != nil || len(theirs) != 1 ||
		theirs[0].UID != cmdtest.Stranger {
		t.Errorf("the other user's list: %v, %+v", err, theirs)
	}
	h.Wants(h.Run(cmdtest.As(h.Command("cache", "rm", all[0].ID), cmdtest.Stranger)), 127,
		"there is no cache")
	h.idleCaches()
	h.Wants(h.Jail("cache", "rm", all[0].ID), 0, "")
	h.Wants(h.Jail("cache", "rm", all[0].ID), 127, "there is no cache")
	wants("a run after the removal", run("--policy", mine), "nothing")
	h.dropCaches()
}

// Modules have caches, too.
func TestCacheOfModules(t *testing.T) {
	h := newCacheHost(t)
	h.Daemon()
	file := filepath.Join(h.Root, "modules.toml")
	text := "policy = 1\nname = \"modules\"\nabout = \"x\"\ninclude = [\"default\"]\n[[mount]]\n" +
		"target = \"/cache\"\naccess = \"cache\"\nname = \"things\"\nsize = \"4MiB\"\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("sh", "--policy", file, "-c", "echo kept > /cache/left"), 0, "")
	if o := h.Jail("run", "--policy", file, "--", "cat", "/cache/left"); o.Out != "kept\n" {
		t.Errorf("%+v", o)
	}
	id := h.Session("--policy", file, "--shared-engine")
	for range 2 {
		if o := h.Exec(id, "--", "cat", "/cache/left"); o.Out != "kept\n" {
			t.Errorf("%+v", o)
		}
	}
	h.Wants(h.Jail("cache", "rm", h.caches()[0].ID), 125, "the cache is in use")
	h.StopSession(id, 0)
	h.dropCaches()
}

// A cache takes its size and no more: the tool has ENOSPC, and the result names the limit.
func TestCacheLimit(t *testing.T) {
	h := newCacheHost(t)
	h.Daemon()
	fill := []string{"--", "dd", "if=/dev/zero", "of=/cache/much", "bs=65536", "count=64"}
	full := h.Result(append([]string{"--policy",
		h.cachedPolicy("small", "2MiB", "")}, fill...)...)
	if full.ExitCode != 1 || !strings.Contains(string(full.Stderr), "No space left on device") ||
		full.Limit == nil || full.Limit.Name != "cache" || full.Limit.Limit != 2<<20 {
		t.Errorf("a full cache: code %d, limit %+v: %s", full.ExitCode, full.Limit, full.Stderr)
	}
	control := h.Result(append([]string{"--policy",
		h.cachedPolicy("large", "8MiB", "")}, fill...)...)
	if control.ExitCode != 0 || control.Limit != nil {
		t.Errorf("control: code %d, limit %+v: %s", control.ExitCode, control.Limit,
			control.Stderr)
	}
	for _, c := range h.caches() {
		if c.Disk > c.Size+1<<20 {
			t.Errorf("cache %s takes %d bytes of %d", c.Profile, c.Disk, c.Size)
		}
	}
	h.dropCaches()
}

// What a tool plants in a cache leads nowhere outside: not the next tool, and not the daemon.
func TestCachePlantedLinks(t *testing.T) {
	h := newCacheHost(t)
	h.Daemon()
	secret := filepath.Join(h.Root, "secret")
	if err := os.WriteFile(secret, []byte("top secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	file := h.cachedPolicy("mine", "4MiB", "")
	h.Wants(h.Jail("run", "--policy", file, "--", "sh", "-c", "cd /cache && ln -s "+secret+
		" way && ln -s / root && ln -s ../../../../../../.. up && ln -s "+h.Root+" lost+found &&"+
		" mkdir upper && ln -s "+secret+" upper/upper && cp /bin/sh sh && chmod 6755 sh"), 0, "")
	for _, path := range []string{"way", "root" + secret, "up" + secret, "lost+found/secret",
		"upper/upper", "../pad/blocks"} {
		o := h.Jail("run", "--policy", file, "--", "sh", "-c", "cat /cache/"+path)
		if o.Code == 0 || strings.Contains(o.Out, "secret") {
			t.Errorf("%s: %+v", path, o)
		}
		o = h.Jail("run", "--policy", file, "--", "sh", "-c", "echo changed > /cache/"+path)
		if o.Code == 0 {
			t.Errorf("write %s: %+v", path, o)
		}
	}
	// Control: the same link inside leads to what the jail has.
	h.Wants(h.Jail("run", "--policy", file, "--", "sh", "-c", "test -e /cache/root/usr/bin"), 0, "")
	h.Wants(h.Jail("run", "--policy", file, "--", "/cache/sh", "-c", "true"), 126, "")
	h.dropCaches()
	if text, err := os.ReadFile(secret); err != nil || string(text) != "top secret" {
		t.Errorf("%v: %q", err, text)
	}
}

// Runs that use one cache at one time see one file system.
func TestCacheParallel(t *testing.T) {
	h := newCacheHost(t)
	h.Daemon()
	file := h.cachedPolicy("mine", "8MiB", "")
	var runs sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		runs.Go(func() {
			if o := h.Jail("run", "--policy", file, "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do "+
				"echo "+name+" > /cache/"+name+"$i; done; sync"); o.Code != 0 {
				t.Errorf("%+v", o)
			}
		})
	}
	runs.Wait()
	o := h.Jail("run", "--policy", file, "--", "sh", "-c", "cat /cache/* | sort | uniq -c")
	if strings.Join(strings.Fields(o.Out), " ") != "8 a 8 b 8 c 8 d" {
		t.Errorf("%+v", o)
	}
	h.dropCaches()
}

// A cache whose daemon was killed in the middle of a write is as usable as before. One that was
// mounted when the host went down is begun anew.
func TestCacheKilledDaemon(t *testing.T) {
	h := newCacheHost(t)
	d := h.Daemon()
	file := h.cachedPolicy("mine", "8MiB", "")
	h.Wants(h.Jail("run", "--policy", file, "--no-workspace", "--", "sh", "-c",
		"echo whole > /cache/left"), 0, "")
	writer := h.Command("run", "--policy", file, "--no-workspace", "--", "sh", "-c",
		"echo x > /cache/more; echo begun; while :; do echo x >> /cache/more; done")
	out, err := writer.StdoutPipe()
	if err == nil {
		err = writer.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	d.Kill()
	_ = writer.Wait()
	h.Daemon()
	o := h.Jail("run", "--policy", file, "--no-workspace", "--", "sh", "-c",
		"cat /cache/left && echo more >> /cache/left && test -s /cache/more")
	if h.Wants(o, 0, ""); o.Out != "whole\n" {
		t.Errorf("after the kill: %+v", o)
	}
	cache := h.caches()[0]
	image := filepath.Join(h.State, "state", "workspaces", ".cache-"+cache.ID, "upper.img")
	for begun := time.Now(); h.caches()[0].InUse; time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal("the cache stays in use")
		}
	}
	unclean, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The field s_state of the superblock of ext4.
	_, err = unclean.WriteAt([]byte{0, 0}, 1024+0x3a)
	unclean.Close()
	if err != nil {
		t.Fatal(err)
	}
	o = h.Jail("run", "--policy", file, "--no-workspace", "--", "sh", "-c",
		"ls -A /cache; echo new > /cache/left")
	if h.Wants(o, 0, ""); o.Out != "" {
		t.Errorf("after the host went down: %+v", o)
	}
	h.dropCaches()
}

// Bad input has one sentence with its place.
func TestCacheRefused(t *testing.T) {
	h := newCacheHost(t)
	h.Daemon()
	const at = "target = \"/cache\"\naccess = "
	for text, want := range map[string]string{
		at + "\"cache\"\nsize = \"1MiB\"":                                  "name of the cache is missing",
		at + "\"cache\"\nname = \"a\"":                                     "size of the cache is missing",
		at + "\"cache\"\nname = \"../a\"\nsize = \"1MiB\"":                 "name \"../a\" of a cache is not",
		at + "\"cache\"\nname = \"a\"\nsize = \"1KiB\"":                    "the least is 1MiB",
		at + "\"tmpfs\"\nname = \"a\"":                                     "is for access = \"cache\" alone",
		at + "\"tmpfs\"\nsize = \"1MiB\"":                                  "is for access = \"cache\" alone",
		at + "\"cache\"\nsource = \"/usr\"\nname = \"a\"\nsize = \"1MiB\"": "no meaning for a cache",
	} {
		file := filepath.Join(h.Root, "bad.toml")
		if err := os.WriteFile(file, []byte("policy = 1\nname = \"bad\"\nabout = \"x\"\n"+
			"include = [\"build\"]\n[[mount]]\n"+text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if o := h.Jail("run", "--policy", file, "--", "true"); o.Code == 0 || !strings.Contains(o.Err,
			want) {
			t.Errorf("%s: %+v", text, o)
		}
	}
}
