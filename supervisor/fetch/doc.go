// Package fetch is the fetch proxy, a jail's only way to the network. It decides and records every
// request before a byte of the request leaves the host.
//
// All requests pass one pipeline (serve.go, proxy.go):
//
//	validate   strict HTTP/1.1 and names, one canonical form of each path; refuse ambiguous input
//	decide     the policy's rule, with the layer that gave or refused it
//	budget     requests, rate, concurrent requests, bytes both ways, for the run and for the host
//	resolve    once, by our own resolver; a name that no rule grants is never looked up
//	check      every address of the answer; one forbidden address refuses all of them
//	record     the intent, by the daemon, before anything is dialled
//	dial       that very address
//	send       the decided request and nothing else: canonical bytes, headers with one meaning
//	record     the outcome, with the bytes on the wire both ways
//
// The proxy is a process of its own for each run (process.go and confine.go). It has no rights,
// opens no file, holds only the credentials of this run, and can reach only the network and the
// daemon's socket. If it dies, the run has no network, and the record says so.
//
// The jail holds one end of the proxy's socket. An OpenStream message on the socket requests a
// stream; the proxy answers with Opened and the stream's descriptor, or refuses. On the stream the
// tool speaks HTTP/1.1 as to any proxy: absolute URLs, also https ones, which the proxy fetches
// itself, or CONNECT.
package fetch
