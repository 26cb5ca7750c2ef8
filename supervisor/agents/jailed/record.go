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

// Bounds of records that wait until jaild has taken them.
const (
	maxRecords = 10_000
	// atOnce is how many records go to jaild together.
	atOnce = 100
	// retry is the pause before jaild is asked again, last how long records are sent when
	// jail-agentd ends.
	retry = time.Second
	last  = 5 * time.Second
)

// Records are steps of agents on their way to the log of jail.
type Records struct {
	waiting chan audit.AgentStep
	end     chan struct{}
	ended   chan struct{}
	// giveUp ends the requests to jaild.
	giveUp context.CancelFunc
}

// Record returns Records that jaild puts into its log. What it refuses, log gets.
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

// Add adds a record. It blocks while too many wait for jaild.
func (r *Records) Add(step audit.AgentStep) {
	select {
	case r.waiting <- step:
	case <-r.end:
	}
}

// Close sends what waits, for a few seconds.
func (r *Records) Close() {
	close(r.end)
	defer time.AfterFunc(last, r.giveUp).Stop()
	<-r.ended
	r.giveUp()
}

// send sends what waits, and ends when all is sent that came before Close.
func (r *Records) send(ctx context.Context, j *Jaild, log *slog.Logger) {
	for {
		var group []audit.AgentStep
		select {
		case step := <-r.waiting:
			group = append(group, step)
		case <-r.end:
		}
		// Nobody else receives from the channel.
		for len(group) < atOnce && len(r.waiting) > 0 {
			group = append(group, <-r.waiting)
		}
		if len(group) == 0 {
			return
		}
		r.put(ctx, j, log, group)
	}
}

// put has jaild record a group, and asks again as long as jaild does not answer.
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
