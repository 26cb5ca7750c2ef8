package main

import (
	"testing"
	"time"
)

// A goal whose row does not exist would be "not measured" for ever.
func TestGoalsHaveTheirRows(t *testing.T) {
	var subjects []*subject
	for _, name := range []string{bareTrue, versionRow, bwrapTrue, bwrapGrep, runPaused, runAgain,
		execPaused, execAgain, callPaused, callAgain, sharePaused, shareAgain, firstRow, runcTrue,
		coldRow} {
		subjects = append(subjects, &subject{name: name, took: sample{time.Millisecond}})
	}
	for _, g := range timeGoals(subjects) {
		if g.verdict == unknown || g.now == none || g.ratio != "1.00" {
			t.Errorf("%+v", g)
		}
	}
}

func TestRateGoals(t *testing.T) {
	got := rateGoal("a", 70, []float64{60, 80, 70}, "b", []float64{140})
	want := goal{what: "a", limit: "≥ 70", now: "70", peer: "b: 140", ratio: "0.50", verdict: met}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := rateGoal("a", 70, []float64{69}, "b", nil); got.verdict != missed ||
		got.ratio != none {
		t.Errorf("%+v", got)
	}
}
