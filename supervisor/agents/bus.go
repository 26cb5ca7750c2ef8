package agents

import (
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
)

// A Bus keeps events until they are committed. [store.Store] is one.
//
// Each method is durable when it returns. The events of one inbox have increasing numbers, and
// Next returns them in that order.
type Bus interface {
	// Append puts an event into the inbox of an instance and returns its number there. An event
	// whose source and id are known has the number that it got the first time. Without room it
	// returns store.ErrFull. With deliver it delivers the event, as Next does, if no other waits: it
	// then returns it.
	Append(to int64, e agent.Event, deliver bool) (seq uint64, given *agent.Event, err error)
	// Next returns the events of an instance after a number, at most limit, and whether there may be
	// more. It counts a delivery of each.
	Next(to int64, after uint64, limit int) (events []agent.Event, more bool, err error)
	// Ack takes the events up to a number out of the inbox and delivers their effects, both or
	// neither. Effects of events that were taken out before are not delivered again. With spill it
	// does not return store.ErrFull, but makes what a receiver has no room for a dead letter. It
	// delivers what is wanted, as Next does.
	Ack(of int64, seq uint64, effects []agent.Effects, spill bool,
		want store.Want) (store.Settlement, error)
}
