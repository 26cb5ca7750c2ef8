package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/supervisor/message"
)

const soakPart = "soak"

// hangs is how long one call of a soak may take before it counts as one that hangs. It is far over
// what a call takes on a busy machine.
const hangs = 20 * time.Second

// A soakRow is one kind of call, and how its calls ended.
type soakRow struct {
	name         string
	each         int // in one round
	once         once
	took         sample
	failed, hung int
}

// soak does so many rounds of calls, one call after the other, and counts those that fail or hang.
// Then it looks for what they left behind.
func soak(ctx context.Context, bin string, rounds int, stdout, stderr io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	b := &bed{state: "daemon", bin: bin, pool: 8}
	if err := b.makeDir(); err != nil {
		return errors.Join(err, b.close())
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.plant(); err != nil {
		return err
	}
	if err := b.startDaemon(ctx); err != nil {
		return err
	}
	rows, err := b.soakRows(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		for range warmUps {
			if _, err := row.once(ctx); err != nil {
				return fmt.Errorf("%s: %w", row.name, err)
			}
		}
	}
	before, err := b.settledRests(ctx, rests{})
	if err != nil {
		return err
	}
	start := time.Now()
	for n := range rounds {
		if n%max(rounds/20, 1) == 0 {
			fmt.Fprintf(stderr, "bench: round %d of %d, %.0f s\n", n, rounds,
				time.Since(start).Seconds())
		}
		for i := range rows {
			for range rows[i].each {
				if ctx.Err() != nil {
					break
				}
				rows[i].call(ctx, stderr)
			}
		}
	}
	seconds := time.Since(start).Seconds()
	after, err := b.settledRests(context.WithoutCancel(ctx), before)
	if err != nil {
		return err
	}
	load, err := loadAverage()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\nLoad average at the end: %s. %.0f s, one call after the other.\n\n",
		host, load, seconds)
	t := &table{head: []string{"what", "calls", "failed", "hung", "median", "p99", "max"}}
	for _, row := range rows {
		t.add(row.name, strconv.Itoa(len(row.took)), strconv.Itoa(row.failed),
			strconv.Itoa(row.hung), millis(row.took.median()), millis(row.took.percentile(99)),
			millis(row.took.percentile(100)))
	}
	if err := t.write(stdout); err != nil {
		return err
	}
	fmt.Fprintln(stdout)
	t = &table{head: []string{"what is there", "before", "after"}}
	t.add("descriptors of the daemon", strconv.Itoa(before.descriptors),
		strconv.Itoa(after.descriptors))
	t.add("processes below the daemon", strconv.Itoa(before.processes),
		strconv.Itoa(after.processes))
	t.add("mounts in the daemon's namespace", strconv.Itoa(before.mounts),
		strconv.Itoa(after.mounts))
	t.add("loop devices on files of its state", strconv.Itoa(before.loops),
		strconv.Itoa(after.loops))
	t.add("empty control groups of its jails", strconv.Itoa(before.groups),
		strconv.Itoa(after.groups))
	t.add("directories of runs", strconv.Itoa(before.runs), strconv.Itoa(after.runs))
	t.add("PSS of the daemon, MiB", mib(before.pss), mib(after.pss))
	return t.write(stdout)
}

func (b *bed) soakRows(ctx context.Context) ([]soakRow, error) {
	shared, err := b.sessionCall(ctx, "default", "true", true)
	if err != nil {
		return nil, err
	}
	own, err := b.sessionCall(ctx, "default", "true", false)
	if err != nil {
		return nil, err
	}
	grep := b.request("grep", []string{"-c", "func", "FILE"}, "small")
	grep.Fate = message.FateDiscard
	return []soakRow{
		{name: "invocations of a session with a shared engine", each: 10, once: shared},
		{name: "invocations of a session, each in a jail of its own", each: 1, once: own},
		{name: "runs of `grep`, each in a fresh jail over a shadow", each: 2, once: b.run(grep)},
	}, nil
}

func (r *soakRow) call(ctx context.Context, stderr io.Writer) {
	late := time.AfterFunc(hangs, func() {
		fmt.Fprintf(stderr, "bench: %s: call %d takes more than %s\n", r.name, len(r.took), hangs)
	})
	took, err := r.once(ctx)
	if !late.Stop() {
		r.hung++
	}
	if err != nil && ctx.Err() == nil {
		r.failed++
		fmt.Fprintf(stderr, "bench: %s: call %d: %v\n", r.name, len(r.took), err)
	}
	r.took = append(r.took, took)
}

// rests are what calls may leave behind.
type rests struct {
	descriptors, processes, mounts, loops, groups, runs int
	pss                                                 int64
}

// settledRests waits for what the last call still takes away: until there is no more than before,
// or for ten seconds.
func (b *bed) settledRests(ctx context.Context, before rests) (r rests, err error) {
	for range 100 {
		if r, err = b.rests(); err != nil {
			return r, err
		}
		if before != (rests{}) && r.descriptors <= before.descriptors &&
			r.processes <= before.processes && r.groups <= before.groups {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return r, nil
}

func (b *bed) rests() (r rests, err error) {
	pid := b.daemon.Process.Pid
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return r, err
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return r, err
	}
	r.descriptors, r.mounts = len(fds), strings.Count(string(mounts), "\n")
	for below := children(pid); len(below) > 0; {
		r.processes += len(below)
		var next []int
		for _, p := range below {
			next = append(next, children(p)...)
		}
		below = next
	}
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return r, err
	}
	for _, f := range backing {
		// A device may be gone by now.
		if text, _ := os.ReadFile(f); strings.HasPrefix(string(text), b.dir) {
			r.loops++
		}
	}
	runs, err := filepath.Glob(b.path(b.state, "runs", "*"))
	if err != nil {
		return r, err
	}
	r.runs, r.groups = len(runs), emptyGroups()
	r.pss, err = pss(pid)
	return r, err
}

// emptyGroups counts the control groups of jails that hold no process. Other daemons of the machine
// have some for moments.
func emptyGroups() (n int) {
	for _, root := range []string{"/sys/fs/cgroup/unified/jail", "/sys/fs/cgroup/jail"} {
		groups, _ := filepath.Glob(filepath.Join(root, "*", "cgroup.procs"))
		for _, g := range groups {
			if text, err := os.ReadFile(g); err == nil && len(text) == 0 {
				n++
			}
		}
	}
	return n
}
