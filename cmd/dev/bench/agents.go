package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/runners/wasi/guestlib/agentlib"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const agentsPart = "agents"

// Agents that are measured.
const (
	// registeredAgents are registered when jail-agentd starts.
	registeredAgents = 100_000
	// togetherAgents work at one time, and awakeAgents are awake.
	togetherAgents = 100
	awakeAgents    = 200
	// settled is when jaild keeps a module whose file was written before that.
	settled = 6 * time.Second
)

// agentBed is a jail-agentd with a state directory of its own.
type agentBed struct {
	bin, dir string
	// module counts, in the language of the bench, hostile does what an event asks for, and splitter
	// has sub-agents.
	module, hostile, splitter string
	// model answers after modelTime.
	model  *httptest.Server
	cmd    *exec.Cmd
	client *agentapi.Client
}

// agentPolicy is that of the agents: what a small module needs.
const agentPolicy = "policy = 1\nname = \"bench-agent\"\ninclude = [\"agent\"]\n"

// Languages of the agent that is measured.
const (
	guestGo = "go"
	guestC  = "c"
)

func newAgentBed(ctx context.Context, bin, guest string) (*agentBed, error) {
	dir, err := os.MkdirTemp("", "jail-bench-")
	if err != nil {
		return nil, err
	}
	b := &agentBed{bin: bin, dir: dir, module: filepath.Join(dir, "counter.wasm"),
		client: agentapi.NewClient(filepath.Join(dir, "agentd.sock"))}
	b.hostile, b.splitter = filepath.Join(dir, "hostile.wasm"), filepath.Join(dir, "splitter.wasm")
	err = errors.Join(b.startModel(), buildGo(ctx, b.hostile, "agent"),
		buildGo(ctx, b.splitter, "splitter"))
	if err == nil && guest == guestC {
		err = b.buildC(ctx)
	} else if err == nil {
		err = buildGo(ctx, b.module, "counter")
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return b, nil
}

// modelTime is how long the model takes to answer.
const modelTime = time.Second

// startModel starts a model that the fetch proxy reaches as model.example.com.
func (b *agentBed) startModel() error {
	b.model = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(modelTime)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"delta":{"content":"nothing"}}]}`+"\n\ndata: [DONE]\n\n")
	}))
	roots := filepath.Join(b.dir, "roots.pem")
	return errors.Join(os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: b.model.Certificate().Raw}), 0o600),
		os.WriteFile(filepath.Join(b.dir, "fetch.toml"), fmt.Appendf(nil, "roots = %q\n[[internal]]\n"+
			"host = \"model.example.com\"\naddresses = [\"127.0.0.1\"]\nports = [%d]\nresolve = false\n",
			roots, b.modelPort()), 0o600))
}

func (b *agentBed) modelPort() int { return b.model.Listener.Addr().(*net.TCPAddr).Port }

func buildGo(ctx context.Context, to, from string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", to,
		"./cmd/testdata/"+from)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

//go:embed testdata/counter.c
var counterC []byte

// buildC builds the agent in C as "jail agent new --lang c" has it built.
func (b *agentBed) buildC(ctx context.Context) error {
	files, err := agentlib.New("c", "counter")
	if err != nil {
		return err
	}
	files["main.c"] = counterC
	dir := filepath.Join(b.dir, "c")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	if out, err := exec.CommandContext(ctx, "make", "-s", "-C", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("make: %w\n%s", err, out)
	}
	return os.Rename(filepath.Join(dir, "counter.wasm"), b.module)
}

// daemonStarts returns the error of a jaild that does not start in the state directory. Without it the
// events of agents would wait for one for ever.
func (b *agentBed) daemonStarts(ctx context.Context) error {
	jail := exec.CommandContext(ctx, filepath.Join(b.bin, "jail"), "ps")
	jail.Env = append(os.Environ(), "JAIL_STATE="+b.dir)
	if out, err := jail.CombinedOutput(); err != nil {
		return fmt.Errorf("jaild does not start: %w\n%s", err, out)
	}
	return nil
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
		_, err := b.client.Agent(ctx, "none")
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
	b.model.Close()
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

// write makes the directory of an agent, with a module or, if that is empty, a script.
func (b *agentBed) write(dir, name, more, module string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("agent = 1\ntype = \"agent\"\nname = %q\ncapabilities = { storage = true }\n"+
		"policy = \"policy.toml\"\n", name)
	if module != "" {
		text += "module = \"agent.wasm\"\n"
		if err := os.Link(module, filepath.Join(dir, "agent.wasm")); err != nil &&
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
	return b.installOf(ctx, name, more, b.module)
}

func (b *agentBed) installOf(ctx context.Context, name, more, module string) error {
	dir := filepath.Join(b.dir, "source", name)
	if err := b.write(dir, name, more, module); err != nil {
		return err
	}
	_, err := b.client.Add(ctx, dir)
	return err
}

// event sends an event, and returns how long it took to be committed.
func (b *agentBed) event(ctx context.Context, name string) (time.Duration, error) {
	begun := time.Now()
	sent, err := b.client.Send(ctx, name, agentapi.Send{Content: json.RawMessage(`"x"`),
		WaitMS: agentapi.MaxWait.Milliseconds()})
	if err == nil && sent.State != agentapi.Committed {
		err = fmt.Errorf("the event of agent %q is %s: %s", name, sent.State, sent.Error)
	}
	return time.Since(begun), err
}

// begin sends an event, and returns how long it took until the agent began to work on it.
func (b *agentBed) begin(ctx context.Context, name string) (time.Duration, error) {
	begun := time.Now()
	sent, err := b.client.Send(ctx, name, agentapi.Send{Content: json.RawMessage(`"when"`),
		WaitMS: agentapi.MaxWait.Milliseconds()})
	switch {
	case err != nil:
		return 0, err
	case sent.State != agentapi.Committed || len(sent.Published) != 1:
		return 0, fmt.Errorf("the event of agent %q is %s, with %d answers: %s", name, sent.State,
			len(sent.Published), sent.Error)
	}
	var nanos int64
	err = json.Unmarshal(sent.Published[0].Data, &nanos)
	return time.Unix(0, nanos).Sub(begun), err
}

// state waits until an instance is in a state.
func (b *agentBed) state(ctx context.Context, name, state string) (agentapi.Instance, error) {
	for {
		a, err := b.client.Status(ctx, name)
		if err != nil {
			return agentapi.Instance{}, err
		}
		i := a.Instances[0]
		if i.State == state {
			return i, nil
		}
		if i.State == agentapi.Failed {
			return i, fmt.Errorf("agent %q has failed: %s", name, i.Error)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return i, ctx.Err()
		}
	}
}

// begun waits until an agent works on its event, or has failed on it.
func (b *agentBed) begun(ctx context.Context, name string) error {
	for {
		a, err := b.client.Status(ctx, name)
		if err != nil {
			return err
		}
		if i := a.Instances[0]; i.State == agentapi.Active || i.Failures > 0 || i.Waiting == 0 {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// checkpoints measures how many events a second agents commit that have each so many waiting.
func (b *agentBed) checkpoints(ctx context.Context, name string, each int) (float64, error) {
	if err := b.client.Pause(ctx, name); err != nil {
		return 0, err
	}
	for range each - 1 {
		if _, err := b.client.Send(ctx, name, agentapi.Send{Content: json.RawMessage(`"x"`)}); err != nil {
			return 0, err
		}
	}
	last := make(chan error, 1)
	go func() {
		_, err := b.event(ctx, name)
		last <- err
	}()
	for {
		i, err := b.client.Status(ctx, name)
		if err != nil {
			return 0, err
		}
		if i.Instances[0].Waiting == each {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	begun := time.Now()
	if err := b.client.Resume(ctx, name); err != nil {
		return 0, err
	}
	err := <-last
	return float64(each) / time.Since(begun).Seconds(), err
}

// agentFigures measures agents: from an event to its commit, asleep and awake, events a second, and
// what children and branches and many agents that sleep cost. Each part is printed as it ends. If only
// names a part, the others are left out.
func agentFigures(ctx context.Context, bin, guest, only string, rounds, registered, files int,
	stdout, progress io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	b, err := newAgentBed(ctx, bin, guest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.daemonStarts(ctx); err != nil {
		return err
	}
	if _, err := b.start(ctx); err != nil {
		return err
	}
	if err := errors.Join(b.install(ctx, "sleeper", "[wake]\nidle = \"100ms\"\n"),
		b.install(ctx, "awake", "[wake]\nidle = \"10m\"\n")); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\n\nThe agent is a module in %s that writes a row for each event. "+
		"Goals are in brackets.\n", host, map[string]string{guestGo: "Go", guestC: "C"}[guest])
	for _, part := range []struct {
		name    string
		measure func(*table) error
	}{
		{"events", func(t *table) error { return b.latencies(ctx, rounds, t, progress) }},
		{"rates", func(t *table) error { return b.rates(ctx, t, progress) }},
		{"beside", func(t *table) error { return b.beside(ctx, rounds, t, progress) }},
		{"children", func(t *table) error { return b.children(ctx, files, rounds, t, progress) }},
		{"asleep", func(t *table) error { return b.asleep(ctx, registered, t, progress) }},
	} {
		if only != "" && only != part.name {
			continue
		}
		t := table{head: []string{"agents: " + part.name, "median", "p99"}}
		err := part.measure(&t)
		load, loadErr := loadAverage()
		fmt.Fprintln(stdout)
		if err := errors.Join(err, loadErr, t.write(stdout)); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "\nLoad average at the end: %s.\n", load)
	}
	return nil
}

func (b *agentBed) latencies(ctx context.Context, rounds int, t *table, progress io.Writer) error {
	fmt.Fprintln(progress, "bench: events of one agent")
	time.Sleep(settled)
	// The first event compiles the module.
	if _, err := b.event(ctx, "sleeper"); err != nil {
		return err
	}
	asleep := func(int) (string, error) {
		_, err := b.state(ctx, "sleeper", agentapi.Dormant)
		// The next jail is made meanwhile.
		time.Sleep(500 * time.Millisecond)
		return "sleeper", err
	}
	if err := b.measured(ctx, t, "dormant agent in a prewarmed jail", rounds, asleep); err != nil {
		return err
	}
	// Each has a kind of jail of its own, and there are more of them than jails are prewarmed: none
	// is ready for the one that was awake longest ago.
	alone := func(n int) string { return fmt.Sprintf("cold%d", n%rounds) }
	for n := range rounds {
		if err := b.install(ctx, alone(n), fmt.Sprintf("[wake]\nidle = \"100ms\"\n[limits]\n"+
			"memory = \"%dKiB\"\n", 128<<10-4*(n+1))); err != nil {
			return err
		}
		if _, err := b.event(ctx, alone(n)); err != nil {
			return err
		}
	}
	if err := b.measured(ctx, t, "dormant agent without a prewarmed jail", rounds,
		func(n int) (string, error) {
			_, err := b.state(ctx, alone(n), agentapi.Dormant)
			// What was begun for the one before ends.
			time.Sleep(500 * time.Millisecond)
			return alone(n), err
		}); err != nil {
		return err
	}
	if _, err := b.event(ctx, "awake"); err != nil {
		return err
	}
	// What was begun for others ends.
	time.Sleep(time.Second)
	if err := b.measured(ctx, t, "awake agent", rounds,
		func(int) (string, error) { return "awake", nil }); err != nil {
		return err
	}
	i, err := b.state(ctx, "awake", agentapi.Active)
	t.add("memory of an awake agent, its peak (32)", fmt.Sprintf("%.1f MiB",
		float64(i.Memory)/(1<<20)), none)
	return err
}

func (t *table) latency(what string, s sample) {
	t.add(what, millis(s.median())+" ms", millis(s.percentile(99))+" ms")
}

// measured measures events of the agents that next names, until the agent begins to work on the event
// and until the event is committed.
func (b *agentBed) measured(ctx context.Context, t *table, what string, rounds int,
	next func(n int) (string, error)) error {
	for _, until := range []struct {
		what string
		send func(context.Context, string) (time.Duration, error)
	}{{"from send to the begin of onEvent", b.begin}, {"from send to commit", b.event}} {
		var s sample
		for n := range rounds {
			name, err := next(n)
			if err != nil {
				return err
			}
			took, err := until.send(ctx, name)
			if err != nil {
				return err
			}
			s = append(s, took)
		}
		t.latency(what+", "+until.what, s)
	}
	return nil
}

// awake sends events to the agent that is awake for a while.
func (b *agentBed) awake(ctx context.Context, d time.Duration) (s sample, err error) {
	for begun := time.Now(); err == nil && time.Since(begun) < d; {
		var took time.Duration
		if took, err = b.event(ctx, "awake"); err == nil {
			s = append(s, took)
		}
	}
	return s, err
}

func (b *agentBed) rates(ctx context.Context, t *table, progress io.Writer) error {
	fmt.Fprintln(progress, "bench: events a second")
	const each = 2000
	for _, batch := range []int{1, 64} {
		name := fmt.Sprintf("batch%d", batch)
		if err := b.install(ctx, name, fmt.Sprintf("[wake]\nidle = \"1m\"\nbatch = %d\n",
			batch)); err != nil {
			return err
		}
		if _, err := b.event(ctx, name); err != nil {
			return err
		}
		rate, err := b.checkpoints(ctx, name, each)
		if err != nil {
			return err
		}
		t.add(fmt.Sprintf("events a second of one agent, %d at a time, with its start (%d)", batch,
			map[int]int{1: 300, 64: 1000}[batch]),
			fmt.Sprintf("%.0f", rate), none)
	}
	before, err := availableMemory()
	if err != nil {
		return err
	}
	names, err := b.wakeMany(ctx, "together", togetherAgents)
	if err != nil {
		return err
	}
	// What was begun for others ends.
	time.Sleep(time.Second)
	rate, err := b.together(ctx, names, 100)
	if err != nil {
		return err
	}
	t.add(fmt.Sprintf("events a second of %d awake agents, from send to commit (3000)", togetherAgents),
		fmt.Sprintf("%.0f", rate), none)
	fmt.Fprintf(progress, "bench: %d awake agents\n", awakeAgents)
	more, err := b.wakeMany(ctx, "more", awakeAgents-togetherAgents)
	if err != nil {
		return err
	}
	after, err := availableMemory()
	if err != nil {
		return err
	}
	t.add(fmt.Sprintf("memory that the host has less with %d awake agents (8)", awakeAgents),
		fmt.Sprintf("%.1f GiB", float64(before-after)/(1<<30)), none)
	for _, name := range append(names, more...) {
		if err := b.client.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// wakeMany installs agents and wakes them.
func (b *agentBed) wakeMany(ctx context.Context, prefix string, count int) (names []string,
	err error) {
	for n := range count {
		name := fmt.Sprintf("%s%d", prefix, n)
		names = append(names, name)
		if err := b.install(ctx, name, "[wake]\nidle = \"10m\"\n"); err != nil {
			return nil, err
		}
		if _, err := b.event(ctx, name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// together measures how many events a second agents commit that are awake, while each gets so many.
func (b *agentBed) together(ctx context.Context, names []string, each int) (float64, error) {
	begun := time.Now()
	failures := make(chan error, len(names))
	for _, name := range names {
		go func() {
			var err error
			for n := 1; n < each && err == nil; n++ {
				_, err = b.client.Send(ctx, name, agentapi.Send{Content: json.RawMessage(`"x"`)})
			}
			if err == nil {
				_, err = b.event(ctx, name)
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

// beside measures the agent that is awake alone, and beside agents that do what they should not. Each
// row lasts for half a second a round: the start of a hostile agent, and of the next jail of its kind,
// takes some tens of milliseconds of it, and comes again only after a pause that doubles.
func (b *agentBed) beside(ctx context.Context, rounds int, t *table, progress io.Writer) error {
	if _, err := b.event(ctx, "awake"); err != nil {
		return err
	}
	// What was begun for others ends.
	time.Sleep(time.Second)
	const query = `{"calls":[{"binding":"STORAGE","method":"%s","params":{"sql":"%s"}}]}`
	const endless = `WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) `
	for _, bad := range []struct{ what, content string }{
		{"nothing", ""},
		{"an endless loop", `{"do":"loop"}`},
		{"one that uses up its memory, again and again", `{"do":"eat"}`},
		{"one that does not end when it is to sleep", `{"do":"stay"}`},
		{"a query without an end", fmt.Sprintf(query, "query", endless+
			"SELECT n FROM c WHERE n < 0")},
		{"a value of 900 MB, again and again", fmt.Sprintf(query, "exec",
			"ROLLBACK; SELECT randomblob(900000000)")},
		{"inserts without an end", fmt.Sprintf(query, "exec", "CREATE TABLE IF NOT EXISTS t (a); "+
			"INSERT INTO t "+endless+"SELECT randomblob(1000) FROM c LIMIT 10000000")},
	} {
		fmt.Fprintf(progress, "bench: an awake agent beside %s\n", bad.what)
		if bad.content != "" {
			if err := b.installOf(ctx, "bad", "[wake]\nidle = \"100ms\"\ndeadline = \"10m\"\n"+
				"retries = 100\n", b.hostile); err != nil {
				return err
			}
			if _, err := b.client.Send(ctx, "bad", agentapi.Send{
				Content: json.RawMessage(bad.content)}); err != nil {
				return err
			}
			if err := b.begun(ctx, "bad"); err != nil {
				return err
			}
		}
		end := b.again(ctx, bad.content)
		s, err := b.awake(ctx, time.Duration(rounds)*time.Second/2)
		end()
		if err != nil {
			return err
		}
		t.latency("awake agent beside "+bad.what, s)
		if bad.content != "" {
			if err := b.client.Delete(ctx, "bad"); err != nil {
				return err
			}
		}
	}
	return nil
}

// again sends the hostile agent its event again whenever it has ended one, until end is called; not if
// there is no event.
func (b *agentBed) again(ctx context.Context, content string) (end func()) {
	if content == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			// What becomes of it is the agent's affair.
			_, _ = b.client.Send(ctx, "bad", agentapi.Send{Content: json.RawMessage(content),
				WaitMS: agentapi.MaxWait.Milliseconds()})
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// asleep measures the disk that a dormant agent takes, and jail-agentd with many agents.
func (b *agentBed) asleep(ctx context.Context, registered int, t *table,
	progress io.Writer) error {
	fmt.Fprintf(progress, "bench: %d registered agents\n", registered)
	if _, err := b.event(ctx, "sleeper"); err != nil {
		return err
	}
	if _, err := b.state(ctx, "sleeper", agentapi.Dormant); err != nil {
		return err
	}
	disk, err := diskOf(filepath.Join(b.dir, "agentd", "state", "agent-sleeper-main"))
	if err != nil {
		return err
	}
	t.add("database of a dormant agent (64)", fmt.Sprintf("%d KiB", disk>>10), none)
	if err := b.stop(); err != nil {
		return err
	}
	for n := range registered {
		name := fmt.Sprintf("many%d", n)
		if err := b.write(filepath.Join(b.dir, "agents", name), name, "", ""); err != nil {
			return err
		}
	}
	// The first start registers them.
	if _, err := b.start(ctx); err != nil {
		return err
	}
	for {
		asked := time.Now()
		all, err := b.client.List(ctx)
		if err != nil {
			return err
		}
		if len(all) >= registered {
			break
		}
		select {
		// Lists take a tenth of the time at most, however many agents there are.
		case <-time.After(max(time.Second, 10*time.Since(asked))):
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
	t.add(fmt.Sprintf("start with %d registered agents (2000)", registered), millis(took)+" ms", none)
	// It compares all their files with what is registered.
	time.Sleep(10 * time.Second)
	memory, err := residentOf(b.cmd.Process.Pid)
	t.add(fmt.Sprintf("memory of jail-agentd with %d (120)", registered),
		fmt.Sprintf("%.1f MiB", float64(memory)/(1<<20)), none)
	t.add("memory of jail-agentd for each of them (1)",
		fmt.Sprintf("%.2f KiB", float64(memory)/float64(max(registered, 1))/(1<<10)), none)
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

// kilobytes reads a value in kB of a file of /proc, and returns bytes.
func kilobytes(path, name string) (int64, error) {
	text, err := field(path, name)
	if err != nil {
		return 0, err
	}
	var n int64
	_, err = fmt.Sscan(text, &n)
	return n << 10, err
}

// availableMemory returns what the host has left, in bytes (proc_meminfo(5)).
func availableMemory() (int64, error) { return kilobytes("/proc/meminfo", "MemAvailable:") }

// residentOf returns the largest resident memory of a process so far, in bytes.
func residentOf(pid int) (int64, error) {
	return kilobytes(fmt.Sprintf("/proc/%d/status", pid), "VmHWM:")
}
