package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

const sharedPart = "shared"

// shareds measures calls in a session with a shared engine beside those in an ordinary one, in turn.
// The daemon has prewarmed jails for the ordinary one.
func shareds(ctx context.Context, bin string, rounds int, stdout, stderr io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	b, err := newBed(ctx, bin, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	warm := &bed{bin: bin, dir: b.dir, errors: b.errors, state: "shared", pool: 8}
	defer func() { err = errors.Join(err, warm.close()) }()
	if err := warm.startDaemon(ctx); err != nil {
		return err
	}
	var subjects []*subject
	for _, row := range []struct {
		name string
		wrap func(once) once
	}{{"API: a call of `true` in a session, after a pause", rested},
		{"API: the same, right after another", func(f once) once { return rested(twice(f)) }}} {
		for _, shared := range []bool{false, true} {
			call, err := warm.sessionCall(ctx, "default", "true", shared)
			if err != nil {
				return err
			}
			subjects = append(subjects, &subject{name: row.name, once: row.wrap(call)})
		}
	}
	if err := measure(ctx, subjects, rounds, stderr); err != nil {
		return err
	}
	load, err := loadAverage()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\nLoad average at the end: %s.\n\nMedians of %d, in milliseconds.\n\n",
		host, load, rounds)
	t := &table{head: []string{"what", "own jail", "p99", "min", "shared engine", "p99", "min",
		"shared ÷ own"}}
	for n := 0; n+1 < len(subjects); n += 2 {
		own, shared := subjects[n].took, subjects[n+1].took
		t.add(subjects[n].name, millis(own.median()), millis(own.percentile(99)),
			millis(own.min()), millis(shared.median()), millis(shared.percentile(99)),
			millis(shared.min()), times(shared.ratio(own)))
	}
	return t.write(stdout)
}
