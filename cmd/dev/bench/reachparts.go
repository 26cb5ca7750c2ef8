package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// middle is the median of some figures; 0 of none.
func middle(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(of))[len(of)/2]
}

// admission is the histogram of how long a request takes until its run is let in. A run claims its
// jail next.
const admission = "jail_admission_seconds_sum"

// firstInstruction returns a measurement of the time from the claim of a prewarmed jail until the
// guest's first instructions have read the clock. It is the time since the request was sent, less
// what the daemon says that it took to let the run in: so the way of the request to the daemon is
// still in it.
func (b *bed) firstInstruction() (once, error) {
	module := b.path("clock.wasm")
	if err := os.WriteFile(module, clockModule(), 0o644); err != nil {
		return nil, err
	}
	req := b.request(module, nil, "small")
	return func(ctx context.Context) (time.Duration, error) {
		before, err := b.metric(ctx, admission)
		if err != nil {
			return 0, err
		}
		var out bytes.Buffer
		start := time.Now()
		res, err := b.client.Run(ctx, req, nil, &out, &out)
		if err == nil && res.Error != nil {
			err = res.Error
		}
		if err != nil {
			return 0, err
		}
		if out.Len() != 8 {
			return 0, fmt.Errorf("exit code %d: %.500q", res.ExitCode, out.Bytes())
		}
		after, err := b.metric(ctx, admission)
		first := time.Unix(0, int64(binary.LittleEndian.Uint64(out.Bytes())))
		let := time.Duration((after - before) * float64(time.Second))
		return first.Sub(start.Round(0)) - let, err
	}, nil
}

// metric reads one series of the daemon's metrics.
func (b *bed) metric(ctx context.Context, name string) (float64, error) {
	text, err := b.client.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("the daemon has no metric %s", name)
}

// ticks is how many clock ticks /proc counts in a second.
const ticks = 100

// cpuOfTree returns the CPU time that a process and all that it has waited for have used.
func cpuOfTree(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name of the process may have spaces and brackets.
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var sum int64
	for _, field := range f[11:15] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * (time.Second / ticks), nil
}

// cpuGoals are what the processors do for one run: in its client, in the daemon and in everything
// that the daemon starts, the next prewarmed jail included.
func cpuGoals(ctx context.Context, b *bed, rounds int, progress io.Writer) ([]goal, error) {
	fmt.Fprintln(progress, "bench: CPU time")
	const most = 20 * time.Millisecond
	jail := fixed(filepath.Join(b.bin, "jail"), "run", "--", "grep", "-c", "func", "FILE")
	daemon := b.daemon.Process.Pid
	before, err := cpuOfTree(daemon)
	if err != nil {
		return nil, err
	}
	var clients, boxes time.Duration
	bwrap := find("bwrap")
	for range rounds {
		used, err := b.cpuOf(ctx, b.state, jail())
		if err != nil {
			return nil, err
		}
		clients += used
		if bwrap == "" {
			continue
		}
		used, err = b.cpuOf(ctx, "none", []string{bwrap, "--unshare-all", "--ro-bind", "/", "/",
			"--proc", "/proc", "--dev", "/dev", "/bin/grep", "-c", "func",
			b.path("small", "FILE")})
		if err != nil {
			return nil, err
		}
		boxes += used
	}
	// The last jail has been made, and what is left of the last run taken away.
	time.Sleep(time.Second)
	after, err := cpuOfTree(daemon)
	if err != nil {
		return nil, err
	}
	n := time.Duration(rounds)
	s := sample{(after - before + clients) / n}
	var peer sample
	if bwrap != "" {
		peer = sample{boxes / n}
	}
	g := beside("CPU time of one run, all processes", s, bwrapGrep, peer)
	g.limit, g.verdict = "≤ "+millis(most), judge(s.median() <= most)
	return []goal{g}, nil
}

// cpuOf runs a process and returns the CPU time that it and its children have used.
func (b *bed) cpuOf(ctx context.Context, state string, args []string) (time.Duration, error) {
	cmd, err := b.command(ctx, state, args)
	if err != nil {
		return 0, err
	}
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%w%s", err, b.said())
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// appendGoals are durable records. The peer is what the disk can do: as many lines in one write,
// into room that was there before, and one flush.
func appendGoals(ctx context.Context, dir string, progress io.Writer) (_ []goal, err error) {
	fmt.Fprintln(progress, "bench: records")
	const (
		least  = 60_000
		each   = time.Second
		line   = 420
		writes = auditWriters * line
		room   = 64 << 20
	)
	l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "log"),
		KeyDir: filepath.Join(dir, "keys")})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	plain, err := os.Create(filepath.Join(dir, "plain"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plain.Close()) }()
	if _, err := plain.Write(make([]byte, room)); err != nil {
		return nil, err
	}
	if err := plain.Sync(); err != nil {
		return nil, err
	}
	var now, peer []float64
	lines, at := make([]byte, writes), int64(0)
	for range rateRounds {
		n, err := during(each, auditWriters, func() error {
			_, err := l.Append(ctx, fileEntry(1, 1))
			return err
		})
		if err != nil {
			return nil, err
		}
		now = append(now, n)
		n, err = during(each, 1, func() error {
			if at += writes; at > room-writes {
				at = 0
			}
			_, err := plain.WriteAt(lines, at)
			return errors.Join(err, syscall.Fdatasync(int(plain.Fd())))
		})
		if err != nil {
			return nil, err
		}
		peer = append(peer, n*auditWriters)
	}
	return []goal{rateGoal("durable records a second, 16 writers", least, now,
		"the same lines, one write and flush for 16", peer)}, nil
}

// fetchFigures are the medians of one small fetch by each way.
type fetchFigures struct{ Direct, Durable, Memory time.Duration }

// figuresOnly has the bench of fetches write its figures as JSON.
const figuresOnly = "figures"

func fetchGoals(ctx context.Context, bin string, rounds int, progress io.Writer) ([]goal, error) {
	cmd := fetchtest.Command(fetchPart, "-bin", bin, "-only", figuresOnly, "-n",
		strconv.Itoa(rounds))
	cmd.Stderr = progress
	text, err := cmd.Output()
	var f fetchFigures
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		return nil, fmt.Errorf("fetches: %w", err)
	}
	added := func(what string, took, most time.Duration) goal {
		g := beside(what, sample{took - f.Direct}, "direct fetch", sample{f.Direct})
		g.limit, g.verdict = "≤ "+millis(most), judge(took-f.Direct <= most)
		return g
	}
	return []goal{
		added("a fetch takes more than a direct one, its intent durable", f.Durable,
			450*time.Microsecond),
		added("the same, the log in memory", f.Memory, 300*time.Microsecond),
	}, nil
}
