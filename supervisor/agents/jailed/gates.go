package jailed

import (
	"context"

	"github.com/jail-sandbox/jail/supervisor/gatekeepers"
)

// RunOf returns the id of the run of an instance that is awake, empty for none.
func (j *Jaild) RunOf(instance string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.runs[instance]
}

// Actions returns jaild's approval queue, and what closes the connection to it.
func (j *Jaild) Actions(ctx context.Context) (gatekeepers.Queue, func(), error) {
	c, err := j.client(ctx)
	if err != nil {
		return nil, nil, err
	}
	return c.Approvals(), func() { c.Close() }, nil
}
