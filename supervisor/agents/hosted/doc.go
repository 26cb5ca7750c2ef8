// Package hosted runs agents that have the rights of their user: the built-in ones, and those with
// runtime = "host" in the host's own folder. They are in no jail, and have the same events, storage
// and calls as those that are.
//
//	hosted.go     jail-agentd's side: a process for each awake agent
//	process.go    that process: the host of the agent, with its database
//	responder.go  a built-in agent: a program answers a message
//	native.go     an agent of the host's folder: a program that speaks HTTP
//
// The process hosts the agent as process 1 of a jail does (package runners/agent/host), and carries
// the same frames, so that a failure means the same in both tiers. It is the program of jail-agentd
// itself with an argument. All that an agent starts is in the process's group, which is ended with
// it.
package hosted
