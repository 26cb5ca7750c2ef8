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
	// maxStreams bounds the concurrent streams of the tool.
	maxStreams = 1024
	// maxBudgets bounds the hosts with budgets.
	maxBudgets = 1024
	// maxRefused bounds the distinct kinds of refusals.
	maxRefused = 64
	// maxBodies bounds the request bodies in memory.
	maxBodies = 128
	// defaultTime bounds a request without a limit of its own.
	defaultTime = 10 * time.Minute
)

// A heldError says that the daemon lets no intent pass that nobody has approved.
type heldError struct{ why string }

func (e *heldError) Error() string { return e.why }

// recorder records what the proxy does. Intend returns why no address of a request may be dialled,
// or "". A heldError is a refusal, too.
type recorder interface {
	Intend(Intent) (refuse string, err error)
	Ended(Outcome)
	Refused(Refused)
}

// proxy serves the streams of one run.
type proxy struct {
	// The run's own scope is first; see control.OpenStream.
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

// tool is what the proxy knows of the tool's doings.
type tool struct {
	trail trail
	event event
}

// hosts is how the proxy reaches hosts.
type hosts struct {
	resolve *resolver
	// roots are the authorities that may vouch for one.
	roots func() *x509.CertPool
	// socket connects to the Unix socket of an internal host, for an intent that is on record.
	socket func(ctx context.Context, id uint64, path string) (net.Conn, error)
	pool   pool
}

// newProxy returns the proxy of one run.
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

// roundTrip is one request on its way through the pipeline, and its response.
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
	// held: the request holds a token of bodies.
	held bool
	// asks: somebody must approve the request first.
	asks bool
	// try is the attempt that is under way, or was the last.
	try attempt
}

// attempt is one way of a request to its host and back. A second one follows where the host had
// closed a kept connection.
type attempt struct {
	start time.Time
	// intend: it is on record, and so is to be its outcome.
	intend bool
	up     *upstream
	// in0 and out0 count the bytes of the connection before this request.
	in0, out0 int64
	// stop stops the timer that closes the connection at the timeout.
	stop func() bool
	out  Outcome
}

// decide asks the policy of a scope. The refusal is nil if the request may go on. mode says who
// ends the TLS.
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
			// Report mode opens public hosts only.
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

// shownQuery returns the recorded form of a query.
func (p *proxy) shownQuery(query string) string {
	if query == "" || p.setup.Queries {
		return query
	}
	return hashedQuery(query)
}

func hashedQuery(query string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(query)))
}

// refuse records a refusal: the first of its kind at once, equal ones as a count.
func (rt *roundTrip) refuse(r *refusal) *refusal {
	rt.what.Decision, rt.what.Rule = Denied, r.rule
	if r.layer != "" {
		rt.what.Layer = r.layer
	}
	rt.p.refused.add(rt.what)
	return r
}

// reserve takes the request from the budgets of the run and of the host, and waits for its turn.
// The caller calls end after the request.
func (rt *roundTrip) reserve(ctx context.Context) (end func(), r *refusal) {
	rt.budgets = nil
	host, err := rt.p.budgets.of(rt.target.host, rt.bounds)
	if err != nil {
		return nil, rt.refuse(overBudget(err))
	}
	if host != nil {
		// The host comes first: a request that waits for its host takes nothing of the run's
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

// usedUp refuses a request for which a budget has nothing left. It takes nothing.
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

// key returns the key by which requests share connections.
func (rt *roundTrip) key() string {
	return rt.target.scheme + "://" + rt.target.host + ":" + fmt.Sprint(rt.target.port)
}

// reach resolves, checks, records and connects. After the record the caller must record the outcome
// by done.
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

// dial connects to the host of a request: to one of the checked addresses, or to the entry's
// socket.
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

// failed returns the refusal for a host that did not answer.
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

// overLimit records that a request exceeded a limit. Its outcome is a record of its own.
func (rt *roundTrip) overLimit(err error) *refusal {
	w := rt.what
	w.Decision, w.Layer, w.Rule = Denied, "fetch", err.Error()
	rt.p.refused.add(w)
	return overBudget(err)
}

// done records the outcome. Later events of the connection do not belong to this request.
func (rt *roundTrip) done() {
	if !rt.try.intend {
		return
	}
	rt.p.record.Ended(rt.try.outcome(rt.what.ID))
}

// outcome ends the attempt, and returns what came of the request of that number.
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

// letGo returns the request's token of bodies.
func (rt *roundTrip) letGo() {
	if rt.held {
		<-rt.p.bodies
		rt.held = false
	}
}

// unheard reports whether a request may be sent again: its host had closed the kept connection, no
// byte of a response came, and its method allows it.
func (a *attempt) unheard(ctx context.Context, method string) bool {
	return a.out.Reused && a.up.meter.in.Load() == a.in0 && ctx.Err() == nil &&
		(method == "GET" || method == "HEAD" || method == "OPTIONS")
}

// again ends one attempt, with a record, and starts another with a new number.
func (rt *roundTrip) again() {
	rt.done()
	rt.try.up.close()
	rt.what.ID = rt.p.ids.Add(1)
	rt.try = attempt{start: time.Now()}
}

// clean removes the credential from a text about the request: a host may return it in its status
// line or in a redirect.
func (rt *roundTrip) clean(text string) string {
	if rt.secret == nil {
		return text
	}
	text, _ = rt.secret.scrubText(text)
	return text
}

// plain returns an error without the credential. It keeps wrapped errors whose text is not the
// host's.
func (rt *roundTrip) plain(err error) error {
	if clean := rt.clean(err.Error()); clean != err.Error() {
		return errors.New(clean)
	}
	return err
}

const (
	// maxDecisions bounds the remembered decisions of a scope.
	maxDecisions = 512
	// maxDecisionText bounds the host, path and method of a remembered decision, in bytes.
	maxDecisionText = 1024
)

// decisions caches the decisions of one scope. A decision depends on the question, the policy of
// the scope, and the entries of internal hosts. The key is the whole question. Policy and entries
// never change in a proxy: a change of policy, of fetch.toml or of a credential reaches the next
// run, whose proxy has a cache of its own.
type decisions struct {
	mu    sync.Mutex
	known map[policy.Connect]*decision
}

// decision is the decision on a request before its credential and budgets are checked. Requests
// share it, so it is never changed.
type decision struct {
	policy.Decision
	// entry is the entry of an internal host; nil for a public host.
	entry *Internal
	// unnamed is the layer that grants the internal host by * alone, if there is one.
	unnamed *policy.Layer
}

// types returns the content types that the response may have; nil stands for all.
func (d *decision) types() policy.Globs {
	if d.Fetch == nil {
		return nil
	}
	return d.Fetch.Types
}

// scope is a policy of a proxy with its cached decisions.
type scope struct {
	policy.Effective
	decisions *decisions
}

// decided returns the decision of a scope, from the cache if it is there.
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

// trail remembers the redirects of responses, so that a request to their targets is recorded as the
// next of a chain. It decides nothing: a followed redirect is a request like any other.
type trail struct {
	mu    sync.Mutex
	steps map[string]step
}

type step struct {
	from uint64
	hops int
}

// redirected notes the redirect of a response, without parts that may be secret.
func (rt *roundTrip) redirected(location string) {
	to, err := url.Parse(rt.target.String())
	if err == nil {
		to, err = to.Parse(location)
	}
	if err != nil {
		rt.try.out.Redirect = "unreadable"
		return
	}
	// Not as it was escaped, which could hide a credential.
	shown := url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path}
	rt.try.out.Redirect = rt.clean(shown.String())
	rt.p.tool.trail.sends(rt.what, *to)
}

// sends notes that the response to a request redirects the tool.
func (t *trail) sends(from What, to url.URL) {
	to.Fragment = ""
	next, err := parseTarget(to.String())
	if err != nil {
		// The tool cannot request it either.
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.steps == nil || len(t.steps) >= maxTrail {
		t.steps = map[string]step{}
	}
	t.steps[next.String()+next.query] = step{from.ID, from.Hops + 1}
}

// follow returns the request whose redirect led to a target, and the number of redirects; 0 without
// one.
func (t *trail) follow(to target) (from uint64, hops int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := to.String() + to.query
	s := t.steps[key]
	delete(t.steps, key)
	return s.from, s.hops
}
