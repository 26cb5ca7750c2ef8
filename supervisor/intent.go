package supervisor

import (
	"sync"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

// Nothing of a tool runs before it is on record, on the disk, that it will. What makes its jail
// ready is no part of the tool: of a run whose jail has waited for it, all that is to be recorded
// before it starts is known at once, and is written while the jail is made ready.

// intend puts on record that the run starts; of one whose jail stands also what it executes, and
// without waiting: intended does.
func (r *run) intend(started audit.RunStarted) error {
	if r.warm.jail == nil {
		return r.records.Record(started)
	}
	events := []audit.Event{started, r.job.Exec()}
	written := make(chan error, 1)
	go func() { written <- r.records.RecordAll(events) }()
	r.warm.recorded = sync.OnceValue(func() error { return <-written })
	return nil
}

// intended waits until what intend writes is on the disk.
func (r *run) intended() error {
	if r.warm.recorded == nil {
		return nil
	}
	return r.warm.recorded()
}

// recordExec puts on record what is executed, or waits until it is. A jail that holds a session
// executes nothing.
func (r *run) recordExec() error {
	if r.job.Holds > 0 {
		return nil
	}
	if r.warm.recorded != nil {
		return r.warm.recorded()
	}
	return r.records.Record(r.job.Exec())
}
