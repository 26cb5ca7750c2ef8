package api

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// NewKey returns a secret for a proposal of an action that the caller carries out.
func NewKey() string { return rand.Text() }

// ErrChanged says of an approved action that what it is about is not as it was when it was
// proposed, and that nothing was done.
var ErrChanged = errors.New("it has changed since it was proposed")

// ErrUnsettled is wrapped by what do of Carry returns if the action may still be carried out.
var ErrUnsettled = errors.New("nobody knows yet how it ended")

// Wait is Get as soon as the action does not wait for a decision any more. It waits until ctx ends,
// and the action goes on waiting then: no decision is no refusal.
func (a *Approvals) Wait(ctx context.Context, id string) (approvals.Action, error) {
	for {
		found, err := a.Await(ctx, id, time.Minute)
		if err != nil || found.State != approvals.Pending {
			return found, err
		}
	}
}

// Carry claims an approved action, does it, and reports how it ended. What do returns is the outcome
// that people are shown; an error that is ErrChanged makes the action stale, another one failed. With
// ErrUnsettled the action stays applying, and the caller reports its end later.
//
// do is called once at most, here or anywhere, and only after the claim is on record. If the caller
// is killed in do, the action stays applying, and a person settles it. An action is not given to
// Carry twice.
func (a *Approvals) Carry(ctx context.Context, id, key string,
	do func(approvals.Action) (outcome string, err error)) (approvals.Action, error) {
	claimed, err := a.Claim(ctx, id, key)
	var answer *problem.Error
	if err != nil && !errors.As(err, &answer) {
		// The daemon may have noted the claim and not said so.
		_, lost := a.report(ctx, id, approvals.ReportRequest{Key: key, State: approvals.Failed,
			Error: "the answer to the claim was lost, and nothing was done"})
		return claimed, errors.Join(err, lost)
	}
	if err != nil {
		return claimed, err
	}
	outcome, failed := do(claimed)
	if errors.Is(failed, ErrUnsettled) {
		return claimed, failed
	}
	r := approvals.ReportRequest{Key: key, State: approvals.Applied,
		Outcome: strings.ReplaceAll(reportable(outcome), "\n", " ")}
	if claimed.State == approvals.Reverting {
		r.State, r.Outcome = approvals.Reverted, ""
	}
	if failed != nil {
		r.State, r.Outcome, r.Error = approvals.Failed, "", reportable(failed.Error())
		if errors.Is(failed, ErrChanged) && claimed.State != approvals.Reverting {
			r.State = approvals.Stale
		}
	}
	ended, err := a.report(ctx, id, r)
	return ended, errors.Join(failed, err)
}

// report is Report again and again until a daemon answers: the same report may come twice. It goes
// on after the end of ctx, since what is reported was done.
func (a *Approvals) report(ctx context.Context, id string,
	r approvals.ReportRequest) (approvals.Action, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer stop()
	for {
		ended, err := a.Report(ctx, id, r)
		var answer *problem.Error
		if err == nil || errors.As(err, &answer) {
			return ended, err
		}
		if !tick.Wait(ctx.Done(), 100*time.Millisecond) {
			return ended, err
		}
	}
}

// reportable is a text as a report takes it, bounded and without characters that nobody sees. Often a
// remote host has chosen the text, and a report that the daemon refuses would leave the action
// applying.
func reportable(text string) string {
	return runners.Cut(strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?")), maxReported)
}

// maxReported bounds a text that is reported, in bytes, below what a daemon takes.
const maxReported = 1000
