package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

func TestMain(m *testing.M) { os.Exit(cmdtest.Main(m)) }

// An engine is what starts jail-oci, with bundles of a busybox.
type engine struct {
	h *cmdtest.Host
	t *testing.T
	// runtime is jail-oci, or runc as the control.
	runtime string
	// flags are the global ones.
	flags []string
	image string
	n     int
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	h := cmdtest.NewNative(t)
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatalf("%v: sh .ci/deps test installs it", err)
	}
	e := &engine{h: h, t: t, runtime: filepath.Join(h.Bin, "jail-oci"),
		image: filepath.Join(h.Root, "image")}
	for _, dir := range []string{"bin", "tmp", "etc", "proc", "dev", "sys"} {
		if err := os.MkdirAll(filepath.Join(e.image, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(busybox)
	if err == nil {
		err = os.WriteFile(filepath.Join(e.image, "bin/busybox"), program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "cat", "id", "grep", "sleep", "mount", "mknod", "touch", "true",
		"tty", "ls", "mkdir"} {
		if err := os.Symlink("busybox", filepath.Join(e.image, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// spec asks for more than any container gets: all of root's rights, and no wall.
func (e *engine) spec(args ...string) *specs.Spec {
	caps := []string{"CAP_SYS_ADMIN", "CAP_MKNOD", "CAP_CHOWN", "CAP_DAC_OVERRIDE"}
	s := &specs.Spec{Version: specs.Version, Root: &specs.Root{Path: e.image},
		Process: &specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=/bin"},
			Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}},
		Mounts: []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=755"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts",
				Options: []string{"newinstance", "ptmxmode=0666"}}},
		Linux: &specs.Linux{}}
	for _, kind := range []specs.LinuxNamespaceType{"pid", "ipc", "uts", "mount", "network"} {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: kind})
	}
	return s
}

// bundle writes config.json, and returns a new id and the directory.
func (e *engine) bundle(s *specs.Spec) (id, dir string) {
	e.t.Helper()
	e.n++
	id = "jail-life-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(e.n)
	dir = filepath.Join(e.h.Root, id)
	text, err := json.Marshal(s)
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644)
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return id, dir
}

func (e *engine) command(args ...string) *exec.Cmd {
	root := filepath.Join(e.h.Root, "root-"+filepath.Base(e.runtime))
	return e.h.Program(e.runtime, slices.Concat([]string{"--root", root}, e.flags, args)...)
}

func (e *engine) do(args ...string) cmdtest.Outcome {
	e.t.Helper()
	return e.h.Run(e.command(args...))
}

// works is do for what must succeed, and returns its output.
func (e *engine) works(args ...string) string {
	e.t.Helper()
	o := e.do(args...)
	if o.Code != 0 {
		e.t.Fatalf("%q: %+v", args, o)
	}
	return o.Out
}

// run runs a script in a new container.
func (e *engine) run(s *specs.Spec) cmdtest.Outcome {
	e.t.Helper()
	id, dir := e.bundle(s)
	return e.do("run", "--bundle", dir, id)
}

// create makes a container whose streams go to a file, as those of an engine.
func (e *engine) create(dir, id string, flags ...string) (out string) {
	e.t.Helper()
	f, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		e.t.Fatal(err)
	}
	defer f.Close()
	cmd := e.command(slices.Concat([]string{"create", "--bundle", dir}, flags, []string{id})...)
	cmd.Stdout, cmd.Stderr = f, f
	if o := e.h.Run(cmd); o.Code != 0 {
		text, _ := os.ReadFile(f.Name())
		e.t.Fatalf("create: %d: %s", o.Code, text)
	}
	return f.Name()
}

func (e *engine) status(id string) string {
	e.t.Helper()
	var s struct{ Status string }
	if err := json.Unmarshal([]byte(e.works("state", id)), &s); err != nil {
		e.t.Fatal(err)
	}
	return s.Status
}

// record is a record of the log.
type record struct {
	Type, Container, Profile, Signal, Error string

	// Limit is a name in run.finished, a number in limit.
	Limit         any
	Dropped, Argv []string
	ExitCode      int `json:"exit_code"`
	Run           string
	Usage         struct {
		CPUMS      int64 `json:"cpu_ms"`
		MemoryPeak int64 `json:"memory_peak"`
	}
}

// records are those of the container with that id.
func (e *engine) records(id string) (all []record) {
	e.t.Helper()
	run := ""
	d := json.NewDecoder(strings.NewReader(e.h.Jail("audit", "show", "--json").Out))
	for d.More() {
		var r record
		if err := d.Decode(&r); err != nil {
			e.t.Fatal(err)
		}
		if r.Container == id {
			run = r.Run
		}
		if r.Run == run && run != "" {
			all = append(all, r)
		}
	}
	return all
}

// A daemon of jail decides for the containers of an engine, from their creation to their removal.
func TestContainers(t *testing.T) {
	e := newEngine(t)
	volume := filepath.Join(e.h.Root, "volume")
	if err := os.Mkdir(volume, 0o777); err != nil {
		t.Fatal(err)
	}
	node := fmt.Sprintf("hooks = [\"/bin/true\", \"/bin/false\"]\njoin = [\"uts\"]\n"+
		"[[volume]]\nsource = %q\naccess = \"write\"\n", volume)
	if err := os.WriteFile(filepath.Join(e.h.State, "oci.toml"), []byte(node), 0o600); err != nil {
		t.Fatal(err)
	}
	d := e.h.Daemon()
	for _, sub := range []struct {
		name string
		test func(*engine)
	}{{"life", (*engine).life}, {"walls", (*engine).walls}, {"streams", (*engine).streams},
		{"volumes", func(e *engine) { e.volumes(volume) }}, {"hostile", (*engine).hostile},
		{"links", (*engine).links}, {"modules", func(e *engine) { e.modules(volume) }},
		{"killed early", (*engine).killedEarly}, {"told", (*engine).told},
		{"systemd", (*engine).systemd}} {
		t.Run(sub.name, func(t *testing.T) {
			sub.test(&engine{h: e.h, t: t, runtime: e.runtime, image: e.image, n: e.n})
		})
		e.n += 100
	}
	d.Stop()
	t.Run("no daemon", func(t *testing.T) {
		(&engine{h: e.h, t: t, runtime: e.runtime, image: e.image, n: e.n}).alone()
	})
}

func (e *engine) life() {
	t := e.t
	id, dir := e.bundle(e.spec("sh", "-c", "echo hello; exec sleep 1000"))
	pidFile := filepath.Join(dir, "pid")
	out := e.create(dir, id, "--pid-file", pidFile)
	text, err := os.ReadFile(pidFile)
	pid, convErr := strconv.Atoi(string(text))
	if err != nil || convErr != nil {
		t.Fatal(err, convErr)
	}
	if s := e.status(id); s != "created" {
		t.Errorf("status %s", s)
	}
	if said, err := os.ReadFile(out); len(said) > 0 || err != nil {
		t.Errorf("the process has begun before start: %q, %v", said, err)
	}
	// The engine reaps the process, and not jail-oci, which has ended.
	if parent := cmdtest.ParentOf(t, pid); parent == 0 {
		t.Error("the process has no parent")
	}
	if o := e.do("exec", id, "true"); o.Code != exitNotExec {
		t.Errorf("exec before start: %+v", o)
	}
	e.works("start", id)
	if s := e.status(id); s != "running" {
		t.Errorf("status %s", s)
	}
	cmdtest.Eventually(t, "it runs", func() bool {
		said, _ := os.ReadFile(out)
		return string(said) == "hello\n"
	})
	if o := e.do("exec", id, "sh", "-c", "id -u; exit 7"); o.Code != 7 || o.Out != "0\n" {
		t.Errorf("exec: %+v", o)
	}
	if o := e.do("exec", "--user", "1000:1000", "--cwd", "/tmp", "--env", "A=b", id, "sh", "-c",
		"id -u; pwd; echo $A"); o.Out != "1000\n/tmp\nb\n" {
		t.Errorf("exec: %+v", o)
	}
	if o := e.do("exec", "--env", "PATH=/none", id, "/bin/sh", "-c", "echo $PATH"); o.Out != "/none\n" {
		t.Errorf("exec: %+v", o)
	}
	if o := e.do("exec", id, "nosuch"); o.Code != exitNotExec ||
		!strings.Contains(o.Err, `"nosuch": executable file not found in $PATH`) {
		t.Errorf("exec: %+v", o)
	}
	var pids []int
	if err := json.Unmarshal([]byte(e.works("ps", "--format", "json", id)), &pids); err != nil ||
		!slices.Equal(pids, []int{pid}) {
		t.Errorf("ps: %v, %v", pids, err)
	}
	// In a paused container a process would only wait.
	e.works("pause", id)
	if o := e.do("exec", id, "true"); o.Code != exitNotExec ||
		!strings.Contains(o.Err, "cannot exec in a paused container") {
		t.Errorf("exec in a paused container: %+v", o)
	}
	e.works("resume", id)
	if !strings.Contains(e.works("list"), id) {
		t.Error("list does not have it")
	}
	if o := e.do("delete", id); o.Code != exitFailed {
		t.Errorf("delete of what runs: %+v", o)
	}
	e.works("kill", id, "KILL")
	cmdtest.Eventually(t, "it stops", func() bool { return e.status(id) == "stopped" })
	e.works("delete", id)
	if o := e.do("state", id); o.Code != exitFailed {
		t.Errorf("state: %+v", o)
	}
	var all []record
	cmdtest.Eventually(t, "the end is on record", func() bool {
		all = e.records(id)
		return len(all) > 0 && all[len(all)-1].Type == "run.finished"
	})
	if started := all[0]; started.Type != "run.started" || started.Profile != "container" ||
		!slices.Contains(started.Dropped, "capability CAP_SYS_ADMIN") {
		t.Errorf("%+v", started)
	}
	if all[1].Type != "exec" || all[1].Argv[0] != "sh" {
		t.Errorf("%+v", all[1])
	}
	// Older kernels tell the exit code to the engine alone.
	end := all[len(all)-1]
	if end.Signal != "SIGKILL" && end.ExitCode != -1 || end.Usage.MemoryPeak == 0 {
		t.Errorf("%+v", end)
	}
	if o := e.run(e.spec("sh", "-c", "exit 5")); o.Code != 5 {
		t.Errorf("run: %+v", o)
	}
	id, dir = e.bundle(e.spec("sh", "-c", "exit 5"))
	if o := e.do("run", "--keep", "--bundle", dir, id); o.Code != 5 || e.status(id) != "stopped" {
		t.Errorf("run --keep: %+v, %s", o, e.status(id))
	}
	e.works("delete", id)
	// The kernel ends a container whose memory ran out, which is on record when run returns.
	s, memory := e.spec("sh", "-c", "x=a; while :; do x=$x$x; done"), int64(32<<20)
	s.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &memory}}
	id, dir = e.bundle(s)
	o := e.do("run", "--bundle", dir, id)
	all = e.records(id)
	if end := all[len(all)-1]; o.Code != 137 || end.Type != "run.finished" ||
		end.Limit != "memory" && end.ExitCode != -1 {
		t.Errorf("beyond the limit of memory: %+v, %+v", o, end)
	}
	if o := e.run(e.spec("nosuch")); o.Code != exitFailed ||
		!strings.Contains(o.Err, "executable file not found in $PATH") {
		t.Errorf("run of what is not there: %+v", o)
	}
}

// What stops each attempt is a layer that config.json has not asked for. runc, which asks nobody,
// lets it all happen in a container of the same bundle.
func (e *engine) walls() {
	t := e.t
	const script = `grep -E '^(CapBnd|CapEff|NoNewPrivs|Seccomp):' /proc/self/status
try() { if "$@" 2>/dev/null; then echo "yes: $*"; else echo "no: $*"; fi; }
try touch /made
try mknod /tmp/node c 1 3
try mount -t tmpfs none /tmp
try touch /proc/sys/kernel/hostname
try sh -c ': >> /proc/sys/kernel/hostname'`
	o := e.run(e.spec("sh", "-c", script))
	for _, want := range []string{`CapBnd:\t0+\n`, `CapEff:\t0+\n`, `NoNewPrivs:\t1\n`, `Seccomp:\t2\n`,
		`no: touch /made`, `no: mknod`, `no: mount`, `no: sh -c : >> /proc/sys/kernel/hostname`} {
		if !regexp.MustCompile(want).MatchString(o.Out) {
			t.Errorf("want %s in\n%s%s", want, o.Out, o.Err)
		}
	}
	// The filter of config.json holds, too, and cannot keep jail-init from its own.
	s := e.spec("sh", "-c", "mkdir /tmp/x; grep Seccomp_filters /proc/self/status")
	s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActAllow,
		Syscalls: []specs.LinuxSyscall{{Names: []string{"landlock_create_ruleset", "seccomp", "mkdir",
			"mkdirat"}, Action: specs.ActErrno}}}
	if o := e.run(s); !strings.Contains(o.Err, "Operation not permitted") ||
		!strings.Contains(o.Out, "\t2\n") {
		t.Errorf("with a filter of config.json: %+v", o)
	}
	// No descriptor leads to the host (CVE-2024-21626), and jail-init is gone (CVE-2019-5736).
	o = e.run(e.spec("sh", "-c", "ls /proc/self/fd; cat /proc/1/comm; true"))
	if want := regexp.MustCompile(`^0\n1\n2\n3\nsh\n$`); !want.MatchString(o.Out) {
		t.Errorf("descriptors: %+v", o)
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skipf("no control: %v", err)
	}
	control := *e
	control.runtime, control.n = "runc", e.n+50
	o = control.run(e.spec("sh", "-c", script))
	os.Remove(filepath.Join(e.image, "made"))
	for _, want := range []string{`NoNewPrivs:\t0\n`, `Seccomp:\t0\n`, `yes: touch /made`, `yes: mknod`,
		`yes: mount`, `yes: sh -c : >> /proc/sys/kernel/hostname`} {
		if !regexp.MustCompile(want).MatchString(o.Out) {
			t.Errorf("control: want %s in\n%s%s", want, o.Out, o.Err)
		}
	}
	os.Remove(filepath.Join(e.image, "tmp/node"))
}

// links: what a link of the image leads to is in the image, for exec, too.
func (e *engine) links() {
	t := e.t
	outside := filepath.Join(e.h.Root, "outside")
	if err := os.WriteFile(outside, []byte("#!/bin/sh\necho outside\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if o := e.h.Run(exec.Command(outside)); o.Out != "outside\n" {
		t.Fatalf("on the host: %+v", o)
	}
	up := strings.Repeat("../", 40)
	for name, target := range map[string]string{"absolute": outside, "relative": ".." + outside,
		"up": up + outside[1:], "dir": up + e.h.Root[1:], "proc": "/proc/self/fd/../exe",
		"echo": up + "bin/busybox"} {
		if err := os.Symlink(target, filepath.Join(e.image, "tmp", name)); err != nil {
			t.Fatal(err)
		}
	}
	id, dir := e.bundle(e.spec("sleep", "1000"))
	e.create(dir, id)
	e.works("start", id)
	for _, args := range [][]string{{"/tmp/absolute"}, {"/tmp/relative"}, {"/tmp/up"},
		{"/tmp/dir/outside"}, {"/" + up + outside[1:]}, {"--env", "PATH=/tmp/dir", "outside"},
		{"--cwd", "/tmp", "./up"}, {"--cwd", "/tmp/dir", "./outside"}} {
		o := e.do(slices.Concat([]string{"exec"}, args[:len(args)-1], []string{id},
			args[len(args)-1:])...)
		if o.Code == 0 || strings.Contains(o.Out, "outside\n") {
			t.Errorf("exec %q: %+v", args, o)
		}
	}
	// The working directory that a link leads to is in the image as well.
	if o := e.do("exec", "--cwd", "/tmp/dir", id, "/bin/ls"); o.Code == 0 &&
		strings.Contains(o.Out, "outside") {
		t.Errorf("a working directory outside: %+v", o)
	}
	// The control: a link that climbs as far and ends in the image.
	if o := e.do("exec", id, "/tmp/echo", "inside"); o.Out != "inside\n" {
		t.Errorf("a link in the image: %+v", o)
	}
	e.works("delete", "--force", id)
}

// moduleImage makes the image of a container that runs modules. They need no execute bit.
func (e *engine) moduleImage() string {
	e.t.Helper()
	image := filepath.Join(e.h.Root, "modules")
	if err := os.MkdirAll(filepath.Join(image, "bin"), 0o755); err != nil {
		e.t.Fatal(err)
	}
	for to, from := range map[string]string{"probe.wasm": e.h.Probe,
		"bin/toybox": filepath.Join(e.h.Bin, "bundles/core-utils/toybox.wasm"),
		"bin/native": filepath.Join(e.image, "bin/busybox")} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(image, to), text, 0o644)
		}
		if err != nil {
			e.t.Fatal(err)
		}
	}
	for _, name := range []string{"cat", "cp", "ls"} {
		if err := os.Symlink("toybox", filepath.Join(image, "bin", name)); err != nil {
			e.t.Fatal(err)
		}
	}
	return image
}

// modules: a WebAssembly module is the process of a container, run by the engine in jail-init.
func (e *engine) modules(volume string) {
	t, image := e.t, e.moduleImage()
	spec := func(args ...string) *specs.Spec {
		s := e.spec(args...)
		s.Root.Path = image
		s.Process.Env = append(s.Process.Env, "A=b")
		s.Mounts = append(s.Mounts, specs.Mount{Type: "bind", Source: volume, Destination: "/data/rw",
			Options: []string{"rbind"}}, specs.Mount{Type: "bind", Source: volume,
			Destination: "/data/ro", Options: []string{"rbind", "ro"}})
		return s
	}
	for name, target := range map[string]string{"in": "", "proc": "/proc/1/status",
		"up": strings.Repeat("../", 40) + e.h.Root[1:] + "/outside", "here": "/data/ro/in"} {
		path := filepath.Join(volume, name)
		err := os.WriteFile(path, []byte("text\n"), 0o644)
		if target != "" {
			err = errors.Join(os.Remove(path), os.Symlink(target, path))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args     []string
		code     int
		out, err string
	}{
		{args: []string{"/probe.wasm", "exit", "7"}, code: 7},
		{args: []string{"./probe.wasm", "args", "x y"}, out: "\"x y\"\n"},
		{args: []string{"/probe.wasm", "env"}, out: "PATH=/bin\nA=b\nHOME=/\nPWD=/\n"},
		{args: []string{"/probe.wasm", "both"}, out: "to stdout\n", err: "to stderr\n"},
		{args: []string{"cat", "/data/rw/in"}, out: "text\n"},
		{args: []string{"cat", "/data/rw/here"}, out: "text\n"},
		{args: []string{"cp", "/data/rw/in", "/data/rw/copy"}},
		{args: []string{"cp", "/data/rw/in", "/data/ro/copy"}, code: 1, err: "ystem"},
		// The root of the image is not written to, as with programs; a directory of it is.
		{args: []string{"cp", "/data/rw/in", "/copy"}, code: 1, err: "ermi"},
		{args: []string{"cp", "/data/rw/in", "/bin/copy"}},
		{args: []string{"cat", "/proc/1/status"}, code: 1, err: "/proc/1/status"},
		{args: []string{"cat", "/dev/null"}, code: 1, err: "/dev/null"},
		{args: []string{"cat", "/data/rw/proc"}, code: 1, err: "/data/rw/proc"},
		{args: []string{"cat", "/data/rw/up"}, code: 1, err: "/data/rw/up"},
		{args: []string{"ls", "/"}, out: "bin\ndata\nprobe.wasm\n"},
	} {
		o := e.run(spec(c.args...))
		if o.Code != c.code || o.Out != c.out || !strings.Contains(o.Err, c.err) {
			t.Errorf("%q: %+v, want %d, %q, %q", c.args, o, c.code, c.out, c.err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(volume, "copy")); string(text) != "text\n" {
		t.Errorf("written to the volume: %q, %v", text, err)
	}
	id, dir := e.bundle(spec("/probe.wasm", "spin"))
	pidFile := filepath.Join(dir, "pid")
	e.create(dir, id, "--pid-file", pidFile)
	e.works("start", id)
	// A process of a module container runs modules, and executes nothing else.
	if o := e.do("exec", "--env", "A=c", id, "/probe.wasm", "env"); o.Code != 0 ||
		!strings.Contains(o.Out, "A=c\n") {
		t.Errorf("exec: %+v", o)
	}
	if o := e.do("exec", id, "/bin/native", "true"); o.Code != exitNotExec ||
		!strings.Contains(o.Err, "not a WebAssembly module") {
		t.Errorf("exec of a program: %+v", o)
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/" + string(text) + "/status")
	for _, want := range []string{`CapEff:\t0+\n`, `NoNewPrivs:\t1\n`, `Seccomp_filters:\t[2-9]\n`} {
		if err != nil || !regexp.MustCompile(want).Match(status) {
			t.Errorf("want %s in\n%s%v", want, status, err)
		}
	}
	e.works("kill", id, "TERM")
	cmdtest.Eventually(t, "it stops", func() bool { return e.status(id) == "stopped" })
	e.works("delete", id)
	var all []record
	cmdtest.Eventually(t, "the end is on record", func() bool {
		all = e.records(id)
		return len(all) > 0 && all[len(all)-1].Type == "run.finished"
	})
	if end := all[len(all)-1]; end.ExitCode != 143 && end.ExitCode != -1 ||
		end.Usage.CPUMS == 0 || end.Usage.MemoryPeak == 0 {
		t.Errorf("%+v", end)
	}
}

// streams: a terminal goes over the socket of the engine, and descriptors are kept.
func (e *engine) streams() {
	t := e.t
	s := e.spec("sh", "-c", "tty; id -u")
	s.Process.Terminal = true
	id, dir := e.bundle(s)
	socket := filepath.Join(dir, "tty")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	master := make(chan *os.File, 1)
	go func() {
		defer close(master)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		text, oob := make([]byte, 4096), make([]byte, 64)
		_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(text, oob)
		if err != nil {
			return
		}
		all, err := syscall.ParseSocketControlMessage(oob[:n])
		if err != nil || len(all) == 0 {
			return
		}
		if fds, err := syscall.ParseUnixRights(&all[0]); err == nil {
			master <- os.NewFile(uintptr(fds[0]), "master")
		}
	}()
	e.create(dir, id, "--console-socket", socket)
	tty := <-master
	if tty == nil {
		t.Fatal("no terminal came")
	}
	defer tty.Close()
	e.works("start", id)
	said := make([]byte, 0, 100)
	for !strings.Contains(string(said), "0\r\n") {
		part := make([]byte, 100)
		n, err := tty.Read(part)
		if err != nil {
			break
		}
		said = append(said, part[:n]...)
	}
	if !strings.HasPrefix(string(said), "/dev/") {
		t.Errorf("on the terminal: %q", said)
	}
	cmdtest.Eventually(t, "it stops", func() bool { return e.status(id) == "stopped" })
	e.works("delete", id)

	id, dir = e.bundle(e.spec("sh", "-c", "cat <&3"))
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(kept)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := e.command("run", "--bundle", dir, "--preserve-fds", "1", id)
	cmd.ExtraFiles = []*os.File{f}
	if o := e.h.Run(cmd); o.Out != "kept" {
		t.Errorf("preserved descriptor: %+v", o)
	}
}

func (e *engine) volumes(volume string) {
	t := e.t
	at := func(source, target string, options ...string) specs.Mount {
		return specs.Mount{Type: "bind", Source: source, Destination: target,
			Options: append([]string{"rbind"}, options...)}
	}
	if err := os.WriteFile(filepath.Join(volume, "x"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := e.spec("sh", "-c", "echo text > /rw/made; echo text > /ro/no; /rw/x; cat /ro/made; grep /rw /proc/mounts")
	s.Mounts = append(s.Mounts, at(volume, "/rw"), at(volume, "/ro", "ro"))
	o := e.run(s)
	if !strings.Contains(o.Out, "text\n") || !regexp.MustCompile(
		`/rw \S+ rw,nosuid,nodev,noexec`).MatchString(o.Out) ||
		strings.Count(o.Err, "Read-only file system") != 1 ||
		strings.Count(o.Err, "Permission denied") != 1 {
		t.Errorf("%+v", o)
	}
	// What counts is what a link leads to.
	link := filepath.Join(volume, "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	s = e.spec("true")
	s.Mounts = append(s.Mounts, at(link, "/x", "ro"))
	e.refused(s, `mount /x of config.json: read of /etc is not granted by`)
}

// refused checks that there is no container, and one sentence that says why.
func (e *engine) refused(s *specs.Spec, want string) {
	e.t.Helper()
	id, dir := e.bundle(s)
	log := filepath.Join(dir, "log")
	o := e.do("--log", log, "--log-format", "json", "create", "--bundle", dir, id)
	if o.Code != exitFailed || !strings.Contains(o.Err, want) ||
		!regexp.MustCompile(`^jail-oci: error: [^\n]+\n(jail-oci: hint: [^\n]+\n)?$`).MatchString(o.Err) {
		e.t.Errorf("%+v\nwant %s", o, want)
	}
	var line struct{ Level, Msg string }
	text, err := os.ReadFile(log)
	if err == nil {
		err = json.Unmarshal(text, &line)
	}
	if err != nil || line.Level != "error" || !strings.Contains(line.Msg, want) {
		e.t.Errorf("log %q: %v", text, err)
	}
	if o := e.do("state", id); o.Code != exitFailed {
		e.t.Errorf("there is a container: %+v", o)
	}
}

func (e *engine) hostile() {
	for _, c := range []struct {
		name, want string
		change     func(*specs.Spec)
	}{
		{"root is a link", "is no directory, but L", func(s *specs.Spec) {
			link := filepath.Join(e.h.Root, "link")
			if err := os.Symlink("/", link); err != nil {
				e.t.Fatal(err)
			}
			s.Root.Path = link
		}},
		{"root of the host", "is the root of the host", func(s *specs.Spec) { s.Root.Path = "/" }},
		{"dots", "mount /x/../proc of config.json", func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Type: "tmpfs", Destination: "/x/../proc"})
		}},
		{"hook", `hook poststart of config.json: program "/bin/sh"`, func(s *specs.Spec) {
			s.Hooks = &specs.Hooks{Poststart: []specs.Hook{{Path: "/bin/sh"}}}
		}},
		{"profile", `containers may not have profile "build"`, func(s *specs.Spec) {
			s.Annotations = map[string]string{"jail.profile": "build"}
		}},
		{"network of the host", "namespace network is missing", func(s *specs.Spec) {
			s.Linux.Namespaces = s.Linux.Namespaces[:4]
		}},
		{"namespace of the host by its path", "namespace uts: the container would have the host's",
			joining(fmt.Sprintf("/proc/%d/ns/uts", os.Getpid()))},
		{"handler", `annotation run.oci.handler of config.json: "krun" is not supported`,
			func(s *specs.Spec) { s.Annotations = map[string]string{"run.oci.handler": "krun"} }},
		{"no module", `exec: "true": not a WebAssembly module`, func(s *specs.Spec) {
			s.Annotations = map[string]string{"run.oci.handler": "wasm"}
		}},
		{"device", "device /dev/kvm of config.json", func(s *specs.Spec) {
			s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/kvm", Type: "c", Major: 10, Minor: 232}}
		}},
	} {
		s := e.spec("true")
		c.change(s)
		e.refused(s, c.want)
	}
	// The control: a hook that the operator names.
	s := e.spec("true")
	s.Hooks = &specs.Hooks{Poststart: []specs.Hook{{Path: "/bin/true"}}}
	// One after the end that fails is a warning.
	s.Hooks.Poststop = []specs.Hook{{Path: "/bin/false"}}
	if o := e.run(s); o.Code != 0 || !strings.Contains(o.Err, "poststop") {
		e.t.Errorf("hooks of the operator's: %+v", o)
	}
	// And a namespace of others that is not the host's.
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS, Pdeathsig: syscall.SIGKILL}
	if err := other.Start(); err != nil {
		e.t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	s = e.spec("true")
	joining(fmt.Sprintf("/proc/%d/ns/uts", other.Process.Pid))(s)
	if o := e.run(s); o.Code != 0 {
		e.t.Errorf("a namespace of others: %+v", o)
	}
}

// joining has a container join a namespace of names.
func joining(path string) func(*specs.Spec) {
	return func(s *specs.Spec) {
		for i := range s.Linux.Namespaces {
			if ns := &s.Linux.Namespaces[i]; ns.Type == specs.UTSNamespace {
				ns.Path = path
			}
		}
		s.Hostname = ""
	}
}

// killedEarly: a container that was never started can be removed, and its end is on record.
func (e *engine) killedEarly() {
	id, dir := e.bundle(e.spec("true"))
	e.create(dir, id)
	e.works("delete", "--force", id)
	cmdtest.Eventually(e.t, "the end is on record", func() bool {
		all := e.records(id)
		return len(all) > 0 && all[len(all)-1].Type == "run.finished"
	})
	e.works("delete", "--force", id)
}

// told: what is not supported is refused by name, and features says the truth.
func (e *engine) told() {
	if o := e.do("checkpoint", "x"); o.Code != exitUsage ||
		!strings.Contains(o.Err, "checkpoint is not supported") {
		e.t.Errorf("%+v", o)
	}
	var f struct {
		Linux struct {
			Capabilities []string
			Namespaces   []string
		}
	}
	if err := json.Unmarshal([]byte(e.works("features")), &f); err != nil {
		e.t.Fatal(err)
	}
	if len(f.Linux.Capabilities) > 0 ||
		slices.Contains(f.Linux.Namespaces, "time") {
		e.t.Errorf("features: %+v", f)
	}
	if o := e.do("--version"); !strings.HasPrefix(o.Out, "jail-oci version ") {
		e.t.Errorf("%+v", o)
	}
}

// systemd: with --systemd-cgroup systemd makes the control group of a container, a scope with the
// limits of the plan, which every process of the container is in, and which its removal ends. Where
// systemd does not run, the flag is refused.
func (e *engine) systemd() {
	t := e.t
	memory, pids := int64(64<<20), int64(20)
	s := e.spec("sleep", "1000")
	s.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &memory},
		Pids: &specs.LinuxPids{Limit: &pids}}
	s.Annotations = map[string]string{"org.systemd.property.TasksMax": "uint64 4000"}
	e.n++
	s.Linux.CgroupsPath = fmt.Sprintf("system.slice:jailtest:%d-%d", os.Getpid(), e.n)
	unit := strings.ReplaceAll(strings.TrimPrefix(s.Linux.CgroupsPath, "system.slice:"), ":", "-") +
		".scope"
	e.flags = []string{"--systemd-cgroup"}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		e.refused(s, "--systemd-cgroup: systemd does not run on this host")
		return
	}
	id, dir := e.bundle(s)
	e.create(dir, id)
	e.works("start", id)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	further := e.command("exec", "--detach", id, "sleep", "1000")
	further.Stdout, further.Stderr = null, null
	if o := e.h.Run(further); o.Code != 0 {
		t.Fatalf("exec: %+v", o)
	}
	var all []int
	if err := json.Unmarshal([]byte(e.works("ps", "--format", "json", id)), &all); err != nil ||
		len(all) != 2 {
		t.Fatalf("ps: %v, %v", all, err)
	}
	for _, pid := range all {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil || !strings.Contains(string(text), "/system.slice/"+unit+"\n") {
			t.Errorf("process %d: %v\n%s", pid, err, text)
		}
	}
	show := func(property string) string {
		t.Helper()
		o := e.h.Run(exec.Command("systemctl", "show", "-P", property, unit))
		return strings.TrimSpace(o.Out)
	}
	for property, want := range map[string]string{"ActiveState": "active", "Delegate": "yes",
		"TasksMax": "20", "MemoryMax": strconv.FormatInt(memory, 10), "DevicePolicy": "strict"} {
		if got := show(property); got != want {
			t.Errorf("%s of the scope: %q, want %q", property, got, want)
		}
	}
	group := filepath.Join("/sys/fs/cgroup", show("ControlGroup"))
	for file, want := range map[string]int64{"memory.max": memory, "pids.max": pids} {
		text, err := os.ReadFile(filepath.Join(group, file))
		if err != nil || string(text) != fmt.Sprintln(want) {
			t.Errorf("%s: %q, %v, want %d", file, text, err, want)
		}
	}
	e.works("pause", id)
	if s := e.status(id); s != "paused" {
		t.Errorf("status %s", s)
	}
	e.works("resume", id)
	e.works("delete", "--force", id)
	if _, err := os.Stat(group); err == nil || show("ActiveState") != "inactive" {
		t.Errorf("after its removal the scope is %s, and its control group %v", show("ActiveState"), err)
	}
	started := e.records(id)[0]
	if !slices.Contains(started.Dropped, "annotation org.systemd.property.TasksMax") {
		t.Errorf("%+v", started)
	}
	// The limit holds: the kernel ends what takes more memory.
	s.Process.Args = []string{"sh", "-c", "x=a; while :; do x=$x$x; done"}
	if o := e.run(s); o.Code != 137 {
		t.Errorf("beyond the limit of memory: %+v", o)
	}
}

// alone: without jaild there is no container.
func (e *engine) alone() { e.refused(e.spec("true"), "no jaild answers at ") }
