package fetch

import (
	"context"
	"errors"
	"time"
)

// letGo returns the request's token of bodies.
func (tr *trip) letGo() {
	if tr.held {
		<-tr.p.bodies
		tr.held = false
	}
}

// unheard reports whether a request may be sent again: its host had closed the kept connection, no
// byte of a response came, and its method allows it.
func (tr *trip) unheard(ctx context.Context, method string) bool {
	return tr.out.Reused && tr.up.meter.in.Load() == tr.in0 && ctx.Err() == nil &&
		(method == "GET" || method == "HEAD" || method == "OPTIONS")
}

// again ends one attempt, with a record, and starts another with a new number.
func (tr *trip) again() {
	tr.done()
	tr.up.close()
	tr.what.ID = tr.p.ids.Add(1)
	tr.up, tr.out, tr.intend, tr.stop, tr.in0, tr.out0, tr.start = nil, Outcome{}, false, nil, 0, 0,
		time.Now()
}

// clean removes the credential from a text about the request: a host may return it in its status
// line or in a redirect.
func (tr *trip) clean(text string) string {
	if tr.secret == nil {
		return text
	}
	text, _ = tr.secret.scrubText(text)
	return text
}

// plain returns an error without the credential. It keeps wrapped errors whose text is not the
// host's.
func (tr *trip) plain(err error) error {
	if clean := tr.clean(err.Error()); clean != err.Error() {
		return errors.New(clean)
	}
	return err
}
