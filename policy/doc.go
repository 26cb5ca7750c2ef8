// Package policy says what a jail may do, as a point in a bounded lattice, so that
// crossing a boundary of trust can only ever narrow.
//
// A Policy is made of parts (Workspace, Mounts, Limits, Tools, Fetch, Env, Syscalls, Audit).
// The zero value of each grants nothing and is the bottom of its lattice; the Top
// function of each grants everything. Two policies meet: what both grant, and no more.
// Only Resolve makes an Effective, and it always meets ceiling, profile and request.
//
// The parts that are lists of rules (mounts, hosts, globs) share one construction: a
// list is a union of rules, in normal form the rules that lie below no other; the meet
// of two lists is every pairwise meet of their rules, brought into normal form again.
// That is exact because the meet of two rules is itself a list of rules, and it obeys
// the lattice laws for the same reason. See list.go.
//
// The package is pure: it opens nothing, and imports only the standard library.
package policy
