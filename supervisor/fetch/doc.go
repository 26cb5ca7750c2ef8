// Package fetch is the fetch proxy, a jail's only way to the network, so that every request has a decision and a record before a byte of it
// leaves the host.
//
// Every way in leads through one pipeline (see pipeline.go):
//
//	validate   strict HTTP/1.1, strict names, one canonical form of each path; what can be read in two ways is refused
//	decide     the policy's rule, with the layer that gave or refused it
//	budget     requests, rate, requests at one time, bytes both ways, for the run and for the host
//	resolve    once, by our own resolver; a name that no rule grants is never asked for
//	check      every address of the answer; one that lies in the floor refuses all of them
//	record     the intent, by the daemon, before anything is dialled
//	dial       that very address
//	send       what was decided and nothing else: the canonical bytes, and headers that mean one thing
//	record     the outcome, with the bytes on the wire both ways
//
// The proxy is a process of its own for each run (see process.go and confine.go): it has no rights, opens no file, holds the credentials of this
// run only, and has as its only ways out the network and the daemon's socket. If it dies, the run has no network, and the record says so.
//
// The jail holds one end of a socket, the door. A byte written to it asks for a stream; the answer is a byte, with a descriptor where it
// is granted. On the stream the tool speaks HTTP/1.1 as to any proxy: absolute URLs, which the proxy fetches itself also where they are https, or
// CONNECT.
package fetch
