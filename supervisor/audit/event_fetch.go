package audit

import "time"

// Fetch is one request to the network. A request that is sent has two records: Begun before
// anything is dialled, and one with the outcome, whose cause is the first. A refused request has
// one record.
type Fetch struct {
	Begun bool
	Kind  string // request, tunnel, websocket
	// Decision is allowed, denied, or report: no rule grants it, and the policy lets it pass.
	Decision string
	// Of the policy, or fetch.
	Layer  string
	Rule   string
	Method string
	Scheme string
	Host   string
	Port   uint16
	// Path in the form that was decided and sent.
	Path string
	// Query is a hash, unless the host's configuration says otherwise.
	Query string
	// Addresses of the name, each checked.
	Addresses []string
	// Address that was dialled.
	Address string
	// Credential is the name of the one that the proxy attached.
	Credential string
	Status     int
	// In and Out are bytes on the wire, with TLS.
	In, Out int64
	// Times of the parts of the request.
	Resolve, Connect, TLS, First, Total time.Duration
	// Reused: an earlier request of the run used the same connection.
	Reused bool
	// Truncated: the tool did not get the whole response.
	Truncated bool
	// Scrubbed: the credential was removed from the response.
	Scrubbed bool
	// Redirect is the target of the response's redirect.
	Redirect string
	// TLSMode says who ends TLS: proxy (only the proxy speaks it), intercept (the proxy speaks it
	// to both sides), opaque (tool and host).
	TLSMode string
	// Hops counts the redirects before; the cause is the request with the last of them.
	Hops int
	// Internal: the host is inside the operator's network.
	Internal   bool
	TLSVersion string
	TLSPeer    string // SHA-256 of the certificate
	Error      string
}

// Type returns the type of the record.
func (Fetch) Type() Type { return TypeFetch }

func (v Fetch) encode(e *encoder) {
	e.flag("begun", v.Begun)
	e.str("kind", v.Kind)
	e.str("decision", v.Decision)
	e.str("layer", v.Layer)
	e.str("rule", v.Rule)
	e.str("method", v.Method)
	e.str("scheme", v.Scheme)
	e.str("host", v.Host)
	e.opt("port", int64(v.Port))
	e.str("path", v.Path)
	e.str("query", v.Query)
	e.list("addresses", v.Addresses)
	e.str("address", v.Address)
	e.str("credential", v.Credential)
	if !v.Begun && v.Decision != "denied" {
		e.num("status", int64(v.Status))
		e.num("bytes_in", v.In)
		e.num("bytes_out", v.Out)
		e.object("time_us", func() {
			e.opt("connect", v.Connect.Microseconds())
			e.opt("tls", v.TLS.Microseconds())
			e.opt("first", v.First.Microseconds())
			e.num("total", v.Total.Microseconds())
		})
	}
	if v.Begun {
		e.num("resolve_us", v.Resolve.Microseconds())
	}
	e.flag("reused", v.Reused)
	e.flag("truncated", v.Truncated)
	e.flag("scrubbed", v.Scrubbed)
	e.str("redirect", v.Redirect)
	e.str("tls_mode", v.TLSMode)
	e.opt("hops", int64(v.Hops))
	e.flag("internal", v.Internal)
	e.str("tls_version", v.TLSVersion)
	e.str("tls_peer", v.TLSPeer)
	e.str("error", v.Error)
}

// CredentialUsed records that the proxy is about to attach a credential to the request of its
// cause.
type CredentialUsed struct {
	Name   string
	Kind   string
	Method string
	Host   string
	Port   uint16
	Path   string
}

// Type returns the type of the record.
func (CredentialUsed) Type() Type { return TypeCredentialUsed }

func (v CredentialUsed) encode(e *encoder) {
	e.str("name", v.Name)
	e.str("kind", v.Kind)
	e.str("method", v.Method)
	e.str("host", v.Host)
	e.num("port", int64(v.Port))
	e.str("path", v.Path)
}
