package fetch

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/policy"
)

// Bounds of the proxy of one run.
const (
	// maxStreams bounds the tool's concurrent streams.
	maxStreams = 1024
	// maxBudgets bounds the hosts that have budgets of their own.
	maxBudgets = 1024
	// maxRefused bounds the kinds of refusals that are counted separately.
	maxRefused = 64
	// maxBodies bounds the request bodies in memory at one time.
	maxBodies = 128
	// defaultTime is the timeout of a request without one in the policy.
	defaultTime = 10 * time.Minute
)

// A heldError is the daemon's refusal of an intent without the approval that it needs.
type heldError struct{ why string }

func (e *heldError) Error() string { return e.why }

// recorder records the proxy's requests. Intend returns why the request must not be sent, or "". A
// heldError is a refusal, too; other errors mean that nothing was recorded.
type recorder interface {
	Intend(Intent) (refuse string, err error)
	Ended(Outcome)
	Refused(Refused)
}

// proxy serves the streams of one run.
type proxy struct {
	// scopes has the run's own scope first; see control.OpenStream.
	scopes  []scope
	fetch   policy.Fetch
	setup   Setup
	record  recorder
	hosts   hosts
	budgets *budgets
	refused *refusals
	tool    tool
	// authority signs certificates for intercepted hosts; nil if no tunnel is intercepted.
	authority *authority
	// bodies holds a token for each body in memory.
	bodies  chan struct{}
	ids     atomic.Uint64
	streams chan struct{}
}

// tool is the state that the proxy keeps about the tool's requests.
type tool struct {
	trail trail
	event event
}

// hosts has what the proxy needs to connect to hosts.
type hosts struct {
	resolve *resolver
	// roots returns the certificate authorities that are trusted for hosts.
	roots func() *x509.CertPool
	// socket returns a connection to the Unix socket of an internal host, for a recorded intent.
	socket func(ctx context.Context, id uint64, path string) (net.Conn, error)
	pool   pool
}

// newProxy returns a proxy with setup s that records to r.
func newProxy(s Setup, r recorder) (*proxy, error) {
	layers := make([]policy.Layer, len(s.Layers))
	for i, l := range s.Layers {
		layers[i] = policy.Layer{Name: l.Name, Source: l.Source,
			Policy: policy.Policy{Fetch: l.Fetch, Approve: l.Approve}}
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
	scopes := []scope{{eff, &decisions{}}}
	for _, l := range s.Scopes {
		narrower, err := policy.Resolve(append(eff.Layers(),
			policy.Layer{Name: l.Name, Source: l.Source, Policy: policy.Policy{Fetch: l.Fetch}})...)
		if err != nil {
			return nil, err
		}
		scopes = append(scopes, scope{narrower, &decisions{}})
	}
	fetch := eff.Policy().Fetch
	p := &proxy{scopes: scopes, fetch: fetch, setup: s, record: r, budgets: newBudgets(fetch),
		refused: newRefusals(r), bodies: make(chan struct{}, maxBodies),
		streams: make(chan struct{}, maxStreams)}
	if s.Intercept {
		if p.authority, err = newAuthority(time.Now()); err != nil {
			return nil, err
		}
	}
	p.hosts = hosts{resolve: &resolver{servers: s.Servers, dial: (&net.Dialer{}).DialContext},
		roots: sync.OnceValue(func() *x509.CertPool {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(s.Roots)
			return pool
		}),
		socket: func(ctx context.Context, _ uint64, path string) (net.Conn, error) {
			return dialSocket(ctx, path)
		}}
	return p, nil
}

// roundTrip is the state of one request in the pipeline, and of its response.
type roundTrip struct {
	p       *proxy
	what    What
	target  target
	bounds  policy.FetchBounds
	decided *decision
	secret  *Secret
	budgets []*budget
	addrs   []netip.Addr
	timeout time.Duration
	// held: the request holds a token of proxy.bodies.
	held bool
	// asks: the request needs an approval.
	asks bool
	// try is the current or last attempt.
	try attempt
}

// attempt is one try to send a request. There is a second one if the host had closed a kept
// connection.
type attempt struct {
	start time.Time
	// intend: the intent is recorded, so the outcome must be recorded, too.
	intend bool
	up     *upstream
	// in0 and out0 are the connection's byte counts before this request.
	in0, out0 int64
	// stop stops the timer that closes the connection at the timeout.
	stop func() bool
	out  Outcome
}

// decide decides on a request by the policy of scope eff. The refusal is nil if the request may
// continue. mode says who ends the TLS.
func (p *proxy) decide(eff scope, kind, mode, method string, t target) (*roundTrip, *refusal) {
	q := policy.Connect{Host: t.host, Port: t.port, Method: method, Path: t.path,
		Tunnel: kind == kindTunnel, WebSocket: kind == kindWebSocket}
	if kind == kindTunnel || kind == kindHost {
		q.Method = ""
		kind = kindTunnel
	}
	rt := &roundTrip{p: p, target: t, try: attempt{start: time.Now()}, what: What{ID: p.ids.Add(1),
		Kind: kind, Method: method, Scheme: t.scheme, Host: t.host,
		Port: t.port, Path: t.path, Query: p.shownQuery(t.query), Mode: mode}}
	if q.Method != "" {
		rt.what.After, rt.what.Hops = p.tool.trail.follow(t)
	}
	d := p.decided(eff, q)
	rt.what.Layer, rt.what.Rule = d.Layer, d.Rule
	rt.decided, rt.what.Internal = d, d.entry != nil
	switch {
	case d.Allowed || d.Ask:
		rt.what.Decision = Allowed
		rt.bounds, rt.asks = d.Fetch.Bounds, d.Ask
	case p.fetch.Mode == policy.FetchReport && d.Layer != p.setup.Ceiling &&
		!strings.HasPrefix(d.Rule, "fetch.deny") && !strings.HasPrefix(d.Rule, "approve"):
		rt.what.Decision = Reported
		rt.asks = eff.Policy().Approve.Fetch(q).Mode != policy.ApproveAuto
	default:
		return rt, rt.refuse(deny(d.Decision, q))
	}
	if d.entry != nil {
		if rt.what.Decision == Reported {
			// Report mode lets public hosts pass only.
			return rt, rt.refuse(deny(d.Decision, q))
		}
		if d.unnamed != nil {
			return rt, rt.refuse(internalDenied(*d.unnamed, q))
		}
	}
	if err := nothing(p.fetch); err != nil {
		return rt, rt.refuse(overBudget(err))
	}
	if d.Credential != "" && !q.Tunnel {
		secret, ok := p.setup.Secrets[d.Credential]
		refuse := func(format, next string) (*roundTrip, *refusal) {
			return rt, rt.refuse(&refusal{status: 403, code: codeDenied, layer: "fetch",
				rule:    "credential " + d.Credential,
				message: fmt.Sprintf(format, d.Credential), next: next})
		}
		switch {
		case !ok:
			return refuse("the rule names the credential %q, which this host does not have",
				"the operator adds it to the daemon's configuration")
		case t.scheme != schemeHTTPS && !secret.Cleartext:
			return refuse("the credential %q is not sent without TLS", "ask for the https:// URL")
		case q.WebSocket && secret.Scrub:
			return refuse("the credential %q could not be cut out of what a websocket brings back",
				"a rule without a credential for this path, or scrub = false beside the "+
					"credential in the daemon's configuration")
		}
		rt.secret, rt.what.Credential = &secret, d.Credential
	}
	return rt, nil
}

// shownQuery returns a query as it is recorded: unchanged or as a hash, by the settings.
func (p *proxy) shownQuery(query string) string {
	if query == "" || p.setup.Queries {
		return query
	}
	return hashedQuery(query)
}

func hashedQuery(query string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(query)))
}

// refuse records and returns r. The first of a kind is recorded at once, equal ones are counted.
func (rt *roundTrip) refuse(r *refusal) *refusal {
	rt.what.Decision, rt.what.Rule = Denied, r.rule
	if r.layer != "" {
		rt.what.Layer = r.layer
	}
	rt.p.refused.add(rt.what)
	return r
}

// reserve counts the request in the budgets of its host and of the run, and waits for its turn. The
// caller calls end after the request.
func (rt *roundTrip) reserve(ctx context.Context) (end func(), r *refusal) {
	rt.budgets = nil
	host, err := rt.p.budgets.of(rt.target.host, rt.bounds)
	if err != nil {
		return nil, rt.refuse(overBudget(err))
	}
	if host != nil {
		// The host comes first: a request that waits for its host takes nothing from the run's
		// budget.
		rt.budgets = append(rt.budgets, host)
	}
	rt.budgets = append(rt.budgets, rt.p.budgets.run)
	for i, p := range rt.budgets {
		if err := p.begin(ctx); err != nil {
			for _, begun := range rt.budgets[:i] {
				begun.end()
			}
			return nil, rt.refuse(overBudget(err))
		}
	}
	return func() {
		for _, p := range rt.budgets {
			p.end()
		}
	}, nil
}

// usedUp returns a refusal if a budget has nothing left for the request. It counts nothing.
func (rt *roundTrip) usedUp() *refusal {
	host, err := rt.p.budgets.of(rt.target.host, rt.bounds)
	if err == nil && host != nil {
		err = host.usedUp()
	}
	if err == nil {
		err = rt.p.budgets.run.usedUp()
	}
	if err != nil {
		return rt.refuse(overBudget(err))
	}
	return nil
}

// time returns the timeout of the request.
func (rt *roundTrip) time() time.Duration {
	out := defaultTime
	for _, t := range []time.Duration{rt.p.budgets.run.bounds.Timeout, rt.bounds.Timeout} {
		if t > 0 {
			out = min(out, t)
		}
	}
	return out
}

// key returns the key of the connection pool: scheme, host and port.
func (rt *roundTrip) key() string {
	return rt.target.scheme + "://" + rt.target.host + ":" + fmt.Sprint(rt.target.port)
}

// reach resolves the host's name, checks the addresses, records the intent and connects. If it has
// recorded the intent, the caller must call done. reuse allows a kept connection.
func (rt *roundTrip) reach(ctx context.Context, reuse bool) *refusal {
	var up *upstream
	if reuse {
		up = rt.p.hosts.pool.take(rt.key())
	}
	intent, entry := Intent{What: rt.what}, rt.decided.entry
	switch {
	case up != nil && up.socket != "":
		intent.Socket, rt.try.out.Reused = up.socket, true
	case up != nil:
		rt.addrs, rt.try.out.Reused = []netip.Addr{up.addr.Addr()}, true
	case entry != nil && entry.Socket != "":
		intent.Socket = entry.Socket
	case entry != nil && entry.Fixed:
		rt.addrs = nil
		for _, p := range entry.Addresses {
			rt.addrs = append(rt.addrs, p.Addr())
		}
	default:
		start := time.Now()
		addrs, err := rt.p.hosts.resolve.lookup(ctx, rt.target.host)
		intent.Resolve = time.Since(start)
		if err != nil {
			return rt.refuse(&refusal{status: 502, code: codeUpstream, layer: "fetch",
				rule:    "name has no address",
				message: rt.target.host + ": " + publicError(err), next: "check the name"})
		}
		rt.addrs = addrs
	}
	for _, a := range rt.addrs {
		if what := rt.decided.entry.refuses(a, rt.p.setup.NAT64); what != "" {
			return rt.refuse(rt.p.addressDenied(rt.target.host, a.String(), what))
		}
	}
	intent.Addresses = rt.addrs
	refused, err := rt.p.record.Intend(intent)
	if up != nil && (err != nil || refused != "") {
		up.close()
	}
	if held, ok := errors.AsType[*heldError](err); ok {
		return rt.refuse(&refusal{status: 403, code: codeDenied, layer: rt.what.Layer,
			rule: "approve", message: held.why, next: "ask for it anew"})
	}
	if err == nil && refused != "" {
		return rt.refuse(rt.p.addressDenied(rt.target.host,
			strings.Trim(fmt.Sprint(rt.addrs), "[]"), refused))
	}
	if err != nil {
		return &refusal{status: 503, code: codeRecord, layer: "fetch", rule: "audit",
			message: "the request cannot be put on record, so it is not sent",
			next:    "the operator makes room for the log"}
	}
	rt.try.intend = true
	return rt.connect(ctx, up)
}

// dial connects to the host of a request: to one of the checked addresses, or to the Unix socket of
// its entry.
func (p *proxy) dial(ctx context.Context, rt *roundTrip) (*upstream, error) {
	e := rt.decided.entry
	if e == nil || e.Socket == "" {
		return dial(ctx, rt.addrs, rt.target.port, rt.budgets)
	}
	start := time.Now()
	conn, err := p.hosts.socket(ctx, rt.what.ID, e.Socket)
	if err != nil {
		return nil, err
	}
	u := newUpstream(conn, start, rt.budgets)
	u.socket = e.Socket
	return u, nil
}

func (p *proxy) addressDenied(host, address, what string) *refusal {
	r := floorDenied(host, address, what)
	for _, e := range p.setup.Internal {
		if e.Host.Match(host) {
			r.message = fmt.Sprintf("%s has the address %s (%s)", host, address, what)
			r.next = "the operator lists the host, its addresses and ports as [[internal]] in " +
				"fetch.toml; it is there for ports " + fmt.Sprint(e.Ports)
		}
	}
	return r
}

func (rt *roundTrip) connect(ctx context.Context, up *upstream) *refusal {
	a := &rt.try
	if up == nil {
		var err error
		if up, err = rt.p.dial(ctx, rt); err != nil {
			return rt.failed(ctx, err)
		}
		a.up, a.out.Connect = up, up.connect
		if rt.what.Kind != kindTunnel && rt.target.scheme == schemeHTTPS {
			if err := up.secure(ctx, rt.target.host, rt.p.hosts.roots()); err != nil {
				return rt.failed(ctx, err)
			}
			a.out.TLS = up.tls
		}
		up.reader()
	} else {
		a.up, a.in0, a.out0 = up, up.meter.in.Load(), up.meter.out.Load()
		up.meter.charge(rt.budgets)
	}
	a.out.Version, a.out.Peer, a.out.Address = up.version, up.peer, up.address()
	if deadline, ok := ctx.Deadline(); ok {
		// The next read reports the error.
		_ = up.meter.SetDeadline(deadline)
	}
	a.stop = context.AfterFunc(ctx, up.close)
	return nil
}

// failed returns the refusal for a host that could not be reached or did not answer.
func (rt *roundTrip) failed(ctx context.Context, err error) *refusal {
	err = rt.plain(err)
	rt.try.out.Error = publicError(err)
	var limit *limitError
	var timeout net.Error
	switch {
	case errors.As(err, &limit):
		return rt.overLimit(limit)
	case ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout():
		return &refusal{status: 504, code: codeTimeout, rule: "timeout", layer: "fetch",
			message: fmt.Sprintf("%s did not answer within %s", rt.target.host, rt.timeout),
			next:    "ask for less, or raise fetch.limits.timeout"}
	}
	return upstreamFailed(rt.target.host, err)
}

// overLimit records, besides the outcome, the refusal of a request that exceeded a limit.
func (rt *roundTrip) overLimit(err error) *refusal {
	w := rt.what
	w.Decision, w.Layer, w.Rule = Denied, "fetch", err.Error()
	rt.p.refused.add(w)
	return overBudget(err)
}

// done records the outcome of a recorded intent. Later bytes do not count for this request.
func (rt *roundTrip) done() {
	if !rt.try.intend {
		return
	}
	rt.p.record.Ended(rt.try.outcome(rt.what.ID))
}

// outcome ends the attempt and returns its outcome for request id.
func (a *attempt) outcome(id uint64) Outcome {
	if a.stop != nil {
		a.stop()
	}
	a.out.ID, a.out.Total = id, time.Since(a.start)
	if a.up != nil {
		a.out.BytesIn, a.out.BytesOut = a.up.meter.in.Load()-a.in0, a.up.meter.out.Load()-a.out0
	}
	return a.out
}

// letGo releases the request's token of proxy.bodies, if it holds one.
func (rt *roundTrip) letGo() {
	if rt.held {
		<-rt.p.bodies
		rt.held = false
	}
}

// unheard reports whether a request may be sent again: the host had closed the kept connection, no
// byte of a response came, and its method is safe.
func (a *attempt) unheard(ctx context.Context, method string) bool {
	return a.out.Reused && a.up.meter.in.Load() == a.in0 && ctx.Err() == nil &&
		(method == "GET" || method == "HEAD" || method == "OPTIONS")
}

// again records the outcome of the failed attempt and starts another, with a new request id.
func (rt *roundTrip) again() {
	rt.done()
	rt.try.up.close()
	rt.what.ID = rt.p.ids.Add(1)
	rt.try = attempt{start: time.Now()}
}

// clean removes the credential from a text. A host may return the credential in its status line or
// in a redirect.
func (rt *roundTrip) clean(text string) string {
	if rt.secret == nil {
		return text
	}
	text, _ = rt.secret.scrubText(text)
	return text
}

// plain returns err if its text does not have the credential, else an error with the credential
// removed from the text, which wraps no error.
func (rt *roundTrip) plain(err error) error {
	if clean := rt.clean(err.Error()); clean != err.Error() {
		return errors.New(clean)
	}
	return err
}

const (
	// maxDecisions bounds the cached decisions of a scope.
	maxDecisions = 512
	// maxDecisionText bounds the host, path and method of a cached decision together, in bytes.
	maxDecisionText = 1024
)

// decisions caches the decisions of one scope. A decision depends on the query, the scope's policy
// and the entries of internal hosts. The key is the whole query. Policy and entries never change in
// a proxy: a change of the policy, fetch.toml or a credential reaches the next run, whose proxy has
// its own cache.
type decisions struct {
	mu    sync.Mutex
	known map[policy.Connect]*decision
}

// decision is the decision on a request, before its credential and budgets are checked. Requests
// share it, so it must not be changed.
type decision struct {
	policy.Decision
	// entry is the entry of an internal host; nil for a public host.
	entry *Internal
	// unnamed is the layer that grants the internal host only by *, or nil.
	unnamed *policy.Layer
}

// types returns the content types that the response may have; nil means all.
func (d *decision) types() policy.Globs {
	if d.Fetch == nil {
		return nil
	}
	return d.Fetch.Types
}

// scope is a policy in a proxy, with its cached decisions.
type scope struct {
	policy.Effective
	decisions *decisions
}

// decided returns the decision of a scope on q, from the cache if possible.
func (p *proxy) decided(s scope, q policy.Connect) *decision {
	s.decisions.mu.Lock()
	known := s.decisions.known[q]
	s.decisions.mu.Unlock()
	if known != nil {
		return known
	}
	d := &decision{Decision: s.Decide(q), entry: findInternal(p.setup.Internal, q.Host, q.Port)}
	if d.entry != nil {
		if l, unnamed := s.Unnamed(q); unnamed {
			d.unnamed = &l
		}
	}
	if max(len(q.Host), len(q.Path), len(q.Method)) > maxDecisionText {
		return d
	}
	s.decisions.mu.Lock()
	defer s.decisions.mu.Unlock()
	if s.decisions.known == nil || len(s.decisions.known) >= maxDecisions {
		s.decisions.known = map[policy.Connect]*decision{}
	}
	s.decisions.known[q] = d
	return d
}

// maxTrail bounds the remembered redirects of a run.
const maxTrail = 256

// trail remembers redirects in responses, so that a request to their target is recorded as the next
// of a chain. It does not affect decisions: a followed redirect is decided like any request.
type trail struct {
	mu    sync.Mutex
	steps map[string]step
}

type step struct {
	from uint64
	hops int
}

// redirected notes the target of the response's redirect, without parts that may be secret.
func (rt *roundTrip) redirected(location string) {
	to, err := url.Parse(rt.target.String())
	if err == nil {
		to, err = to.Parse(location)
	}
	if err != nil {
		rt.try.out.Redirect = "unreadable"
		return
	}
	// Without the original escapes, which could hide a credential.
	shown := url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path}
	rt.try.out.Redirect = rt.clean(shown.String())
	rt.p.tool.trail.sends(rt.what, *to)
}

// sends remembers that the response to request from redirects to the URL to.
func (t *trail) sends(from What, to url.URL) {
	to.Fragment = ""
	next, err := parseTarget(to.String())
	if err != nil {
		// The tool cannot request this target either.
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.steps == nil || len(t.steps) >= maxTrail {
		t.steps = map[string]step{}
	}
	t.steps[next.String()+next.query] = step{from.ID, from.Hops + 1}
}

// follow returns the id of the request whose redirect led to a target, and the number of redirects
// so far; 0 if none did. It forgets the redirect.
func (t *trail) follow(to target) (from uint64, hops int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := to.String() + to.query
	s := t.steps[key]
	delete(t.steps, key)
	return s.from, s.hops
}
