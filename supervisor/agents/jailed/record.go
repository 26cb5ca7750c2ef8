package jailed

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Settings of Records. maxRecords is how many steps may wait for jaild.
const (
	maxRecords = 10_000
	// atOnce is how many steps are sent to jaild in one request.
	atOnce = 100
	// retry is the pause before a request is repeated, last how long Close waits for requests.
	retry = time.Second
	last  = 5 * time.Second
)

// Records sends steps of agents to jaild, which writes them to the audit log.
type Records struct {
	waiting chan audit.AgentStep
	end     chan struct{}
	ended   chan struct{}
	// giveUp cancels the requests to jaild.
	giveUp context.CancelFunc
}

// Record returns a new Records. Steps that jaild refuses are written to log.
func (j *Jaild) Record(log *slog.Logger) *Records {
	ctx, giveUp := context.WithCancel(context.Background())
	r := &Records{waiting: make(chan audit.AgentStep, maxRecords), end: make(chan struct{}),
		ended: make(chan struct{}), giveUp: giveUp}
	go func() {
		defer close(r.ended)
		r.send(ctx, j, log)
	}()
	return r
}

// Add queues a step. It blocks while maxRecords wait, and drops the step after Close.
func (r *Records) Add(step audit.AgentStep) {
	select {
	case r.waiting <- step:
	case <-r.end:
	}
}

// Close sends the queued steps, for at most last, and logs those that it cannot send.
func (r *Records) Close() {
	close(r.end)
	defer time.AfterFunc(last, r.giveUp).Stop()
	<-r.ended
	r.giveUp()
}

// send sends queued steps in groups. It returns after Close when the queue is empty.
func (r *Records) send(ctx context.Context, j *Jaild, log *slog.Logger) {
	for {
		var group []audit.AgentStep
		select {
		case step := <-r.waiting:
			group = append(group, step)
		case <-r.end:
		}
		// This goroutine is the only receiver, so the receive does not block.
		for len(group) < atOnce && len(r.waiting) > 0 {
			group = append(group, <-r.waiting)
		}
		if len(group) == 0 {
			return
		}
		r.put(ctx, j, log, group)
	}
}

// put sends a group of steps to jaild, and repeats the request until jaild answers or ctx is done.
func (r *Records) put(ctx context.Context, j *Jaild, log *slog.Logger, group []audit.AgentStep) {
	for warned := false; ; {
		c, err := j.client(ctx)
		if err == nil {
			_, err = api.RecordSteps(ctx, c.Client, group...)
			c.Close()
			if err == nil {
				return
			}
			if e, ok := errors.AsType[*problem.Error](err); ok && !passing(e.Code) {
				refused(log, group, err)
				return
			}
		}
		if !warned {
			log.Warn("steps of agents wait to be put on record", "error", err)
			warned = true
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			log.Error("steps of agents are not on record", "steps", len(group), "error", err)
			return
		}
	}
}

func refused(log *slog.Logger, group []audit.AgentStep, err error) {
	for _, step := range group {
		log.Error("jaild refuses to record a step of an agent", "instance", step.Instance,
			"step", step.Step, "error", err)
	}
}
