package main

import (
	"fmt"
	"time"
)

// A budget is a promise, and what was measured of it.
type budget struct {
	what, limit, measured string
	verdict               verdict
}

type verdict string

const (
	met     verdict = "yes"
	missed  verdict = "no"
	unknown verdict = "not measured"
)

// budgets holds the figures against what jail promises beside the goals of reach.go. verified is
// how many records are verified in a second.
func budgets(subjects []*subject, verified float64) []budget {
	of := func(name string) sample { return took(subjects, name) }
	return []budget{
		atMost("whole `jail run`, no daemon at all", of(aloneTrue).median(), 60*time.Millisecond),
		atMost("prepare a workspace of 100,000 files", of(prepMany).median(), 3*time.Millisecond),
		ratioAtMost("the same against 1,000 files", of(prepMany), of(prepFew), flat),
		atMost("diff after 10 changes in 100,000 files", of(diffMany).median(), 5*time.Millisecond),
		ratioAtMost("the same against 1,000 files", of(diffMany), of(diffFew), flat),
		atMost("deadline to the end of the run, start included, p99: a loop",
			of(wallTrue).percentile(99), 100*time.Millisecond),
		atMost("the same: a read of nothing", of(wallRead).percentile(99), 100*time.Millisecond),
		atMost("the same: a sleep", of(wallSleep).percentile(99), 100*time.Millisecond),
		atLeast("audit records verified a second", verified, 500_000),
	}
}

// flat is how much two medians of the same thing differ at most on a machine that does other things
// too.
const flat = 1.25

func judge(ok bool) verdict {
	if ok {
		return met
	}
	return missed
}

// atMost is a budget of time; no time at all was not measured.
func atMost(what string, got, limit time.Duration) budget {
	b := budget{what: what, limit: fmt.Sprintf("≤ %d ms", limit.Milliseconds()), measured: none,
		verdict: unknown}
	if got > 0 {
		b.measured, b.verdict = millis(got)+" ms", judge(got <= limit)
	}
	return b
}

// ratioAtMost is a budget of two medians' ratio.
func ratioAtMost(what string, s, other sample, limit float64) budget {
	b := budget{what: what, limit: fmt.Sprintf("≤ %.2f ×", limit), measured: none, verdict: unknown}
	if got, ok := s.ratio(other); ok {
		b.measured, b.verdict = fmt.Sprintf("%.2f ×", got), judge(got <= limit)
	}
	return b
}

// atLeast is a budget of how much can be done in a second.
func atLeast(what string, got, limit float64) budget {
	b := budget{what: what, limit: fmt.Sprintf("≥ %.0f", limit), measured: none, verdict: unknown}
	if got > 0 {
		b.measured, b.verdict = fmt.Sprintf("%.0f", got), judge(got >= limit)
	}
	return b
}

func budgetTable(all []budget) *table {
	t := &table{head: []string{"what", "budget", "measured", "met"}}
	for _, b := range all {
		t.add(b.what, b.limit, b.measured, string(b.verdict))
	}
	return t
}
