// Package runproxy connects a run to its fetch proxy: it starts the proxy, records each fetch
// before and after it is made, and reports the totals at the end.
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

// Layer is the layer of refused fetches. A report from inside a jail cannot name it.
const Layer = "fetch"

// maxDenied bounds the refusals of a run that are recorded one by one.
const maxDenied = 100

// A Proxy is the fetch proxy of one run, with what it has fetched and refused. A nil Proxy is that
// of a run without one. Its methods may be called from several goroutines.
type Proxy struct {
	proc *fetch.Process
	ids  *idrange.Range
	// roots are the certificates that the proxy trusts, in PEM.
	roots []byte
	// held.run is valid once serves is closed.
	held   held
	serves chan struct{}

	mu    sync.Mutex
	dead  bool
	begun map[uint64]begunFetch
	// by id of a redirected request, the sequence number of its record
	sent    map[uint64]uint64
	denials runners.Denials
	usage   message.Usage // the fields of fetches
	// error of the audit log
	err error
}

// A begunFetch is a fetch whose intent is recorded as seq.
type begunFetch struct {
	seq  uint64
	what fetch.What
}

// A Host starts the proxies of a daemon.
type Host struct {
	Launcher launch.Launcher
	Layers   hostlayers.Host
	// Exe is the path of the proxy's program.
	Exe string
	// Settings is the path of the operator's settings for fetches.
	Settings string
	// Queue asks for approvals of requests.
	Queue Queue
	// Errors logs failures of Queue.
	Errors *daemonlog.Log

	// filter is the system call filter of proxies.
	filter launch.FilterOnce
}

// A Spec describes the proxy of a run.
type Spec struct {
	Policy policy.Effective
	// Scopes are the hosts for those commands of a script that may reach fewer hosts than the
	// script.
	Scopes []fetch.SetupLayer
	// Intercept lets the proxy terminate TLS in the name of hosts. A module needs none, since it
	// speaks no TLS.
	Intercept bool
}

// A Run is the run whose requests a proxy serves.
type Run struct {
	Records *runlog.Log
	// Caller started the run. Asks is the approval request without the fetch.
	Caller caller.Caller
	Asks   approvals.FetchRequest
	// InSession says that grants outlive the run, because they belong to its session.
	InSession bool
	// Left returns for how much longer the run's requests may wait for approvals.
	Left func() time.Duration
	// Fail ends the run because an action of the proxy could not be recorded.
	Fail func()
}

// A Setup is the configuration of a proxy, with the current settings and secrets.
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

// Same reports whether both setups make equal proxies.
func (s *Setup) Same(other prewarm.Network) bool {
	o, ok := other.(*Setup)
	return ok && reflect.DeepEqual(s.fetch, o.fetch)
}

// StartAhead starts the proxy of a prewarmed jail.
func (s *Setup) StartAhead(ctx context.Context, cgroup string) (prewarm.Proxy, error) {
	p, err := s.Start(ctx, cgroup)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Start starts the proxy of a jail with that control group. It serves nothing before Serve.
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

// Serve lets the proxy serve a run. It is called once, before the tool starts.
func (f *Proxy) Serve(run Run) {
	f.held.run = run
	close(f.serves)
}

// Dead reports whether the proxy has ended by itself.
func (f *Proxy) Dead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// Discard ends a proxy that was never used.
func (f *Proxy) Discard() {
	// Nothing was to be recorded.
	_ = errors.Join(f.proc.Close(), f.proc.Door.Close())
	f.ids.Release()
}

// records returns the records of the run. It waits until Serve is called.
func (f *Proxy) records() *runlog.Log {
	<-f.serves
	return f.held.run.Records
}

// ask asks for the approval of a request of the run.
func (f *Proxy) ask(ctx context.Context, q fetch.Question) fetch.Verdict {
	<-f.serves
	return f.held.ask(ctx, q)
}

// badSettings returns the error of a run whose settings file is invalid.
func (h *Host) badSettings(err error) error {
	text := err.Error()
	// An error with a line number starts with the path already.
	if !strings.HasPrefix(text, h.Settings+":") {
		text = h.Settings + ": " + text
	}
	return problem.New(problem.Failed, "settings of fetches, %s", text).
		WithCause(err).
		WithHint("the operator of this host corrects that file, or what it names")
}

// Door returns the proxy connection, the last descriptor passed to jail-init, or nil without a
// proxy.
func (f *Proxy) Door() []*os.File {
	if f == nil {
		return nil
	}
	return []*os.File{f.proc.Door}
}

// Authority returns the certificates that the tool is to trust, in PEM: the proxy's own and those
// that the proxy trusts.
func (f *Proxy) Authority() string {
	return string(slices.Concat(f.proc.Authority, []byte("\n"), f.roots))
}

// Usage returns the bytes and requests of the run's fetches so far. All other fields are zero.
func (f *Proxy) Usage() message.Usage {
	if f == nil {
		return message.Usage{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.usage
}

// Waiting returns the error for the run if one of its requests still waits for an approval, or nil.
// It is called after Close.
func (f *Proxy) Waiting() error {
	if f == nil {
		return nil
	}
	return f.held.waiting()
}

// Close ends the proxy and returns its usage and refusals. The jail must have ended. It is called
// once.
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

// IntendAfter records the ends of other requests and the intent of a fetch, on disk, before the
// fetch is made. If it returns a refusal text for the tool, or an error, the fetch must not be
// made.
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

// maxSent bounds how many redirects of a run are remembered.
const maxSent = 256

// before returns the record of the request that was redirected to w, or 0.
func (f *Proxy) before(w fetch.What) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent[w.After]
}

// Ended records the end of a fetch.
func (f *Proxy) Ended(o fetch.Outcome) {
	if cause, e, ok := f.ended(o); ok {
		f.failedAppend(f.records().Append(cause, e))
	}
}

// ended counts the end of a fetch and returns the sequence number of its intent and its end record.
// The last result is false if the fetch has no intent.
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

// Refused records a refusal. Only the first of its kind is recorded at once; equal ones are counted
// and recorded at the end of the run.
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

// died notes that the proxy ended before its run, which has no network since then.
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
