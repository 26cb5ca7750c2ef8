// Package agents manages the agents of one user: it wakes an agent in a jail when an event waits
// for it, delivers the events, and makes it sleep when there are no more.
//
//	agents.go    which agents are awake, and whose turn it is; when alarms are due
//	run.go       one awake agent: its orders and reports, until it sleeps
//	blame.go     what a failure means: another try, a dead letter, or no more tries
//	calls.go     what an agent asks for while it works on an event
//	facets.go    children of agents, which agents call
//	families.go  what an agent has is divided among it and its facets
//	load.go      programs that agents run once
//	bound.go     what such a program may call
//	command.go   tools that agents run
//	changes.go   what those changed, by conversations
//	gates.go     gatekeepers of the owner's resources, which agents use
//	install.go   how agents come, change and go
//	branch.go    an agent that begins with the state of another
//	builtins.go  the agents that are a part of jail, which nobody installs
//	watch.go     changes of an agent's files
//	model.go     a model is asked by a run of the tool fetch, which has the credential
//
// The promise of delivery, in seven rules, is in SPECIFICATION.md. Three places keep it: the
// agent's own database in its jail, where an event is one transaction; [store.Store.Ack], which
// takes a committed event out of the inbox in the transaction in which it delivers the effects; and
// [run.begin], which brings the two together after a crash of either side.
package agents
