package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/jail-sandbox/jail/supervisor/message"
)

const versusPart = "versus"

// A once does what is measured one time.
type once = func(context.Context) (time.Duration, error)

// versus measures two builds of jail beside each other: each round does everything with the one and
// with the other in turn, so that a change is told apart from the machine's load.
func versus(ctx context.Context, bin, other string, rounds int, stdout,
	stderr io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	if other, err = filepath.Abs(other); err != nil {
		return err
	}
	first := &bed{bin: other, state: "old"}
	defer func() { err = errors.Join(err, first.close()) }()
	if err := first.makeDir(); err != nil {
		return err
	}
	if err := first.plant(); err != nil {
		return err
	}
	if err := first.startDaemon(ctx); err != nil {
		return err
	}
	beds := []*bed{first}
	for _, b := range []*bed{{bin: bin, state: "new"}, {bin: other, state: "old-warm", pool: 8},
		{bin: bin, state: "new-warm", pool: 8}} {
		b.dir, b.errors = first.dir, first.errors
		defer func() { err = errors.Join(err, b.close()) }()
		if err := b.startDaemon(ctx); err != nil {
			return err
		}
		beds = append(beds, b)
	}
	subjects, err := versusSubjects(ctx, beds)
	if err != nil {
		return err
	}
	// The peer, in the same rounds: so what is left of a ratio is not the machine's load.
	peer := first.bubblewrap()
	pairs := len(subjects)
	subjects = append(subjects, peer)
	if err := measure(ctx, subjects, rounds, stderr); err != nil && ctx.Err() == nil {
		return err
	}
	if n := len(subjects[pairs-1].took); n < rounds {
		// It was interrupted: what was measured by then.
		rounds = n
	}
	load, err := loadAverage()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\nLoad average at the end: %s.\n\nMedians of %d, in milliseconds.\n\n",
		host, load, rounds)
	t := &table{head: []string{"what", "before", "p99", "min", "after", "p99", "min",
		"after ÷ before",
		"after ÷ bwrap"}}
	for n := 0; n+1 < pairs; n += 2 {
		a, b := subjects[n].took, subjects[n+1].took
		t.add(subjects[n].name, millis(a.median()), millis(a.percentile(99)), millis(a.min()),
			millis(b.median()), millis(b.percentile(99)), millis(b.min()), times(b.ratio(a)),
			times(b.ratio(peer.took)))
	}
	return t.write(stdout)
}

// versusSubjects are pairs of the two builds. The beds are cold and cold, warm and warm.
func versusSubjects(ctx context.Context, beds []*bed) ([]*subject, error) {
	var all []*subject
	pair := func(name string, beds []*bed, make func(b *bed) (once, error)) error {
		for _, b := range beds {
			f, err := make(b)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if b.pool > 0 {
				f = rested(f)
			}
			all = append(all, &subject{name: name, once: f})
		}
		return nil
	}
	cold, warm := beds[:2], beds[2:]
	run := func(req message.Request) func(b *bed) (once, error) {
		return func(b *bed) (once, error) { return b.run(req), nil }
	}
	trivial := beds[0].request(beds[0].path("trivial.wasm"), nil, "small")
	bare := trivial
	bare.NoWorkspace = true
	core := func(b *bed) (once, error) { return b.run(b.request("true", nil, "small")), nil }
	whole := func(b *bed) (once, error) {
		return b.process(b.state, fixed(filepath.Join(b.bin, "jail"), "run", "--", "true")), nil
	}
	exec := func(b *bed) (once, error) { return b.sessionExec(ctx) }
	again := func(b *bed) (once, error) {
		f, err := exec(b)
		return twice(f), err
	}
	call := func(b *bed) (once, error) { return b.sessionCall(ctx, "default", "true", false) }
	return all, errors.Join(
		pair("cold, trivial module over a shadow", cold, run(trivial)),
		pair("warm, trivial module without a workspace", warm, run(bare)),
		pair("warm, `true` of core-utils over a shadow", warm, core),
		pair("warm, `jail run true`, whole process", warm, whole),
		pair("a call of `true` in a session", warm, call),
		pair("`jail session exec … true`, whole process", warm, exec),
		pair("the same, right after another", warm, again),
	)
}

// rested waits before each: for what is to be ready.
func rested(f once) once {
	return func(ctx context.Context) (time.Duration, error) {
		time.Sleep(calm)
		return f(ctx)
	}
}
