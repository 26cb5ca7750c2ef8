// Package runproxy manages the network of one run: it starts the run's fetch proxy, records each
// request before it is sent and its outcome, and sums up the proxy's work at the end.
package runproxy

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/confine"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/daemonlog"
	"github.com/jail-sandbox/jail/supervisor/fetch"
	"github.com/jail-sandbox/jail/supervisor/hostlayers"
	"github.com/jail-sandbox/jail/supervisor/idrange"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
	"github.com/jail-sandbox/jail/supervisor/runlog"
)

// Layer names the layer of refused fetches in records. No tool's text may be in the name.
const Layer = "fetch"

// maxDenied bounds the refusals of a run that get a record each.
const maxDenied = 100

// A Proxy is the fetch proxy of one run. A nil Proxy stands for a run without network. Its methods
// are safe for concurrent use.
type Proxy struct {
	proc *fetch.Process
	ids  *idrange.Range
	// roots are the certificates that the proxy trusts, in PEM.
	roots []byte
	// held.run may be read after serves is closed.
	held   held
	serves chan struct{}

	mu    sync.Mutex
	dead  bool
	begun map[uint64]begunFetch
	// sent maps requests that were redirected to the sequence numbers of their records.
	sent    map[uint64]uint64
	denials runners.Denials
	usage   message.Usage // the fields of fetches
	// err joins the errors of appending to the audit log.
	err error
}

// A begunFetch is a recorded intent without an outcome.
type begunFetch struct {
	seq  uint64
	what fetch.What
}

// A Host starts the fetch proxies of a daemon.
type Host struct {
	Launcher launch.Launcher
	Layers   hostlayers.Host
	// Exe is the program that runs as a proxy.
	Exe string
	// Settings is the path of the operator's fetch settings.
	Settings string
	// Queue asks people about requests that need an approval.
	Queue Queue
	// Errors logs the errors of the queue.
	Errors *daemonlog.Log

	// filter is the system call filter of proxies.
	filter launch.FilterOnce
}

// A Spec describes the proxy to start.
type Spec struct {
	Policy policy.Effective
	// Scopes narrow the hosts for some commands of a script.
	Scopes []fetch.SetupLayer
	// Intercept makes the proxy end the TLS of tunnels. Modules speak no TLS of their own.
	Intercept bool
}

// A Run is the run whose requests a proxy serves.
type Run struct {
	Records *runlog.Log
	// Caller started the run. Asks is the approval request for a held request; the request's own
	// fields are filled in later.
	Caller caller.Caller
	Asks   approvals.FetchRequest
	// InSession: the approvals outlast the run and hold for its session.
	InSession bool
	// Left returns how much longer the run's requests may wait for approvals.
	Left func() time.Duration
	// Fail ends the run. It is called if an action of the proxy could not be recorded.
	Fail func()
}

// A Setup has what a proxy of one policy is told: settings and secrets as Prepare read them.
type Setup struct {
	host   *Host
	policy policy.Effective
	fetch  fetch.Setup
}

// Prepare returns the setup of a proxy. It reads the operator's settings and the secrets that the
// policy names.
func (h *Host) Prepare(ctx context.Context, spec Spec) (*Setup, error) {
	settings, err := fetch.ReadSettings(h.Settings)
	if err != nil {
		return nil, h.badSettings(err)
	}
	setup, err := settings.SetupFor(ctx, spec.Policy)
	if err != nil {
		return nil, h.badSettings(err)
	}
	setup.Scopes, setup.Intercept = spec.Scopes, spec.Intercept
	if setup.Filter, err = h.filter.Get(ctx, h.Launcher, confine.Filter()); err != nil {
		return nil, h.Layers.Missing("fetch proxy", err.Error(), err)
	}
	return &Setup{h, spec.Policy, setup}, nil
}

// Same reports whether other would start an identical proxy.
func (s *Setup) Same(other prewarm.Network) bool {
	o, ok := other.(*Setup)
	return ok && reflect.DeepEqual(s.fetch, o.fetch)
}

// StartAhead starts a proxy for a prewarmed jail, which has no run yet.
func (s *Setup) StartAhead(ctx context.Context, cgroup string) (prewarm.Proxy, error) {
	p, err := s.Start(ctx, cgroup)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Start starts a proxy for the jail in cgroup. The proxy serves requests once Serve is called. A
// run without a proxy has no network at all.
func (s *Setup) Start(ctx context.Context, cgroup string) (*Proxy, error) {
	p := &Proxy{roots: s.fetch.Roots, begun: map[uint64]begunFetch{}, serves: make(chan struct{}),
		held: held{host: s.host, policy: s.policy, approved: map[uint64]fetch.What{},
			pending: map[string]*problem.Error{}}}
	var err error
	if p.ids, err = idrange.Take(); err != nil {
		return nil, problem.New(problem.Busy, "%w", err).
			WithHint("try again when other runs have ended")
	}
	setup := s.fetch
	setup.UID = p.ids.Base
	p.proc, err = fetch.Start(ctx, fetch.Spec{Exe: s.host.Exe, Cgroup: rungroup.Fetch(cgroup),
		Setup: setup, Record: p, Ask: p.ask, Died: p.died})
	if err != nil {
		p.ids.Release()
		if errors.Is(err, fetch.ErrLate) {
			return nil, problem.New(problem.Failed, "%w", err)
		}
		return nil, s.host.Layers.Missing("fetch proxy", err.Error(), err)
	}
	return p, nil
}

// Serve assigns the proxy to a run. It is called once, before a tool of the run starts.
func (f *Proxy) Serve(run Run) {
	f.held.run = run
	close(f.serves)
}

// Dead reports whether the proxy ended before it was closed.
func (f *Proxy) Dead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// Discard ends a proxy that has served no run.
func (f *Proxy) Discard() {
	// There is nothing to record, so errors do not matter.
	_ = errors.Join(f.proc.Close(), f.proc.Door.Close())
	f.ids.Release()
}

// records returns the log of the run. It blocks until Serve is called.
func (f *Proxy) records() *runlog.Log {
	<-f.serves
	return f.held.run.Records
}

// ask asks for an approval of a request of the run.
func (f *Proxy) ask(ctx context.Context, q fetch.Question) fetch.Verdict {
	<-f.serves
	return f.held.ask(ctx, q)
}

// badSettings returns the error of a run that fails because the operator's settings are invalid.
func (h *Host) badSettings(err error) error {
	text := err.Error()
	// An error with a position already starts with the path.
	if !strings.HasPrefix(text, h.Settings+":") {
		text = h.Settings + ": " + text
	}
	return problem.New(problem.Failed, "settings of fetches, %s", text).
		WithCause(err).
		WithHint("the operator of this host corrects that file, or what it names")
}

// Door returns the jail's end of the proxy's socket, passed last to the jail; nil if f is nil.
func (f *Proxy) Door() []*os.File {
	if f == nil {
		return nil
	}
	return []*os.File{f.proc.Door}
}

// Authority returns the certificates, in PEM, that the run's tools must trust: the proxy's own and
// the operator's roots.
func (f *Proxy) Authority() string {
	return string(slices.Concat(f.proc.Authority, []byte("\n"), f.roots))
}

// Usage returns the bytes and requests of the run's fetches so far. Other fields are zero.
func (f *Proxy) Usage() message.Usage {
	if f == nil {
		return message.Usage{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.usage
}

// Waiting returns an error if one of the run's requests still waits for an approval, else nil. It
// is called after Close.
func (f *Proxy) Waiting() error {
	if f == nil {
		return nil
	}
	return f.held.waiting()
}

// Close ends the proxy and returns its usage and refusals. It is called once, after the jail has
// ended.
func (f *Proxy) Close() (message.Usage, []runners.Denial, error) {
	if f == nil {
		return message.Usage{}, nil, nil
	}
	err := errors.Join(f.proc.Close(), f.proc.Door.Close(), f.held.close())
	f.ids.Release()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err = errors.Join(err, f.err); err != nil {
		return message.Usage{}, nil, problem.New(problem.Failed, "fetch proxy: %w", err)
	}
	return f.usage, f.denials.List(), nil
}

func fetchEvent(w fetch.What) audit.Fetch {
	return audit.Fetch{Kind: w.Kind, Decision: w.Decision, Layer: w.Layer, Rule: w.Rule,
		Method: w.Method, Scheme: w.Scheme, Host: w.Host, Port: w.Port,
		Path: w.Path, Query: w.Query, Credential: w.Credential, TLSMode: w.Mode, Hops: w.Hops,
		Internal: w.Internal}
}

// IntendAfter durably records the outcomes ended and the intent i before the request is sent. After
// a refusal, which is a sentence for the tool, or an error, the request must not be sent.
func (f *Proxy) IntendAfter(ended []fetch.Outcome, i fetch.Intent) (string, error) {
	<-f.serves
	if refuse := f.held.unapproved(i.What); refuse != "" {
		for _, o := range ended {
			f.Ended(o)
		}
		return refuse, nil
	}
	var entries []audit.Entry
	for _, o := range ended {
		if cause, e, ok := f.ended(o); ok {
			entries = append(entries, f.records().Entry(cause, e))
		}
	}
	e := fetchEvent(i.What)
	e.Begun, e.Resolve = true, i.Resolve
	for _, a := range i.Addresses {
		e.Addresses = append(e.Addresses, a.String())
	}
	if i.Socket != "" {
		e.Addresses = []string{"unix:" + i.Socket}
	}
	_, seq, err := f.records().AppendAll(append(entries, f.records().Entry(f.before(i.What), e)))
	if err != nil && len(entries) > 0 {
		f.failedAppend(0, err)
	}
	if err == nil && i.Credential != "" {
		_, err = f.records().Append(seq, audit.CredentialUsed{Name: i.Credential, Kind: i.Kind,
			Method: i.Method, Host: i.Host, Port: i.Port, Path: i.Path})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.err = errors.Join(f.err, err)
		return "", err
	}
	f.begun[i.ID] = begunFetch{seq, i.What}
	f.usage.FetchRequests++
	if i.Decision == fetch.Reported {
		f.denials.Add(Layer, "would be refused: "+whatText(i.What), i.Layer+": "+i.Rule)
	}
	return "", nil
}

// maxSent bounds the remembered redirects of a run, as in the proxy.
const maxSent = 256

// before returns the number of the record of the request whose redirect led to w, or 0.
func (f *Proxy) before(w fetch.What) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent[w.After]
}

// Ended records the outcome of a request.
func (f *Proxy) Ended(o fetch.Outcome) {
	if cause, e, ok := f.ended(o); ok {
		f.failedAppend(f.records().Append(cause, e))
	}
}

// ended adds up the usage of a request. It returns the record of its outcome and the number of the
// record of its intent. The last result is false if there was no intent.
func (f *Proxy) ended(o fetch.Outcome) (uint64, audit.Event, bool) {
	f.mu.Lock()
	b, ok := f.begun[o.ID]
	delete(f.begun, o.ID)
	f.usage.FetchBytesIn += o.BytesIn
	f.usage.FetchBytesOut += o.BytesOut
	if ok && o.Redirect != "" {
		if f.sent == nil || len(f.sent) >= maxSent {
			f.sent = map[uint64]uint64{}
		}
		f.sent[o.ID] = b.seq
	}
	f.mu.Unlock()
	if !ok {
		return 0, nil, false
	}
	e := fetchEvent(b.what)
	e.Address, e.Status, e.In, e.Out, e.Connect, e.TLS, e.First, e.Total = o.Address, o.Status,
		o.BytesIn, o.BytesOut, o.Connect, o.TLS, o.First, o.Total
	e.Reused, e.Truncated, e.Scrubbed, e.Redirect = o.Reused, o.Truncated, o.Scrubbed, o.Redirect
	e.TLSVersion, e.TLSPeer, e.Error = o.Version, o.Peer, o.Error
	return b.seq, e, true
}

// Refused records a refusal: the first of its kind at once, equal ones as a count at the end of the
// run.
func (f *Proxy) Refused(r fetch.Refused) {
	d := runners.Denial{Layer: Layer, What: runners.Printable(whatText(r.What), 300),
		Rule: runners.Printable(r.Layer+": "+r.Rule, 300), Count: int(min(max(r.Count, 1), 1<<30))}
	f.mu.Lock()
	first := true
	for _, known := range f.denials.List() {
		if known.What == d.What && known.Rule == d.Rule {
			first = false
		}
	}
	first = first && len(f.denials.List()) < maxDenied
	f.denials.AddCount(d)
	f.mu.Unlock()
	if first {
		f.failedAppend(f.records().Append(f.before(r.What), fetchEvent(r.What)))
	}
}

func (f *Proxy) failedAppend(_ uint64, err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	f.err = errors.Join(f.err, err)
	f.mu.Unlock()
	f.held.run.Fail()
}

// died notes that the proxy ended before the run, which has had no network since.
func (f *Proxy) died(error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	f.denials.Add(Layer, "every fetch since", "the fetch proxy ended before the run did")
}

func whatText(w fetch.What) string {
	words := []string{w.Kind}
	if w.Kind == "request" {
		words = nil
	}
	if w.Method != "" {
		words = append(words, w.Method)
	}
	if w.Host == "" {
		return strings.Join(append(words, "a request that cannot be read"), " ")
	}
	return strings.Join(append(words, w.Host+":"+strconv.Itoa(int(w.Port))+w.Path), " ")
}
