package fetch

import (
	"net/netip"
	"slices"
	"time"

	"github.com/jail-sandbox/jail/policy"
)

// The daemon and the proxy of a run speak over one socket, in frames of jail/control:
//
//	jaild ──Setup, sockets─► proxy     once, first: the jail's socket, and the second one, if any
//	jaild ◄──Ready────────── proxy     it is confined; with its authority's certificate, if any
//	jaild ◄──Question─────── proxy     before that, if the policy holds the request back
//	jaild ──Answer─────────► proxy     the verdict
//	jaild ◄──Intent───────── proxy     before anything is dialled
//	jaild ──Answer─────────► proxy     the intent is on record, or the request must not be sent
//	jaild ◄──Outcome──────── proxy     how the request ended
//	jaild ◄──Refused──────── proxy     a request that was not sent
//
// Intents, outcomes and answers are packed, the others are JSON. The proxy ends when the daemon
// closes its end or dies. If an internal host is a Unix socket, a second socket carries
//
//	jaild ◄──socketRequest──────────── proxy     an intent on record needs its connection
//	jaild ──socketAnswer, connection─► proxy     the connection, or why it failed

// Setup is everything that a proxy knows.
type Setup struct {
	// UID of this proxy alone; also its GID.
	UID    uint32       `json:"uid"`
	Filter []byte       `json:"filter"`
	Layers []SetupLayer `json:"layers"`
	// Ceiling is the name of the layer that report mode does not exceed.
	Ceiling string            `json:"ceiling"`
	Servers []netip.AddrPort  `json:"servers"`
	NAT64   []netip.Prefix    `json:"nat64,omitempty"`
	Roots   []byte            `json:"roots"` // PEM
	Secrets map[string]Secret `json:"secrets,omitempty"`
	// Queries records queries as they are.
	Queries bool `json:"queries,omitempty"`
	// Scopes narrow the layers further, each for some tools of a script.
	Scopes []SetupLayer `json:"scopes,omitempty"`
	// Intercept ends the TLS of tunnels at the proxy, with an authority of its own, unless a rule
	// makes them opaque.
	Intercept bool `json:"intercept,omitempty"`
	// Internal are the hosts inside the operator's network.
	Internal []Internal `json:"internal,omitempty"`
}

// sockets reports whether an entry of Internal is a Unix socket of the host.
func (s *Setup) sockets() bool {
	return slices.ContainsFunc(s.Internal, func(e Internal) bool { return e.Socket != "" })
}

// SetupLayer is the fetch part of one layer of the policy.
type SetupLayer struct {
	Name   string       `json:"name"`
	Source string       `json:"source"`
	Fetch  policy.Fetch `json:"fetch"`
	// Approve holds requests back until somebody has approved them.
	Approve policy.Approve `json:"approve,omitempty"`
}

// fromProxy is a message of the proxy; exactly one field is set.
type fromProxy struct {
	Ready *ready `json:"ready,omitempty"`
	// Failed says why the proxy could not confine itself.
	Failed  string   `json:"failed,omitempty"`
	Intent  *Intent  `json:"intent,omitempty"`
	Outcome *Outcome `json:"outcome,omitempty"`
	Refused *Refused `json:"refused,omitempty"`
	// Question is about a request whose intent follows if it is approved.
	Question *Question `json:"question,omitempty"`
	// Gone is the question that nobody waits for any more.
	Gone uint64 `json:"gone,omitempty"`
}

// ready reports that the proxy is confined and serves.
type ready struct {
	// Authority is the PEM certificate that the run's tools trust.
	Authority []byte `json:"authority,omitempty"`
}

// What describes a request in a record.
type What struct {
	// ID is unique within this proxy.
	ID     uint64 `json:"id"`
	Kind   string `json:"kind"`
	Method string `json:"method,omitempty"`
	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	Port   uint16 `json:"port"`
	Path   string `json:"path,omitempty"`
	// Query is a hash, unless the settings say otherwise.
	Query      string `json:"query,omitempty"`
	Decision   string `json:"decision"`
	Layer      string `json:"layer"`
	Rule       string `json:"rule"`
	Credential string `json:"credential,omitempty"`
	// Mode says who ends the TLS.
	Mode string `json:"mode,omitempty"`
	// After is the request whose redirect this one follows.
	After uint64 `json:"after,omitempty"`
	// Hops counts the redirects so far.
	Hops int `json:"hops,omitempty"`
	// Internal: the host is inside the operator's network.
	Internal bool `json:"internal,omitempty"`
}

// Kinds of requests.
const (
	kindRequest   = "request"
	kindTunnel    = "tunnel"
	kindWebSocket = "websocket"
	// Only host and port are known yet; recorded as a tunnel.
	kindHost = "host"
)

// Modes of TLS.
const (
	// Only the proxy speaks TLS.
	modeProxy = "proxy"
	// The tool speaks TLS to the proxy, and the proxy to the host.
	modeIntercept = "intercept"
	// The tool speaks TLS to the host; the proxy sees only the name.
	modeOpaque = "opaque"
)

// Decisions.
const (
	Allowed = "allowed"
	Denied  = "denied"
	// No rule grants it, and report mode let it pass.
	Reported = "report"
)

// Intent describes a request before it is sent.
type Intent struct {
	What
	Addresses []netip.Addr  `json:"addresses"`
	Resolve   time.Duration `json:"resolve_ns"`
	// Socket is the Unix socket of the host that is dialled in place of an address.
	Socket string `json:"socket,omitempty"`
}

// socketRequest asks for a connection to the Unix socket of an intent that is on record.
type socketRequest struct {
	ID uint64 `json:"id"`
}

// socketAnswer answers a socketRequest. It carries the connection, unless it failed.
type socketAnswer struct {
	Failed string `json:"failed,omitempty"`
}

// answer is the daemon's answer to an intent.
type answer struct {
	ID uint64 `json:"id"`
	// Refuse says why the request must not be sent.
	Refuse string `json:"refuse,omitempty"`
	// Failed: the intent is not on record.
	Failed bool `json:"failed,omitempty"`
	// End is no answer: the run has ended, and the proxy sends its last messages and ends.
	End bool `json:"end,omitempty"`
	// Code and Next are of the refusal that answers a question; Refuse is its message. An intent
	// that nobody approved has a code, too.
	Code string `json:"code,omitempty"`
	Next string `json:"next,omitempty"`
	// Approval is the id of the action that waits, if the refusal is for that.
	Approval string `json:"approval,omitempty"`
}

// Outcome describes the end of an intended request.
type Outcome struct {
	ID uint64 `json:"id"`
	// Address is the dialled address.
	Address string `json:"address,omitempty"`
	Status  int    `json:"status,omitempty"`
	// Bytes on the wire, with TLS.
	BytesIn  int64         `json:"bytes_in"`
	BytesOut int64         `json:"bytes_out"`
	Connect  time.Duration `json:"connect_ns,omitempty"`
	TLS      time.Duration `json:"tls_ns,omitempty"`
	// First is the time from the start to the first byte of the response.
	First     time.Duration `json:"first_ns,omitempty"`
	Total     time.Duration `json:"total_ns"`
	Reused    bool          `json:"reused,omitempty"`
	Truncated bool          `json:"truncated,omitempty"`
	// Scrubbed: a secret was removed from the response.
	Scrubbed bool   `json:"scrubbed,omitempty"`
	Version  string `json:"tls_version,omitempty"`
	// Peer is the SHA-256 of the certificate.
	Peer string `json:"tls_peer,omitempty"`
	// Redirect is the target of the response's redirect, without query.
	Redirect string `json:"redirect,omitempty"`
	Error    string `json:"error,omitempty"`
}

// Refused is a request that was not sent. Count is the number of equal refusals that it stands for.
type Refused struct {
	What
	Count int64 `json:"count"`
}
