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
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
)

const (
	manyPart    = "many"
	lastingPart = "lasting"
)

// many starts so many jails that all live at one time, and measures what memory each takes: the
// proportional set size (smaps_rollup) of its processes.
func many(ctx context.Context, bin string, jails int, stdout, stderr io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	b := &bed{state: "daemon", bin: bin, runs: jails, pool: min(jails, 8)}
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
	before, err := b.memory()
	if err != nil {
		return err
	}
	ended, err := b.hold(ctx, jails, stderr)
	if err != nil {
		return err
	}
	running, err := b.memory()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := ended(); err != nil {
		return err
	}
	took := time.Since(start)
	waiting, err := b.settled(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout,
		"%s\n\n%d jails alive at one time, each with `cat` over a shadow, waiting for input. PSS in MiB.\n\n", host, jails)
	t := &table{head: []string{"what", "processes", "all", "each"}}
	t.add("jaild, before", "1", mib(before.daemon), none)
	t.add("jaild, with them", "1", mib(running.daemon),
		mib((running.daemon-before.daemon)/int64(jails)))
	t.add("jail-shim of a running jail", strconv.Itoa(running.shims), mib(running.shim),
		mib(running.shim/int64(max(running.shims, 1))))
	t.add("jail-init of a running jail, its tool with it", strconv.Itoa(running.inits),
		mib(running.init), mib(running.init/int64(max(running.inits, 1))))
	t.add("jaild, after", "1", mib(waiting.daemon), none)
	t.add("jail-shim of a jail that waits", strconv.Itoa(waiting.shims), mib(waiting.shim),
		mib(waiting.shim/int64(max(waiting.shims, 1))))
	t.add("jail-init of a jail that waits", strconv.Itoa(waiting.inits), mib(waiting.init),
		mib(waiting.init/int64(max(waiting.inits, 1))))
	if err := t.write(stdout); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "\nThey all ended within %.1f s of the end of their input.\n",
		took.Seconds())
	return err
}

// patient is the default profile with time for all the others to start.
const patient = `policy = 1
name = "patient"
include = ["base"]
[workspace]
access = "shadow"
commit = "ask"
[tools]
allow = ["core-utils/*"]
[limits]
wall = "1h"
`

// hold starts so many runs and returns when all of them run, with what ends them.
func (b *bed) hold(ctx context.Context, jails int, progress io.Writer) (end func() error,
	err error) {
	never, input := io.Pipe()
	errs := make(chan error, jails)
	var all sync.WaitGroup
	// As many begin at one time.
	places := make(chan struct{}, 4)
	for n := range jails {
		places <- struct{}{}
		if n%100 == 0 {
			fmt.Fprintf(progress, "bench: jail %d of %d\n", n, jails)
		}
		started := make(chan struct{})
		req := b.request("cat", nil, "small")
		req.Policy, req.PolicyName = patient, "patient"
		req.ID, req.Limits = string(jail.NewID()), []string{"memory=64MiB", "workspace=16MiB",
			"workspace_files=100"}
		all.Go(func() {
			_, res, err := b.ask(ctx, req, never)
			if err == nil && res.ExitCode != 0 {
				err = fmt.Errorf("exit code %d", res.ExitCode)
			}
			errs <- err
		})
		go func() {
			defer func() { close(started); <-places }()
			// Until it is listed with its process.
			for range 3000 {
				if runs, err := b.client.Runs(ctx); err == nil {
					for _, r := range runs {
						if r.ID == req.ID && r.PID != 0 {
							return
						}
					}
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
		if len(errs) > 0 {
			break
		}
	}
	for range cap(places) {
		places <- struct{}{}
	}
	select {
	case err := <-errs:
		input.Close()
		all.Wait()
		return nil, fmt.Errorf("a run that waits for input has ended: %w", err)
	default:
	}
	return func() error {
		input.Close()
		all.Wait()
		close(errs)
		var err error
		for e := range errs {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}

// settled waits until nothing runs, and until what waits for runs is there.
func (b *bed) settled(ctx context.Context) (memory, error) {
	var m memory
	for range 300 {
		var err error
		if m, err = b.memory(); err != nil {
			return m, err
		}
		if m.inits > 0 && m.inits == m.shims && m.inits <= b.pool {
			return m, nil
		}
		select {
		case <-ctx.Done():
			return m, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return m, nil
}

// memory is the PSS of the daemon and of its jails, in bytes.
type memory struct {
	daemon, shim, init int64
	shims, inits       int
}

func (b *bed) memory() (m memory, err error) {
	daemon := b.daemon.Process.Pid
	if m.daemon, err = pss(daemon); err != nil {
		return m, err
	}
	for _, shim := range children(daemon) {
		if nameOf(shim) != "jail-shim" {
			continue
		}
		size, err := pss(shim)
		if err != nil {
			continue // it has ended
		}
		m.shim, m.shims = m.shim+size, m.shims+1
		for _, init := range children(shim) {
			if size, err := pss(init); err == nil {
				m.init, m.inits = m.init+size, m.inits+1
			}
		}
	}
	return m, nil
}

func nameOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(text))
}

func children(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, f := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(f); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

func pss(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("process %d: smaps_rollup has no Pss", pid)
}

func mib(bytes int64) string { return fmt.Sprintf("%.2f", float64(bytes)/(1<<20)) }

// lasting does so many runs, one after the other, and measures the daemon's memory on the way: what
// it keeps of a run that has ended shows as a slope.
func lasting(ctx context.Context, bin string, runs int, stdout, stderr io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	b := &bed{state: "daemon", bin: bin}
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
	once := b.run(b.request(b.path("trivial.wasm"), nil, "small"))
	t := &table{head: []string{"runs", "seconds", "daemon PSS, MiB", "descriptors", "threads"}}
	start := time.Now()
	for n := range runs + 1 {
		if n%max(runs/10, 1) == 0 {
			m, err := b.memory()
			if err != nil {
				return err
			}
			pid := b.daemon.Process.Pid
			fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			fmt.Fprintf(stderr, "bench: run %d of %d\n", n, runs)
			t.add(strconv.Itoa(n), fmt.Sprintf("%.0f", time.Since(start).Seconds()), mib(m.daemon),
				strconv.Itoa(len(fds)), strconv.Itoa(len(threads)))
		}
		// What was measured by then.
		if ctx.Err() != nil {
			runs = n
			break
		}
		if _, err := once(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout,
		"%s\n\nA daemon that did %d runs, one after the other, each in a new jail over a shadow.\n\n", host, runs)
	return t.write(stdout)
}
