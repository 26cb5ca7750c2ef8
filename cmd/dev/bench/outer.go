package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/outer"
	"github.com/jail-sandbox/jail/policy"
)

const outerPart = "outer"

// Rows that others are compared with.
const (
	nativePlain = "API: the host's `/usr/bin/true`, no layer"
	modulePlain = "API: a trivial module, no layer"
)

// A layered is a row of the part outer: a subject, what it is compared with, and what it takes of
// memory.
type layered struct {
	*subject
	base string
	// memory starts a program that waits, and returns the PSS of all processes that there are for it.
	memory func(context.Context) (int64, error)
	bytes  int64
}

// outers measures runs without an outer layer and inside each, and bare runtimes, in turn.
func outers(ctx context.Context, bin string, rounds int, stdout, stderr io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	b := &bed{state: "daemon", bin: bin}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := errors.Join(b.makeDir(), b.plant()); err != nil {
		return err
	}
	if err := b.startDaemon(ctx); err != nil {
		return err
	}
	rows, err := b.layers(ctx)
	if err != nil {
		return err
	}
	subjects := make([]*subject, len(rows))
	for i, r := range rows {
		subjects[i] = r.subject
	}
	if err := measure(ctx, subjects, rounds, stderr); err != nil {
		return err
	}
	for _, r := range rows {
		if r.memory == nil || r.missing != "" {
			continue
		}
		if r.bytes, err = r.memory(ctx); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	if err := tellMedians(stdout, host, rounds); err != nil {
		return err
	}
	return layerTable(rows).write(stdout)
}

func layerTable(rows []*layered) *table {
	t := &table{head: []string{"what", "median", "p99", "min", "adds", "PSS, MiB", "adds"}}
	base := map[string]*layered{}
	for _, r := range rows {
		base[r.name] = r
		if r.missing != "" {
			t.add(r.name+": not measured, "+r.missing, none, none, none, none, none, none)
			continue
		}
		adds, size, more := none, none, none
		if r.bytes > 0 {
			size = mib(r.bytes)
		}
		if from := base[r.base]; from != nil && from != r {
			var added sample
			for n, took := range from.took {
				added = append(added, r.took[n]-took)
			}
			adds = millis(added.median())
			if r.bytes > 0 {
				more = mib(r.bytes - from.bytes)
			}
		}
		t.add(r.name, millis(r.took.median()), millis(r.took.percentile(99)), millis(r.took.min()), adds,
			size, more)
	}
	return t
}

// layers are the rows of the table: those of the plain jail first.
func (b *bed) layers(ctx context.Context) ([]*layered, error) {
	words := append([]string{policy.OuterNone}, names(policy.OuterLayers())...)
	missing := map[string]string{}
	runtimes := &outer.Runtimes{Dir: b.bin}
	paths := map[string]string{}
	for _, layer := range words[1:] {
		found, err := runtimes.Find(ctx, layer)
		if err == nil {
			paths[layer] = found.Path
			err = outer.Try(ctx, layer, found, outer.Host{Shim: filepath.Join(b.bin, "jail-shim"),
				Init: filepath.Join(b.bin, "jail-init"), Cgroup: "/jail"})
		}
		if err != nil {
			missing[layer] = err.Error()
		}
	}
	var rows []*layered
	for _, layer := range words {
		native, module := b.request("/usr/bin/true", nil, "small"),
			b.request(b.path("trivial.wasm"), nil, "small")
		native.Profile, native.Outer, module.Outer = "build", layer, layer
		name, moduleName := nativePlain, modulePlain
		if layer != policy.OuterNone {
			name = "API: the same `/usr/bin/true` inside " + layer
			moduleName = "API: the same module inside " + layer
		}
		waits := native
		waits.Tool, waits.Args = "/usr/bin/sleep", []string{"300"}
		rows = append(rows,
			&layered{subject: &subject{name: name, once: b.run(native), missing: missing[layer]},
				base: nativePlain, memory: func(ctx context.Context) (int64, error) {
					return b.runMemory(ctx, func(ctx context.Context) { _, _, _ = b.ask(ctx, waits, nil) })
				}},
			&layered{subject: &subject{name: moduleName, once: b.run(module), missing: missing[layer]},
				base: modulePlain})
	}
	bare, err := b.bareRuntimes(ctx, paths)
	if err != nil {
		return nil, err
	}
	for _, r := range bare {
		if why := missing[r.base]; why != "" {
			r.missing = why
		}
		r.base = bareTrue
	}
	return append(rows, bare...), nil
}

func names(all []policy.OuterLayer) (words []string) {
	for _, l := range all {
		words = append(words, l.Name)
	}
	return words
}

// bareRuntimes are the runtimes by themselves, each with a static true. The base of each is its layer.
func (b *bed) bareRuntimes(ctx context.Context, paths map[string]string) ([]*layered, error) {
	rows := []*layered{{subject: &subject{name: bareTrue, once: b.process("none", fixed("/bin/true"))},
		memory: func(ctx context.Context) (int64, error) {
			return b.treeMemory(ctx, []string{"/bin/sleep", "300"})
		}}}
	busybox := find("busybox")
	if !static(busybox) {
		return nil, errors.New("a static true, of busybox-static, is not installed")
	}
	plan, err := b.client.Plan(ctx, b.request(b.path("trivial.wasm"), nil, "small"))
	if err != nil {
		return nil, err
	}
	slice := "/jail-bench-" + strconv.Itoa(os.Getpid())
	b.undo = append(b.undo, func() error { return removeGroups(slice) }, func() error {
		// runsc leaves it mounted.
		err := syscall.Unmount(b.path(policy.OuterRunsc, "null-netns"), syscall.MNT_DETACH)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOENT) {
			return nil
		}
		return err
	})
	for _, layer := range names(policy.OuterLayers()) {
		for _, program := range []string{"true", "sleep"} {
			spec := bundleConfig(plan, slice+"/"+program)
			spec.Process.Args = []string{"/bin/" + program, "300"}
			if layer != policy.OuterRunc {
				spec.Linux.CgroupsPath, spec.Linux.Resources = "", nil
			}
			if err := b.writeBundle(layer+"-"+program, spec, busybox); err != nil {
				return nil, err
			}
		}
		row := &layered{subject: &subject{name: "`" + layer + "` by itself, a static `true`",
			once: b.process("none", func() []string { return b.bareArgs(layer, paths[layer], "true") })},
			base: layer, memory: func(ctx context.Context) (int64, error) {
				return b.treeMemory(ctx, b.bareArgs(layer, paths[layer], "sleep"))
			}}
		rows = append(rows, row)
	}
	return rows, nil
}

// bareArgs run the program of a bundle in a container of a runtime.
func (b *bed) bareArgs(layer, path, program string) []string {
	b.containers++
	id := fmt.Sprintf("bench-%d-%d", os.Getpid(), b.containers)
	bundle := b.path(layer + "-" + program)
	if layer == policy.OuterBwrap {
		root := filepath.Join(bundle, "rootfs")
		return []string{path, "--unshare-all", "--ro-bind", root, "/", "--proc", "/proc", "--",
			"/bin/" + program, "300"}
	}
	args := []string{"--root", b.path(layer)}
	adapter, err := outer.For(layer)
	if err != nil {
		return nil
	}
	switch layer {
	case policy.OuterCrun:
		args = append(args, "--cgroup-manager=disabled")
	case policy.OuterRunsc:
		args = append(args, "--platform", "systrap", "--network", "none", "--ignore-cgroups")
	}
	gated := outer.Gated(-1, adapter.Unified, path, append(args, "run", "--bundle", bundle, id))
	return append([]string{filepath.Join(b.bin, "jail-shim")}, gated[1:]...)
}

// settleTime is how long a program that waits is left alone before its memory is looked at.
const settleTime = 2 * time.Second

// runMemory returns the PSS of a run that waits: of jail-shim, of the layer, and of what is in the
// jail.
func (b *bed) runMemory(ctx context.Context, wait func(context.Context)) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wait(ctx)
	}()
	defer func() { cancel(); <-ended }()
	select {
	case <-ended:
		return 0, errors.New("a program that waits has ended")
	case <-time.After(settleTime):
	}
	for _, shim := range children(b.daemon.Process.Pid) {
		if nameOf(shim) == "jail-shim" && len(children(shim)) > 0 {
			return treePSS(shim), nil
		}
	}
	return 0, errors.New("a program that waits has no jail")
}

// treeMemory returns the PSS of a command that waits, and of all that it has started.
func (b *bed) treeMemory(ctx context.Context, args []string) (int64, error) {
	cmd, err := b.command(ctx, "none", args)
	if err != nil {
		return 0, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	time.Sleep(settleTime)
	size := treePSS(cmd.Process.Pid)
	for _, pid := range tree(cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return 0, err
	}
	return size, nil
}

// tree returns a process and all below it, the lowest first.
func tree(pid int) (all []int) {
	for _, child := range children(pid) {
		all = append(all, tree(child)...)
	}
	return append(all, pid)
}

// treePSS returns the PSS of a process and all below it. Processes with one address space, as gVisor
// has them for each process of the tool, count once: smaps_rollup shows the whole of it for each.
func treePSS(pid int) (sum int64) {
	var counted []int
	for _, p := range tree(pid) {
		if slices.ContainsFunc(counted, func(other int) bool { return sameMemory(p, other) }) {
			continue
		}
		size, err := pss(p)
		if err != nil {
			continue // it has ended
		}
		sum += size
		counted = append(counted, p)
	}
	return sum
}

// sameMemory reports whether two processes have one address space (kcmp(2)).
func sameMemory(a, b int) bool {
	// The number of the call on amd64, and KCMP_VM of linux/kcmp.h.
	const kcmp, kcmpVM = 312, 1
	order, _, errno := syscall.Syscall6(kcmp, uintptr(a), uintptr(b), kcmpVM, 0, 0, 0)
	return errno == 0 && order == 0
}
