package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// A subject is one thing that is measured: a row of the table.
type subject struct {
	name string
	// once does it one time and says how long that took; what it does before and after is not
	// counted.
	once func(ctx context.Context) (time.Duration, error)
	// Why it cannot be measured here.
	missing string
	// Beside names the rows that it is compared with: those of bare, bwrap and runc. Empty is none.
	bare, bwrap, runc string
	took              sample
}

// Names of the rows that others are compared with, or that a budget is about.
const (
	bareTrue, bareGrep  = "`/bin/true`", "`grep -c func FILE`"
	versionRow          = "`jail version`"
	bwrapTrue           = "`bwrap --unshare-all --ro-bind / / … /bin/true`"
	runcTrue            = "`runc run` of a static `true`, all namespaces, cgroup, seccomp"
	aloneTrue           = "`jail run trivial.wasm`, no daemon"
	daemonTrue          = "`jail run trivial.wasm`, daemon"
	aloneGrep           = "`jail run -- grep -c func FILE`, no daemon"
	daemonGrep          = "`jail run -- grep -c func FILE`, daemon"
	clientRead          = "API: cold jail, request to exit, trivial module, directory read-only"
	clientShadow        = "API: the same over a shadow"
	clientGrep          = "API: `grep -c func FILE`"
	wallTrue            = "API: endless loop with `wall` 100 ms, less the 100 ms"
	wallRead            = "API: the same with `cat` of an input that never comes"
	wallSleep           = "API: the same with `sleep 60`"
	touchFew, touchMany = "API: `touch`, shadow of 1,000 files",
		"API: `touch`, shadow of 100,000 files"
	diffFew, diffMany = "API: diff after 10 changes, 1,000 files",
		"API: diff after 10 changes, 100,000 files"
	prepFew, prepMany = "prepare a workspace, 1,000 files", "prepare a workspace, 100,000 files"
)

// warmUps is how many rounds go before those that count: templates and compiled modules are made in
// the first.
const warmUps = 2

// measure does every subject once in each round.
func measure(ctx context.Context, subjects []*subject, rounds int, progress io.Writer) error {
	for round := range warmUps + rounds {
		if round%10 == warmUps {
			fmt.Fprintf(progress, "bench: round %d of %d\n", round-warmUps+1, rounds)
		}
		for _, s := range subjects {
			if err := ctx.Err(); err != nil {
				return err
			}
			if s.missing != "" {
				continue
			}
			took, err := s.once(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round >= warmUps {
				s.took = append(s.took, took)
			}
		}
	}
	return nil
}

// took returns the sample of the row of that name; an empty one where it was not measured.
func took(subjects []*subject, name string) sample {
	i := slices.IndexFunc(subjects, func(s *subject) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return subjects[i].took
}

func results(subjects []*subject) *table {
	t := &table{head: []string{"what", "median", "p99", "min", "÷ bare", "÷ bwrap", "÷ runc"}}
	for _, s := range subjects {
		if s.missing != "" {
			t.add(s.name+": not measured, "+s.missing, none, none, none, none, none, none)
			continue
		}
		t.add(s.name, millis(s.took.median()), millis(s.took.percentile(99)), millis(s.took.min()),
			times(s.took.ratio(took(subjects, s.bare))),
			times(s.took.ratio(took(subjects, s.bwrap))),
			times(s.took.ratio(took(subjects, s.runc))))
	}
	return t
}

// tellMedians tells on which machine and under which load medians of so many rounds were made.
func tellMedians(w io.Writer, host string, rounds int) error {
	load, err := loadAverage()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\nLoad average at the end: %s.\n\nMedians of %d, in milliseconds.\n\n",
		host, load, rounds)
	return err
}

// medians is a table of a subject, and of one that takes more. The last row says what it adds, of
// each pair of measurements.
func medians(less, more *subject, adds string) *table {
	t := &table{head: []string{"what", "median", "p99", "min"}}
	for _, s := range []*subject{less, more} {
		t.add(s.name, millis(s.took.median()), millis(s.took.percentile(99)), millis(s.took.min()))
	}
	var added sample
	for n, took := range less.took {
		added = append(added, more.took[n]-took)
	}
	t.add(adds, millis(added.median()), none, none)
	return t
}
