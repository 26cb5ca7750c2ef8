// Package hosted runs agents without a jail, with the rights of their user: built-in agents, and
// agents with runtime = "host" in the host's own folder. They have the same events, storage and
// calls as agents in jails.
//
//	hosted.go     jail-agentd's side: a process for each awake agent
//	process.go    that process: the host of the agent, with its database
//	responder.go  a built-in agent: a program answers a message
//	native.go     an agent of the host's folder: a program that speaks HTTP
//
// The process runs the host of the agent (package runners/agent/host), as process 1 of a jail does,
// and exchanges the same frames, so that failures mean the same. It is the program of jail-agentd
// itself with an argument. All processes that an agent starts are in its process group, which is
// killed at the end.
package hosted
