package supervisor

import (
	"sync"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// Nothing of a tool runs before it is on record, on the disk, that it will. What makes its jail ready is no part of the tool: of a run whose jail has waited
// for it, all that is to be recorded before it starts is known at once, and is written while the jail is made ready.

// intend puts on record that the run starts; of one whose jail stands also what it executes, and without waiting: intended does.
func (r *run) intend(started audit.RunStarted) error {
	if r.warm == nil {
		return r.record(started)
	}
	events := []audit.Event{started, r.job.exec()}
	written := make(chan error, 1)
	go func() { written <- r.recordAll(events) }()
	r.goes = sync.OnceValue(func() error { return <-written })
	return nil
}

// intended waits until what intend writes is on the disk.
func (r *run) intended() error {
	if r.goes == nil {
		return nil
	}
	return r.goes()
}

// recordExec puts on record what is executed, or waits until it is. A jail that holds a session executes nothing.
func (r *run) recordExec() error {
	if r.job.hold != nil {
		return nil
	}
	if r.goes != nil {
		return r.goes()
	}
	return r.record(r.job.exec())
}
