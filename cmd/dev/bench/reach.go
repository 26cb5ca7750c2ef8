package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"time"

	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

const reachPart = "reach"

// A goal is one row of the table of goals: what jail takes, beside a peer that was measured in turn
// with it.
type goal struct {
	what, limit, now string
	// peer is what the peer takes, with its name.
	peer    string
	ratio   string
	verdict verdict
}

// Rows that only this part has.
const (
	bwrapGrep   = "`bwrap … grep -c func FILE`"
	runPaused   = "whole `jail run -- grep -c func FILE`, daemon, after a pause"
	runAgain    = "the same, back to back"
	execPaused  = "whole `jail session exec … true`, after a pause"
	execAgain   = "the same, right after another"
	callPaused  = "API: invocation of a session, after a pause"
	callAgain   = "API: the same, right after another"
	sharePaused = "API: invocation in a shared engine, after a pause"
	shareAgain  = "API: the same, right after another in a shared engine"
	firstRow    = "claim of a prewarmed jail to the first instruction of the guest, at most"
	coldRow     = "API: cold jail over a shadow"
)

// pause is how long nothing is asked for, so that all prewarmed jails stand again on a busy machine.
const pause = 500 * time.Millisecond

// reach measures what jail is to reach, each row beside its peer in the same rounds, and prints one
// table of goals.
func reach(ctx context.Context, bin string, rounds int, stdout, stderr io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	cold, warm := &bed{bin: bin, state: "cold"}, &bed{bin: bin, state: reachPart, pool: 8}
	defer func() { err = errors.Join(err, warm.close(), cold.close()) }()
	if err := cold.makeDir(); err != nil {
		return err
	}
	warm.dir, warm.errors = cold.dir, cold.errors
	if err := errors.Join(cold.plant(), cold.startDaemon(ctx), warm.startDaemon(ctx)); err != nil {
		return err
	}
	subjects, err := reachSubjects(ctx, cold, warm)
	if err != nil {
		return err
	}
	if err := measure(ctx, subjects, rounds, stderr); err != nil {
		return err
	}
	goals := timeGoals(subjects)
	for _, more := range []func() ([]goal, error){
		func() ([]goal, error) { return cpuGoals(ctx, warm, rounds, stderr) },
		func() ([]goal, error) { return rateGoals(ctx, warm, stderr) },
		func() ([]goal, error) { return appendGoals(ctx, cold.path("audit"), stderr) },
		func() ([]goal, error) { return fetchGoals(ctx, bin, rounds, stderr) },
	} {
		some, err := more()
		if err != nil {
			return err
		}
		goals = append(goals, some...)
	}
	load, err := loadAverage()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\nLoad average at the end: %s.\n\nMedians of %d, in milliseconds.\n\n",
		host, load, rounds)
	return goalTable(goals).write(stdout)
}

func goalTable(goals []goal) *table {
	t := &table{head: []string{"what", "goal", "now", "peer", "now ÷ peer", "met"}}
	for _, g := range goals {
		t.add(g.what, g.limit, g.now, g.peer, g.ratio, string(g.verdict))
	}
	return t
}

func reachSubjects(ctx context.Context, cold, warm *bed) ([]*subject, error) {
	jail := filepath.Join(warm.bin, "jail")
	trivial := cold.run(cold.request(cold.path("trivial.wasm"), nil, "small"))
	runc, err := cold.runc(ctx)
	if err != nil {
		return nil, err
	}
	boxed := warm.bubblewrap()
	grep := &subject{name: bwrapGrep, missing: boxed.missing}
	if boxed.missing == "" {
		grep.once = warm.process("none", fixed(find("bwrap"), "--unshare-all", "--ro-bind", "/",
			"/", "--proc", "/proc", "--dev", "/dev", "/bin/grep", "-c", "func",
			warm.path("small", "FILE")))
	}
	run := warm.process(warm.state, fixed(jail, "run", "--", "grep", "-c", "func", "FILE"))
	exec, err := warm.sessionExec(ctx)
	if err != nil {
		return nil, err
	}
	call, err := warm.sessionCall(ctx, "default", "true", false)
	if err != nil {
		return nil, err
	}
	shared, err := warm.sessionCall(ctx, "default", "true", true)
	if err != nil {
		return nil, err
	}
	first, err := warm.firstInstruction()
	if err != nil {
		return nil, err
	}
	paused := func(f once) once {
		return func(ctx context.Context) (time.Duration, error) {
			time.Sleep(pause)
			return f(ctx)
		}
	}
	return []*subject{
		{name: bareTrue, once: warm.process("none", fixed("/bin/true"))},
		{name: versionRow, once: warm.process("none", fixed(jail, "version"))},
		boxed, grep,
		{name: runPaused, once: paused(run)},
		{name: runAgain, once: paused(twice(run))},
		{name: execPaused, once: paused(exec)},
		{name: execAgain, once: paused(twice(exec))},
		{name: callPaused, once: paused(call)},
		{name: callAgain, once: paused(twice(call))},
		{name: sharePaused, once: paused(shared)},
		{name: shareAgain, once: paused(twice(shared))},
		{name: firstRow, once: paused(first)},
		runc,
		{name: coldRow, once: trivial},
	}, nil
}

// timeGoals are the goals for what was measured in rounds. A time without a peer has the bare
// process beside it, so that a busy machine shows.
func timeGoals(subjects []*subject) []goal {
	within := func(what, peer string, most float64) goal {
		s, other := took(subjects, what), took(subjects, peer)
		g := beside(what, s, peer, other)
		g.limit = fmt.Sprintf("≤ %.1f ×", most)
		if got, ok := s.ratio(other); ok {
			g.verdict = judge(got <= most)
		}
		return g
	}
	below := func(what string, most time.Duration) goal {
		s := took(subjects, what)
		g := beside(what, s, bareTrue, took(subjects, bareTrue))
		g.limit = "≤ " + millis(most)
		if len(s) > 0 {
			g.verdict = judge(s.median() <= most)
		}
		return g
	}
	return []goal{
		within(runPaused, bwrapGrep, 1.5),
		within(runAgain, bwrapGrep, 1.5),
		within(execPaused, bwrapTrue, 1.5),
		within(execAgain, bwrapTrue, 1.5),
		below(callPaused, 3*time.Millisecond),
		below(callAgain, 3*time.Millisecond),
		below(sharePaused, 500*time.Microsecond),
		below(shareAgain, 500*time.Microsecond),
		below(firstRow, time.Millisecond),
		within(coldRow, runcTrue, 0.8),
		within(versionRow, bareTrue, 2.5),
	}
}

// beside is a row without its goal.
func beside(what string, s sample, name string, peer sample) goal {
	g := goal{what: what, now: none, peer: name + ": not measured", ratio: none, verdict: unknown}
	if len(s) > 0 {
		g.now = millis(s.median())
	}
	if len(peer) > 0 {
		g.peer = name + ": " + millis(peer.median())
	}
	g.ratio = times(s.ratio(peer))
	return g
}

// rateGoals are how many runs, each in a fresh jail, end in a second.
func rateGoals(ctx context.Context, b *bed, progress io.Writer) ([]goal, error) {
	fmt.Fprintln(progress, "bench: runs a second")
	const atLeast = 70
	boxed := b.bubblewrap()
	jailed := b.run(b.request(b.path("trivial.wasm"), nil, "small"))
	of := func(f once, n int) (float64, error) {
		return rate(runtime.NumCPU(), n, func() error {
			_, err := f(ctx)
			return err
		})
	}
	var now, peer []float64
	for range rateRounds {
		n, err := of(jailed, runsForRate/rateRounds)
		if err != nil {
			return nil, err
		}
		now = append(now, n)
		if boxed.missing != "" {
			continue
		}
		// Its standard error goes to one file, which nobody reads here.
		n, err = of(b.process("none", fixed(find("bwrap"), "--unshare-all", "--ro-bind", "/", "/",
			"--proc", "/proc", "--dev", "/dev", "/bin/true")), runsForRate/rateRounds)
		if err != nil {
			return nil, err
		}
		peer = append(peer, n)
	}
	return []goal{rateGoal("fresh jails a second, as many at once as processors", atLeast, now,
		"`bwrap`", peer)}, nil
}

// rateRounds is how often each rate is measured in turn.
const rateRounds = 5

func rateGoal(what string, least float64, now []float64, name string, peer []float64) goal {
	g := goal{what: what, limit: fmt.Sprintf("≥ %.0f", least), now: none,
		peer: name + ": not measured", ratio: none, verdict: unknown}
	if len(now) > 0 {
		g.now, g.verdict = perSecond(middle(now)), judge(middle(now) >= least)
	}
	if len(peer) > 0 {
		g.peer = name + ": " + perSecond(middle(peer))
		g.ratio = times(middle(now)/middle(peer), len(now) > 0)
	}
	return g
}

// clockModule is a command whose first instructions read the clock, and which writes what they
// read.
func clockModule() []byte {
	i64Const1 := []byte{0x42, 1}
	m := wasitest.Command(wasitest.Cat(
		wasitest.I32Const(0), i64Const1, wasitest.I32Const(16), []byte{0x10, 0, 0x1a},
		wasitest.I32Const(1), wasitest.I32Const(0), wasitest.I32Const(1), wasitest.I32Const(8),
		[]byte{0x10, 1, 0x1a}))
	m.Types = append(m.Types,
		wasitest.Type{Params: []byte{wasitest.I32, wasitest.I64, wasitest.I32},
			Results: []byte{wasitest.I32}},
		wasitest.Type{Params: []byte{wasitest.I32, wasitest.I32, wasitest.I32, wasitest.I32},
			Results: []byte{wasitest.I32}})
	m.Imports = []wasitest.Import{{Module: wasi.Preview1, Name: "clock_time_get", Type: 1},
		{Module: wasi.Preview1, Name: "fd_write", Type: 2}}
	m.Exports[0].Index = 2
	// Where the eight bytes lie, and how many they are.
	m.Data = []string{"\x10\x00\x00\x00\x08\x00\x00\x00"}
	return m.Encode()
}
