package audit

import "time"

// Fetch is one request to the network. One that is sent has two records: Begun before anything is dialled, and another, with the first as its cause,
// that says how it ended. One that was refused has one.
type Fetch struct {
	Begun      bool
	Kind       string // request, tunnel, websocket
	Decision   string // allowed, denied, report: no rule grants it, and the policy lets that pass
	Layer      string // of the policy, or fetch
	Rule       string
	Method     string
	Scheme     string
	Host       string
	Port       uint16
	Path       string   // in the form that was decided and sent
	Query      string   // hashed, unless the host's configuration says otherwise
	Addresses  []string // all that the name has, each checked
	Address    string   // the one that was dialled
	Credential string   // name of the one that the proxy attached
	Status     int
	In, Out    int64 // bytes on the wire, TLS and all
	// Times of the parts of the request.
	Resolve, Connect, TLS, First, Total time.Duration
	Reused                              bool   // of a connection of an earlier request of the run
	Truncated                           bool   // the answer did not go to the tool whole
	Scrubbed                            bool   // the credential was cut out of the answer
	Redirect                            string // where the answer sends the tool, which asks anew
	TLSMode                             string // who ends TLS: proxy, which alone speaks it; intercept: tool and proxy do, each way; opaque: it passes
	Hops                                int    // redirects that led here; the cause is the request whose answer was the last of them
	TLSVersion                          string
	TLSPeer                             string // SHA-256 of the certificate
	Error                               string
}

// Type is the type of the record.
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
	e.str("tls_version", v.TLSVersion)
	e.str("tls_peer", v.TLSPeer)
	e.str("error", v.Error)
}

// CredentialUsed says that the proxy is about to attach a credential to the request of its cause.
type CredentialUsed struct {
	Name   string
	Kind   string
	Method string
	Host   string
	Port   uint16
	Path   string
}

// Type is the type of the record.
func (CredentialUsed) Type() Type { return TypeCredentialUsed }

func (v CredentialUsed) encode(e *encoder) {
	e.str("name", v.Name)
	e.str("kind", v.Kind)
	e.str("method", v.Method)
	e.str("host", v.Host)
	e.num("port", int64(v.Port))
	e.str("path", v.Path)
}
