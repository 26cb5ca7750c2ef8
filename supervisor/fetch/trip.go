package fetch

import (
	"context"
	"errors"
	"time"
)

// letGo gives back the place of the request's body.
func (tr *trip) letGo() {
	if tr.held {
		<-tr.p.bodies
		tr.held = false
	}
}

// unheard reports whether a request was written to a kept connection that its host had ended, so that no byte of an answer came; and may be sent
// again by what its method means.
func (tr *trip) unheard(ctx context.Context, method string) bool {
	return tr.out.Reused && tr.up.meter.in.Load() == tr.in0 && ctx.Err() == nil && (method == "GET" || method == "HEAD" || method == "OPTIONS")
}

// again ends one attempt, on record, and starts another with a number of its own.
func (tr *trip) again() {
	tr.done()
	tr.up.close()
	tr.what.ID = tr.p.ids.Add(1)
	tr.up, tr.out, tr.intend, tr.stop, tr.in0, tr.out0, tr.start = nil, Outcome{}, false, nil, 0, 0, time.Now()
}

// clean cuts the credential out of what is said of the request: a host may say it back in its first line, or in where it sends the tool.
func (tr *trip) clean(text string) string {
	if tr.secret == nil {
		return text
	}
	text, _ = tr.secret.scrubText(text)
	return text
}

// plain is an error without the credential. What it wraps stays where its own text is not what a host said.
func (tr *trip) plain(err error) error {
	if clean := tr.clean(err.Error()); clean != err.Error() {
		return errors.New(clean)
	}
	return err
}
