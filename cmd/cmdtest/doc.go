// Package cmdtest is the fixture of the end-to-end tests: hosts with the built programs and a state
// directory of their own, shared daemons, live runs, sessions and terminals, and the check that
// nothing is left of them. It is imported by tests only. Test binaries that use it may run at the
// same time: what a host looks for is its own by its state directory and by the ids of its runs.
package cmdtest
