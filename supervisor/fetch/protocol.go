package fetch

import (
	"net/netip"
	"time"

	"github.com/jail-sandbox/jail/policy"
)

// The daemon and the proxy of a run speak over one socket, in frames of jail/control:
//
//	jaild ──Setup, door────► proxy     once, before anything else
//	jaild ◄──Ready────────── proxy     it is confined; carries the certificate of its authority, if it has one
//	jaild ◄──Intent───────── proxy     before anything is dialled; carries what is about to be done
//	jaild ──Answer─────────► proxy     it is on record, or it must not happen
//	jaild ◄──Outcome──────── proxy     how it ended
//	jaild ◄──Refused──────── proxy     what was not done
//
// The daemon closing its end, or dying, ends the proxy.

// Setup is all that a proxy knows.
type Setup struct {
	UID     uint32            `json:"uid"` // nobody else's; the group too
	Filter  []byte            `json:"filter"`
	Layers  []SetupLayer      `json:"layers"`
	Ceiling string            `json:"ceiling"` // name of the layer that report mode does not reach past
	Servers []netip.AddrPort  `json:"servers"`
	NAT64   []netip.Prefix    `json:"nat64,omitempty"`
	Roots   []byte            `json:"roots"` // PEM
	Secrets map[string]Secret `json:"secrets,omitempty"`
	Queries bool              `json:"queries,omitempty"` // queries are recorded as they are
	// Scopes narrow the layers further, each for some of the tools of a script.
	Scopes []SetupLayer `json:"scopes,omitempty"`
	// Intercept ends the TLS of tunnels at the proxy, with an authority of its own, where no rule says that they are opaque.
	Intercept bool `json:"intercept,omitempty"`
}

// SetupLayer is what a layer of the policy says of fetches.
type SetupLayer struct {
	Name   string       `json:"name"`
	Source string       `json:"source"`
	Fetch  policy.Fetch `json:"fetch"`
}

// FromProxy is what the proxy says; exactly one field is set.
type FromProxy struct {
	Ready   *Ready   `json:"ready,omitempty"`
	Failed  string   `json:"failed,omitempty"` // it could not confine itself
	Intent  *Intent  `json:"intent,omitempty"`
	Outcome *Outcome `json:"outcome,omitempty"`
	Refused *Refused `json:"refused,omitempty"`
}

// Ready says that the proxy is confined and serves.
type Ready struct {
	Authority []byte `json:"authority,omitempty"` // PEM, of the certificate that the run's tools are to trust
}

// A What is what a record says of a request.
type What struct {
	ID         uint64 `json:"id"` // of this proxy
	Kind       string `json:"kind"`
	Method     string `json:"method,omitempty"`
	Scheme     string `json:"scheme"`
	Host       string `json:"host"`
	Port       uint16 `json:"port"`
	Path       string `json:"path,omitempty"`
	Query      string `json:"query,omitempty"` // hashed, unless the policy says otherwise
	Decision   string `json:"decision"`
	Layer      string `json:"layer"`
	Rule       string `json:"rule"`
	Credential string `json:"credential,omitempty"`
	Mode       string `json:"mode,omitempty"`  // of TLS: who ends it
	After      uint64 `json:"after,omitempty"` // the request whose answer sent the tool here
	Hops       int    `json:"hops,omitempty"`  // redirects so far
}

// Kinds of requests.
const (
	kindRequest   = "request"
	kindTunnel    = "tunnel"
	kindWebSocket = "websocket"
	kindHost      = "host" // of which only host and port are known yet; recorded as a tunnel
)

// Modes of TLS.
const (
	modeProxy     = "proxy"     // the tool speaks none; the proxy does
	modeIntercept = "intercept" // the tool speaks it to the proxy, and the proxy to the host
	modeOpaque    = "opaque"    // the tool speaks it to the host; the proxy sees the name alone
)

// Decisions.
const (
	Allowed  = "allowed"
	Denied   = "denied"
	Reported = "report" // no rule grants it, and report mode let it pass
)

// Intent is what is about to be done.
type Intent struct {
	What
	Addresses []netip.Addr  `json:"addresses"`
	Resolve   time.Duration `json:"resolve_ns"`
}

// Answer is the daemon's to an intent.
type Answer struct {
	ID     uint64 `json:"id"`
	Refuse string `json:"refuse,omitempty"` // why not
	Failed bool   `json:"failed,omitempty"` // it is not on record
	End    bool   `json:"end,omitempty"`    // no answer: the run has ended; say what is left to say, and end
}

// Outcome is how what was intended ended.
type Outcome struct {
	ID        uint64        `json:"id"`
	Address   string        `json:"address,omitempty"` // that was dialled
	Status    int           `json:"status,omitempty"`
	BytesIn   int64         `json:"bytes_in"` // on the wire, TLS and all
	BytesOut  int64         `json:"bytes_out"`
	Connect   time.Duration `json:"connect_ns,omitempty"`
	TLS       time.Duration `json:"tls_ns,omitempty"`
	First     time.Duration `json:"first_ns,omitempty"` // from the start to the first byte of the answer
	Total     time.Duration `json:"total_ns"`
	Reused    bool          `json:"reused,omitempty"`
	Truncated bool          `json:"truncated,omitempty"`
	Scrubbed  bool          `json:"scrubbed,omitempty"` // a secret was cut out of the answer
	Version   string        `json:"tls_version,omitempty"`
	Peer      string        `json:"tls_peer,omitempty"` // SHA-256 of the certificate
	Redirect  string        `json:"redirect,omitempty"` // where the answer sends the client, without query
	Error     string        `json:"error,omitempty"`
}

// Refused is a request that was not sent. Count is how many alike it stands for.
type Refused struct {
	What
	Count int64 `json:"count"`
}
