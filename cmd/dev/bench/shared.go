package main

import (
	"context"
	"errors"
	"io"
)

const sharedPart = "shared"

// shareds measures, in turn, calls in a session with a shared engine and calls in an ordinary
// session, for which the daemon has prewarmed jails.
func shareds(ctx context.Context, bin string, rounds int, stdout, stderr io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	_, warm, end, err := twoBeds(ctx, bin, sharedPart, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
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
	if err := tellMedians(stdout, host, rounds); err != nil {
		return err
	}
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
