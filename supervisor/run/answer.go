package run

import "github.com/jail-sandbox/jail/runners"

// Bounds on the texts of an answer, in bytes.
const (
	maxFailure  = 2 << 10
	maxSentence = 512
	maxClass    = 64
	// the largest signal
	maxSignal = 64
)

// checkAnswer takes from inside only what has the form of an answer: texts of bounded length that a
// terminal shows as they are. An honest jail-init says nothing else; one that a broken engine took
// over says what it likes.
func checkAnswer(said runners.Answer) runners.Answer {
	out := runners.Answer{Failure: runners.Printable(said.Failure, maxFailure),
		Layer: runners.Printable(said.Layer, maxClass), NoCwd: said.NoCwd,
		NoExec: said.NoExec}
	if said.Report == nil {
		return out
	}
	rep := *said.Report
	rep.Denied = checkDenied(rep.Denied)
	for i, d := range rep.Denied {
		rep.Denied[i].What, rep.Denied[i].Rule = runners.Printable(d.What, maxDeniedText),
			runners.Printable(d.Rule, maxDeniedText)
	}
	if rep.Trap != nil {
		rep.Trap = &runners.Trap{Class: runners.Printable(rep.Trap.Class, maxClass),
			Sentence: runners.Printable(rep.Trap.Sentence, maxSentence)}
	}
	if rep.Signal < 0 || rep.Signal > maxSignal {
		rep.Signal = 0
	}
	out.Report = &rep
	return out
}
