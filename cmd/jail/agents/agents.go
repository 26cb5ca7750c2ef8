// Package agents has the commands that make jail the sandbox of a coding agent: setup writes the
// agent's configuration, and hook answers the agent before it runs a shell command.
package agents
