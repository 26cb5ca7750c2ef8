package fetch

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/policy"
)

// Bounds of the proxy of one run.
const (
	// maxStreams bounds the concurrent streams of the tool.
	maxStreams = 1024
	// maxPurses bounds the hosts with budgets.
	maxPurses = 1024
	// maxRefused bounds the distinct kinds of refusals.
	maxRefused = 64
	// maxBodies bounds the request bodies in memory.
	maxBodies = 128
	// defaultTime bounds a request without a limit of its own.
	defaultTime = 10 * time.Minute
)

// Recorder records what the proxy does. Intend returns why a request must not be sent, or "".
type Recorder interface {
	Intend(Intent) (refuse string, err error)
	Ended(Outcome)
	Refused(Refused)
}

// Proxy serves the streams of one run.
type Proxy struct {
	// The run's own scope is first; see control.Knock.
	scopes  []policy.Effective
	fetch   policy.Fetch
	setup   Setup
	record  Recorder
	resolve *Resolver
	roots   func() *x509.CertPool
	run     *purse
	// paced is the rate of refusals.
	paced *purse
	pool  pool
	trail trail
	// authority signs certificates for intercepted hosts; nil if no tunnel is intercepted.
	authority *authority
	// bodies holds a token for each body in memory.
	bodies  chan struct{}
	ids     atomic.Uint64
	streams chan struct{}

	mu      sync.Mutex
	hosts   map[string]*purse
	refused map[string]*tally
}

// New returns the proxy of one run.
func New(s Setup, r Recorder) (*Proxy, error) {
	layers := make([]policy.Layer, len(s.Layers))
	for i, l := range s.Layers {
		layers[i] = policy.Layer{Name: l.Name, Source: l.Source,
			Policy: policy.Policy{Fetch: l.Fetch}}
	}
	eff, err := policy.Resolve(layers...)
	if err != nil {
		return nil, err
	}
	for _, p := range s.NAT64 {
		if err := checkNAT64(p); err != nil {
			return nil, err
		}
	}
	scopes := []policy.Effective{eff}
	for _, l := range s.Scopes {
		narrower, err := policy.Resolve(append(eff.Layers(), policy.Layer{Name: l.Name,
			Source: l.Source, Policy: policy.Policy{Fetch: l.Fetch}})...)
		if err != nil {
			return nil, err
		}
		scopes = append(scopes, narrower)
	}
	p := &Proxy{scopes: scopes, fetch: eff.Policy().Fetch, setup: s, record: r,
		hosts: map[string]*purse{}, refused: map[string]*tally{}, bodies: make(chan struct{},
			maxBodies),
		resolve: &Resolver{Servers: s.Servers, Dial: (&net.Dialer{}).DialContext},
		streams: make(chan struct{}, maxStreams)}
	p.paced = newPurse("", policy.FetchBounds{Rate: refusalRate})
	p.run = newPurse("fetch.limits", runBounds(p.fetch))
	if s.Intercept {
		if p.authority, err = newAuthority(time.Now()); err != nil {
			return nil, err
		}
	}
	p.roots = sync.OnceValue(func() *x509.CertPool {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(s.Roots)
		return pool
	})
	return p, nil
}

// trip is one request in the pipeline.
type trip struct {
	p      *Proxy
	what   What
	target Target
	query  policy.Connect
	bounds policy.FetchBounds
	types  policy.Globs
	secret *Secret
	purses []*purse
	addrs  []netip.Addr
	up     *upstream
	out    Outcome
	start  time.Time
	// in0 counts the bytes of the connection before this request.
	in0     int64
	out0    int64
	intend  bool
	timeout time.Duration
	// stop stops the timer that closes the connection at the timeout.
	stop func() bool
	// held: the request holds a token of bodies.
	held bool
}

// decide asks the policy of a scope. The refusal is nil if the request may go on. mode says who
// ends the TLS.
func (p *Proxy) decide(eff policy.Effective, kind, mode, method string, t Target) (*trip,
	*refusal) {
	q := policy.Connect{Host: t.Host, Port: t.Port, Method: method, Path: t.Path,
		Tunnel: kind == kindTunnel, WebSocket: kind == kindWebSocket}
	if kind == kindTunnel || kind == kindHost {
		q.Method = ""
		kind = kindTunnel
	}
	tr := &trip{p: p, target: t, query: q, start: time.Now(), what: What{ID: p.ids.Add(1),
		Kind: kind, Method: method, Scheme: t.Scheme, Host: t.Host,
		Port: t.Port, Path: t.Path, Query: p.shownQuery(t.Query), Mode: mode}}
	if q.Method != "" {
		tr.what.After, tr.what.Hops = p.trail.follow(t)
	}
	d := eff.Decide(q)
	tr.what.Layer, tr.what.Rule = d.Layer, d.Rule
	switch {
	case d.Allowed:
		tr.what.Decision = Allowed
		tr.bounds, tr.types = d.Fetch.Bounds, d.Fetch.Types
	case p.fetch.Mode == policy.FetchReport && d.Layer != p.setup.Ceiling &&
		!strings.HasPrefix(d.Rule, "fetch.deny"):
		tr.what.Decision = Reported
	default:
		return tr, tr.refuse(deny(d, q))
	}
	if err := nothing(p.fetch); err != nil {
		return tr, tr.refuse(overBudget(err))
	}
	if d.Credential != "" && !q.Tunnel {
		secret, ok := p.setup.Secrets[d.Credential]
		switch {
		case !ok:
			return tr, tr.refuse(&refusal{status: 403, code: codeDenied, layer: "fetch",
				rule: "credential " + d.Credential,
				message: fmt.Sprintf(
					"the rule names the credential %q, which this host does not have",
					d.Credential),
				next: "the operator adds it to the daemon's configuration"})
		case t.Scheme != schemeHTTPS && !secret.Cleartext:
			return tr, tr.refuse(&refusal{status: 403, code: codeDenied, layer: "fetch",
				rule:    "credential " + d.Credential,
				message: fmt.Sprintf("the credential %q is not sent without TLS", d.Credential),
				next:    "ask for the https:// URL"})
		case q.WebSocket && secret.Scrub:
			return tr, tr.refuse(&refusal{status: 403, code: codeDenied, layer: "fetch",
				rule: "credential " + d.Credential,
				message: fmt.Sprintf(
					"the credential %q could not be cut out of what a websocket brings back",
					d.Credential),
				next: "a rule without a credential for this path, or scrub = false beside the credential in the daemon's configuration"})
		}
		tr.secret, tr.what.Credential = &secret, d.Credential
	}
	return tr, nil
}

// shownQuery returns the recorded form of a query.
func (p *Proxy) shownQuery(query string) string {
	if query == "" || p.setup.Queries {
		return query
	}
	sum := sha256.Sum256([]byte(query))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// refuse records a refusal: the first of its kind at once, equal ones as a count.
func (tr *trip) refuse(r *refusal) *refusal {
	tr.what.Decision, tr.what.Rule = Denied, r.rule
	if r.layer != "" {
		tr.what.Layer = r.layer
	}
	tr.p.refuse(tr.what)
	return r
}

// budget waits for the request's turn. The caller calls end after the request.
func (tr *trip) budget(ctx context.Context) (end func(), r *refusal) {
	tr.purses = nil
	host, err := tr.p.purseOf(tr.target.Host, tr.bounds)
	if err != nil {
		return nil, tr.refuse(overBudget(err))
	}
	if host != nil {
		// The host comes first: a request that waits for its host takes nothing of the run's
		// budget.
		tr.purses = append(tr.purses, host)
	}
	tr.purses = append(tr.purses, tr.p.run)
	for i, p := range tr.purses {
		if err := p.begin(ctx); err != nil {
			for _, begun := range tr.purses[:i] {
				begun.end()
			}
			return nil, tr.refuse(overBudget(err))
		}
	}
	return func() {
		for _, p := range tr.purses {
			p.end()
		}
	}, nil
}

// purseOf returns the budget of a host under a rule's bounds, nil without bounds.
func (p *Proxy) purseOf(host string, b policy.FetchBounds) (*purse, error) {
	if b == (policy.FetchBounds{}) {
		return nil, nil
	}
	key := host + b.String()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hosts[key] == nil {
		if len(p.hosts) >= maxPurses {
			return nil, &limitError{"hosts of one run", fmt.Sprint(maxPurses)}
		}
		p.hosts[key] = newPurse("fetch.allow", b)
	}
	return p.hosts[key], nil
}

// time returns the timeout of the request.
func (tr *trip) time() time.Duration {
	out := defaultTime
	for _, t := range []time.Duration{tr.p.run.bounds.Timeout, tr.bounds.Timeout} {
		if t > 0 {
			out = min(out, t)
		}
	}
	return out
}

// key returns the key by which requests share connections.
func (tr *trip) key() string {
	return tr.target.Scheme + "://" + tr.target.Host + ":" + fmt.Sprint(tr.target.Port)
}

// reach resolves, checks, records and connects. After the record the caller must record the outcome
// by done.
func (tr *trip) reach(ctx context.Context, reuse bool) *refusal {
	var up *upstream
	if reuse {
		up = tr.p.pool.take(tr.key())
	}
	var resolve time.Duration
	if up != nil {
		tr.addrs, tr.out.Reused = []netip.Addr{up.addr.Addr()}, true
	} else {
		start := time.Now()
		addrs, err := tr.p.resolve.Lookup(ctx, tr.target.Host)
		resolve = time.Since(start)
		if err != nil {
			return tr.refuse(&refusal{status: 502, code: codeUpstream, layer: "fetch",
				rule:    "name has no address",
				message: tr.target.Host + ": " + publicError(err), next: "check the name"})
		}
		tr.addrs = addrs
	}
	for _, a := range tr.addrs {
		if what := Forbidden(a, tr.p.setup.NAT64); what != "" {
			return tr.refuse(floorDenied(tr.target.Host, a.String(), what))
		}
	}
	refused, err := tr.p.record.Intend(Intent{What: tr.what, Addresses: tr.addrs, Resolve: resolve})
	if err == nil && refused != "" {
		if up != nil {
			up.close()
		}
		return tr.refuse(floorDenied(tr.target.Host, strings.Trim(fmt.Sprint(tr.addrs), "[]"),
			refused))
	}
	if err != nil {
		return &refusal{status: 503, code: codeRecord, layer: "fetch", rule: "audit",
			message: "the request cannot be put on record, so it is not sent",
			next:    "the operator makes room for the log"}
	}
	tr.intend = true
	return tr.connect(ctx, up)
}

func (tr *trip) connect(ctx context.Context, up *upstream) *refusal {
	if up == nil {
		var err error
		if up, err = dial(ctx, tr.addrs, tr.target.Port, tr.purses); err != nil {
			return tr.failed(ctx, err)
		}
		tr.up, tr.out.Connect = up, up.connect
		if tr.what.Kind != kindTunnel && tr.target.Scheme == schemeHTTPS {
			if err := up.secure(ctx, tr.target.Host, tr.p.roots()); err != nil {
				return tr.failed(ctx, err)
			}
			tr.out.TLS = up.tls
		}
		up.reader()
	} else {
		tr.up, tr.in0, tr.out0 = up, up.meter.in.Load(), up.meter.out.Load()
		up.meter.charge(tr.purses)
	}
	tr.out.Version, tr.out.Peer, tr.out.Address = up.version, up.peer, up.addr.String()
	if deadline, ok := ctx.Deadline(); ok {
		// The next read reports the error.
		_ = up.meter.SetDeadline(deadline)
	}
	tr.stop = context.AfterFunc(ctx, up.close)
	return nil
}

// failed returns the refusal for a host that did not answer.
func (tr *trip) failed(ctx context.Context, err error) *refusal {
	err = tr.plain(err)
	tr.out.Error = publicError(err)
	var limit *limitError
	var timeout net.Error
	switch {
	case errors.As(err, &limit):
		return tr.overLimit(limit)
	case ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout():
		return &refusal{status: 504, code: codeTimeout, rule: "timeout", layer: "fetch",
			message: fmt.Sprintf("%s did not answer within %s", tr.target.Host, tr.timeout),
			next:    "ask for less, or raise fetch.limits.timeout"}
	}
	return upstreamFailed(tr.target.Host, err)
}

// overLimit records an exceeded limit, beside the outcome.
func (tr *trip) overLimit(err error) *refusal {
	w := tr.what
	w.Decision, w.Layer, w.Rule = Denied, "fetch", err.Error()
	tr.p.refuse(w)
	return overBudget(err)
}

// done records the outcome. Later events of the connection do not belong to this request.
func (tr *trip) done() {
	if !tr.intend {
		return
	}
	if tr.stop != nil {
		tr.stop()
	}
	tr.out.ID, tr.out.Total = tr.what.ID, time.Since(tr.start)
	if tr.up != nil {
		tr.out.BytesIn, tr.out.BytesOut = tr.up.meter.in.Load()-tr.in0,
			tr.up.meter.out.Load()-tr.out0
	}
	tr.p.record.Ended(tr.out)
}
