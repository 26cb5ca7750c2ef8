package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const agentsPart = "agents"

// Agents that are measured.
const (
	// registeredAgents are registered when jail-agentd starts.
	registeredAgents = 100_000
	// togetherAgents work at one time.
	togetherAgents = 100
)

// agentBed is a jail-agentd with a state directory of its own.
type agentBed struct {
	bin, dir, module string
	cmd              *exec.Cmd
	*agentapi.Client
}

// agentPolicy is that of the agents: what a small module needs.
const agentPolicy = "policy = 1\nname = \"bench-agent\"\ninclude = [\"agent\"]\n"

func newAgentBed(ctx context.Context, bin string) (*agentBed, error) {
	dir, err := os.MkdirTemp("", "jail-bench-")
	if err != nil {
		return nil, err
	}
	b := &agentBed{bin: bin, dir: dir, module: filepath.Join(dir, "counter.wasm"),
		Client: agentapi.NewClient(filepath.Join(dir, "agentd.sock"))}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o",
		b.module, "./cmd/testdata/counter")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("go build: %w\n%s", err, out), os.RemoveAll(dir))
	}
	return b, nil
}

// start starts jail-agentd and returns how long it took to answer.
func (b *agentBed) start(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	b.cmd = exec.CommandContext(ctx, filepath.Join(b.bin, "jail-agentd"), "--state", b.dir)
	if err := b.cmd.Start(); err != nil {
		return 0, err
	}
	for {
		// The answer names an agent that is not there.
		_, err := b.Agent(ctx, "none")
		if p, ok := errors.AsType[*problem.Error](err); ok && p.Code == problem.NotFound {
			return time.Since(begun), nil
		}
		if ctx.Err() != nil || time.Since(begun) > time.Minute {
			return 0, fmt.Errorf("jail-agentd does not answer: %w", err)
		}
		time.Sleep(time.Millisecond)
	}
}

func (b *agentBed) stop() error {
	if b.cmd == nil || b.cmd.Process == nil {
		return nil
	}
	err := b.cmd.Process.Signal(syscall.SIGTERM)
	// It ends by the signal, or as it was asked to.
	_ = b.cmd.Wait()
	b.cmd = nil
	return err
}

func (b *agentBed) close() error {
	err := b.stop()
	// The daemon that jail-agentd started ends by itself, and uses the directory until then.
	for range 300 {
		if e := os.RemoveAll(b.dir); e == nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// write makes the directory of an agent.
func (b *agentBed) write(dir, name, more string, module bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("agent = 1\ntype = \"agent\"\nname = %q\ncapabilities = { storage = true }\n"+
		"policy = \"policy.toml\"\n", name)
	if module {
		text += "module = \"counter.wasm\"\n"
		if err := os.Link(b.module, filepath.Join(dir, "counter.wasm")); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			return err
		}
	} else {
		text += "module = \"python/python3\"\n"
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "agent.toml"), []byte(text+more), 0o644),
		os.WriteFile(filepath.Join(dir, "policy.toml"), []byte(agentPolicy), 0o644))
}

func (b *agentBed) install(ctx context.Context, name, more string) error {
	dir := filepath.Join(b.dir, "source", name)
	if err := b.write(dir, name, more, true); err != nil {
		return err
	}
	_, err := b.Add(ctx, dir)
	return err
}

// event sends an event, and returns how long it took to be committed.
func (b *agentBed) event(ctx context.Context, name string) (time.Duration, error) {
	begun := time.Now()
	sent, err := b.Send(ctx, name, agentapi.Send{Content: json.RawMessage(`"x"`), WaitMS: 60_000})
	if err == nil && sent.State != agentapi.Committed {
		err = fmt.Errorf("the event of agent %q is %s: %s", name, sent.State, sent.Error)
	}
	return time.Since(begun), err
}

// state waits until an instance is in a state, or its inbox is empty with "".
func (b *agentBed) state(ctx context.Context, name, state string) (agentapi.Instance, error) {
	for {
		a, err := b.Status(ctx, name)
		if err != nil {
			return agentapi.Instance{}, err
		}
		i := a.Instances[0]
		if state == "" && i.Waiting == 0 || i.State == state {
			return i, nil
		}
		if i.State == agentapi.Failed {
			return i, fmt.Errorf("agent %q has failed: %s", name, i.Error)
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return i, ctx.Err()
		}
	}
}

// checkpoints measures how many events a second agents commit that have each so many waiting.
func (b *agentBed) checkpoints(ctx context.Context, names []string, each int) (float64, error) {
	var work sync.WaitGroup
	failures := make(chan error, len(names))
	for _, name := range names {
		if err := b.Pause(ctx, name); err != nil {
			return 0, err
		}
		work.Go(func() {
			for range each {
				if _, err := b.Send(ctx, name, agentapi.Send{
					Content: json.RawMessage(`"x"`)}); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	work.Wait()
	select {
	case err := <-failures:
		return 0, err
	default:
	}
	begun := time.Now()
	for _, name := range names {
		if err := b.Resume(ctx, name); err != nil {
			return 0, err
		}
	}
	for _, name := range names {
		if _, err := b.state(ctx, name, ""); err != nil {
			return 0, err
		}
	}
	return float64(each*len(names)) / time.Since(begun).Seconds(), nil
}

// agentFigures measures agents: from an event to its commit, asleep and awake, events a second, and
// what many agents that sleep cost.
func agentFigures(ctx context.Context, bin string, rounds, registered int, stdout,
	progress io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	b, err := newAgentBed(ctx, bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if _, err := b.start(ctx); err != nil {
		return err
	}
	t := table{head: []string{"agents", "median", "p99"}}
	if err := b.latencies(ctx, rounds, &t, progress); err != nil {
		return err
	}
	if err := b.rates(ctx, &t, progress); err != nil {
		return err
	}
	if err := b.asleep(ctx, registered, &t, progress); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\n\n", host)
	if err := t.write(stdout); err != nil {
		return err
	}
	load, err := loadAverage()
	fmt.Fprintf(stdout, "\nThe agent is a Go module (wasip1) that writes a row for each event. Load "+
		"average at the end: %s.\n", load)
	return err
}

func (b *agentBed) latencies(ctx context.Context, rounds int, t *table, progress io.Writer) error {
	fmt.Fprintln(progress, "bench: events of one agent")
	if err := b.install(ctx, "sleeper", "[wake]\nidle = \"100ms\"\n"); err != nil {
		return err
	}
	if err := b.install(ctx, "awake", "[wake]\nidle = \"10m\"\n"); err != nil {
		return err
	}
	var asleep, awake sample
	for n := range rounds + 1 {
		slow, err := b.event(ctx, "sleeper")
		if err != nil {
			return err
		}
		if _, err := b.state(ctx, "sleeper", agentapi.Dormant); err != nil {
			return err
		}
		fast, err := b.event(ctx, "awake")
		if err != nil {
			return err
		}
		// The first ones compile the module.
		if n > 0 {
			asleep, awake = append(asleep, slow), append(awake, fast)
		}
	}
	t.add("dormant agent, from send to commit", millis(asleep.median())+" ms",
		millis(asleep.percentile(99))+" ms")
	t.add("awake agent, from send to commit", millis(awake.median())+" ms",
		millis(awake.percentile(99))+" ms")
	i, err := b.state(ctx, "awake", agentapi.Active)
	t.add("memory of an awake agent, its peak", fmt.Sprintf("%.1f MiB",
		float64(i.Memory)/(1<<20)), none)
	return err
}

func (b *agentBed) rates(ctx context.Context, t *table, progress io.Writer) error {
	fmt.Fprintln(progress, "bench: events a second")
	const each = 5000
	for batch, what := range map[int]string{1: "events a second of one agent, singly",
		64: "events a second of one agent, in batches of 64"} {
		name := fmt.Sprintf("batch%d", batch)
		if err := b.install(ctx, name, fmt.Sprintf("[wake]\nidle = \"1m\"\nbatch = %d\n",
			batch)); err != nil {
			return err
		}
		if _, err := b.event(ctx, name); err != nil {
			return err
		}
		rate, err := b.checkpoints(ctx, []string{name}, each)
		if err != nil {
			return err
		}
		t.add(what, fmt.Sprintf("%.0f", rate), none)
	}
	var names []string
	for n := range togetherAgents {
		name := fmt.Sprintf("together%d", n)
		names = append(names, name)
		if err := b.install(ctx, name, "[wake]\nidle = \"1m\"\n"); err != nil {
			return err
		}
	}
	for _, name := range names {
		if _, err := b.event(ctx, name); err != nil {
			return err
		}
	}
	rate, err := b.together(ctx, names, 100)
	t.add(fmt.Sprintf("events a second of %d awake agents, from send to commit", togetherAgents),
		fmt.Sprintf("%.0f", rate), none)
	return err
}

// together measures how many events a second agents commit that are awake, while each gets so many.
func (b *agentBed) together(ctx context.Context, names []string, each int) (float64, error) {
	begun := time.Now()
	failures := make(chan error, len(names))
	for _, name := range names {
		go func() {
			var err error
			for n := 0; n < each && err == nil; n++ {
				_, err = b.Send(ctx, name, agentapi.Send{Content: json.RawMessage(`"x"`)})
			}
			if err == nil {
				_, err = b.state(ctx, name, "")
			}
			failures <- err
		}()
	}
	var err error
	for range names {
		err = errors.Join(err, <-failures)
	}
	return float64(each*len(names)) / time.Since(begun).Seconds(), err
}

// asleep measures the disk that a dormant agent takes, and jail-agentd with many agents.
func (b *agentBed) asleep(ctx context.Context, registered int, t *table,
	progress io.Writer) error {
	fmt.Fprintf(progress, "bench: %d registered agents\n", registered)
	if _, err := b.state(ctx, "sleeper", agentapi.Dormant); err != nil {
		return err
	}
	disk, err := diskOf(filepath.Join(b.dir, "agentd", "state", "agent-sleeper-main"))
	if err != nil {
		return err
	}
	t.add("database of a dormant agent", fmt.Sprintf("%d KiB", disk>>10), none)
	if err := b.stop(); err != nil {
		return err
	}
	for n := range registered {
		name := fmt.Sprintf("many%d", n)
		if err := b.write(filepath.Join(b.dir, "agents", name), name, "", false); err != nil {
			return err
		}
	}
	// The first start registers them.
	if _, err := b.start(ctx); err != nil {
		return err
	}
	for {
		all, err := b.List(ctx)
		if err != nil {
			return err
		}
		if len(all) >= registered {
			break
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := b.stop(); err != nil {
		return err
	}
	took, err := b.start(ctx)
	if err != nil {
		return err
	}
	t.add(fmt.Sprintf("start with %d registered agents", registered), millis(took)+" ms", none)
	// It compares all their files with what is registered.
	time.Sleep(10 * time.Second)
	memory, err := residentOf(b.cmd.Process.Pid)
	t.add(fmt.Sprintf("memory of jail-agentd with %d", registered),
		fmt.Sprintf("%.1f MiB", float64(memory)/(1<<20)), none)
	return err
}

// diskOf returns the bytes that the files of a directory take on the disk.
func diskOf(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes += st.Blocks * 512
		}
		return err
	})
	return bytes, err
}

// residentOf returns the largest resident memory of a process so far, in bytes.
func residentOf(pid int) (bytes int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, err := fmt.Sscan(rest, &bytes)
			return bytes << 10, err
		}
	}
	return 0, errors.New("no VmHWM")
}
