package fetch

import (
	"context"
	"errors"
	"time"
)

// letGo returns the request's token of bodies.
func (rt *roundTrip) letGo() {
	if rt.held {
		<-rt.p.bodies
		rt.held = false
	}
}

// unheard reports whether a request may be sent again: its host had closed the kept connection, no
// byte of a response came, and its method allows it.
func (a *attempt) unheard(ctx context.Context, method string) bool {
	return a.out.Reused && a.up.meter.in.Load() == a.in0 && ctx.Err() == nil &&
		(method == "GET" || method == "HEAD" || method == "OPTIONS")
}

// again ends one attempt, with a record, and starts another with a new number.
func (rt *roundTrip) again() {
	rt.done()
	rt.try.up.close()
	rt.what.ID = rt.p.ids.Add(1)
	rt.try = attempt{start: time.Now()}
}

// clean removes the credential from a text about the request: a host may return it in its status
// line or in a redirect.
func (rt *roundTrip) clean(text string) string {
	if rt.secret == nil {
		return text
	}
	text, _ = rt.secret.scrubText(text)
	return text
}

// plain returns an error without the credential. It keeps wrapped errors whose text is not the
// host's.
func (rt *roundTrip) plain(err error) error {
	if clean := rt.clean(err.Error()); clean != err.Error() {
		return errors.New(clean)
	}
	return err
}
