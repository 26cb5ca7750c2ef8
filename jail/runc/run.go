package runc

import (
	"context"
	"errors"
	"time"

	"github.com/opencontainers/runc/libcontainer"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/tick"
)

const (
	// killEvery is how often the processes of a start that was cancelled are killed. They clone
	// each other, so that one look may come too early for the next of them.
	killEvery = time.Millisecond
	// execGrace is how long the last step of a start may take after the start was cancelled. The
	// step takes a millisecond or two, and libcontainer notices only after 100 ms that its process
	// was killed.
	execGrace = 50 * time.Millisecond
)

// run starts the container's process, as Container.Run does. If ctx ends meanwhile, run kills the
// processes that libcontainer has started for it, and the start fails as one whose processes die by
// themselves. On error none of them is left.
func run(ctx context.Context, container *libcontainer.Container,
	process *libcontainer.Process) error {
	err := interruptible(ctx, 0, func() error { return container.Start(process) })
	if err == nil {
		err = interruptible(ctx, execGrace, container.Exec)
	}
	if err != nil {
		endChildren()
	}
	return err
}

// interruptible does a step that waits for children of this process. If ctx ends meanwhile, it
// kills the children after the grace period until the step returns, and ctx's error is part of the
// result.
func interruptible(ctx context.Context, grace time.Duration, step func() error) error {
	ended, killed := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(killed)
		select {
		case <-ended:
		case <-time.After(grace):
			killUntil(ended)
		}
	})
	err := step()
	close(ended)
	if stop() {
		return err
	}
	<-killed
	return errors.Join(ctx.Err(), err)
}

// killUntil kills the children of this process until done is closed.
func killUntil(done <-chan struct{}) {
	sys.KillChildren()
	for range tick.Each(done, killEvery) {
		sys.KillChildren()
	}
}

// endChildren kills the children of this process and waits for their end: a control group cannot be
// removed before. On a kernel that does not list them, libcontainer alone ends what it has started.
func endChildren() {
	if !sys.KillChildren() {
		return
	}
	reaped := make(chan struct{})
	go killUntil(reaped)
	sys.ReapChildren()
	close(reaped)
}
