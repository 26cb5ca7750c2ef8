package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const kernelPart = "kernel"

// A kernelRow is one thing that only the kernel does.
type kernelRow struct {
	name string
	// Of the namespaces that /bin/true is started in.
	flags uintptr
	once  func() (time.Duration, error)
}

// all namespaces of a jail.
const allNamespaces = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWCGROUP

// kernel measures what of a jail is the kernel's alone: the same process, /bin/true, with more and
// more of what a jail is made of. No code of jail's is in any row. What a jail takes beyond their
// sum is jail's own.
func kernel(ctx context.Context, rounds int, stdout, stderr io.Writer) error {
	_, host, err := settle(".")
	if err != nil {
		return err
	}
	groups, err := cgroupRoots()
	if err != nil {
		return err
	}
	rows := []*kernelRow{
		{name: "`/bin/true`: fork, exec, wait"},
		{name: "in a mount namespace", flags: syscall.CLONE_NEWNS},
		{name: "in a pid namespace", flags: syscall.CLONE_NEWPID},
		{name: "in a network namespace", flags: syscall.CLONE_NEWNET},
		{name: "in an ipc namespace", flags: syscall.CLONE_NEWIPC},
		{name: "in a uts and a cgroup namespace",
			flags: syscall.CLONE_NEWUTS | syscall.CLONE_NEWCGROUP},
		{name: "in a user namespace", flags: syscall.CLONE_NEWUSER},
		{name: "in all seven", flags: allNamespaces},
	}
	for _, r := range rows {
		flags := r.flags
		r.once = func() (time.Duration, error) { return trueIn(flags) }
	}
	made := fmt.Sprintf("mkdir and rmdir of a control group, %d hierarchies", len(groups))
	moved := "a process moved into it and out again, each hierarchy"
	rows = append(rows, &kernelRow{name: made, once: func() (time.Duration,
		error) {
		return groupOnce(groups, false)
	}},
		&kernelRow{name: made + ", and " + moved, once: func() (time.Duration,
			error) {
			return groupOnce(groups, true)
		}},
		&kernelRow{name: "a process moved between two control groups, after 50 ms without such a move", once: func() (time.Duration, error) { return moveOnce(groups[0], rest) }},
		&kernelRow{name: "the same move 14 ms after another was begun", once: func() (time.Duration,
			error) {
			return moveOnce(groups[0], begun)
		}},
		&kernelRow{name: "the same move right after another", once: func() (time.Duration,
			error) {
			return moveOnce(groups[0], done)
		}},
		&kernelRow{name: "fsync of 500 bytes appended to a file", once: syncOnce})
	var subjects []*subject
	for _, r := range rows {
		subjects = append(subjects, &subject{name: r.name,
			once: func(context.Context) (time.Duration, error) { return r.once() }})
	}
	if err := measure(ctx, subjects, rounds, stderr); err != nil {
		return err
	}
	load, err := loadAverage()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout,
		"%s\nLoad average at the end: %s.\n\nMedians of %d, in milliseconds: what the kernel takes, without a line of jail's.\n\n", host, load, rounds)
	t := &table{head: []string{"what", "median", "p99", "min", "more than the first"}}
	for n, s := range subjects {
		more := none
		if n > 0 && rows[n].flags != 0 {
			more = millis(s.took.median() - subjects[0].took.median())
		}
		t.add(s.name, millis(s.took.median()), millis(s.took.percentile(99)), millis(s.took.min()),
			more)
	}
	return t.write(stdout)
}

// trueIn runs /bin/true in new namespaces, until it has been waited for: the kernel takes them down
// after that, by itself.
func trueIn(flags uintptr) (time.Duration, error) {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if flags&syscall.CLONE_NEWUSER != 0 {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = ids, ids
	}
	start := time.Now()
	err := cmd.Run()
	return time.Since(start), err
}

// cgroupRoots are the mounted hierarchies of control groups, once each.
func cgroupRoots() (roots []string, err error) {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && (f[2] == "cgroup" || f[2] == "cgroup2") {
			roots = append(roots, f[1])
		}
	}
	if len(roots) == 0 {
		return nil, errors.New("no control groups are mounted")
	}
	return roots, nil
}

// groupOnce makes a group in each hierarchy and removes it. With move a process of its own goes in
// and out again meanwhile.
func groupOnce(roots []string, move bool) (took time.Duration, err error) {
	name := "jail-bench-" + strconv.Itoa(os.Getpid())
	pid := ""
	if move {
		cmd := exec.Command("/bin/sleep", "60")
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, cmd.Process.Kill()); _ = cmd.Wait() }()
		pid = strconv.Itoa(cmd.Process.Pid)
	}
	start := time.Now()
	for _, root := range roots {
		dir := filepath.Join(root, name)
		if err = os.Mkdir(dir, 0o755); err != nil {
			return 0, err
		}
		defer os.Remove(dir) // after an error
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			// A group of cpuset v1 without them takes nobody.
			if text, readErr := os.ReadFile(filepath.Join(root, file)); move && readErr == nil {
				_ = os.WriteFile(filepath.Join(dir, file), text, 0)
			}
		}
		if move {
			if err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0); err != nil {
				return 0, err
			}
		}
	}
	for _, root := range roots {
		dir := filepath.Join(root, name)
		if move {
			if err = os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(pid), 0); err != nil {
				return 0, err
			}
		}
		if err = os.Remove(dir); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// A move says what came before the one that is measured.
type move int

const (
	rest  move = iota // none for a while
	begun             // one was begun
	done              // one was done
)

// moveOnce measures one move of a process into a group. All moves of a host share one lock for
// writers, and who takes it when nobody has for a while waits for a grace period of RCU
// (percpu_down_write, kernel/cgroup/cgroup.c); who takes it right afterwards does not. So the
// difference of the two rows is RCU's.
func moveOnce(root string, before move) (took time.Duration, err error) {
	cmd := exec.Command("/bin/sleep", "60")
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	dir := filepath.Join(root, "jail-bench-move-"+strconv.Itoa(os.Getpid()))
	defer func() {
		err = errors.Join(err, cmd.Process.Kill())
		_ = cmd.Wait()
		err = errors.Join(err, os.Remove(dir))
	}()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 0, err
	}
	if before != done {
		time.Sleep(50 * time.Millisecond)
	}
	if before != rest {
		moved := make(chan error, 1)
		go func() { moved <- os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(pid), 0) }()
		if before == begun {
			time.Sleep(14 * time.Millisecond)
		} else if err := <-moved; err != nil {
			return 0, err
		}
	}
	start := time.Now()
	err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0)
	return time.Since(start), err
}

func syncOnce() (time.Duration, error) {
	f, err := os.CreateTemp("", "jail-bench-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	start := time.Now()
	if _, err = f.Write(make([]byte, 500)); err == nil {
		err = f.Sync()
	}
	return time.Since(start), err
}
