package mcp

import (
	"context"
	"errors"

	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// A session is the session of jail in which all tools run.
type session struct{ *toolsession.Session }

// run is Run with an error in the words that a client gets.
func (s session) run(ctx context.Context, c toolsession.Call) (toolsession.Outcome, error) {
	o, err := s.Run(ctx, c)
	return o, plain(err)
}

// plain is an error in the words that a client gets: what is wrong, and what to do.
func plain(err error) error {
	if err == nil {
		return nil
	}
	p := problem.From(err)
	if p.Hint == "" {
		return errors.New(p.Message)
	}
	return errors.New(p.Message + "; " + p.Hint)
}
