package supervisor

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/jail-sandbox/jail/jail/confine"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/fetch"
	"github.com/jail-sandbox/jail/supervisor/idrange"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
	"github.com/jail-sandbox/jail/supervisor/runlog"
)

// layerFetch is the layer of refused fetches. No word from inside may be in its name.
const layerFetch = "fetch"

// fetching is the network of one run: its proxy, and what the proxy did.
type fetching struct {
	run  *run
	proc *fetch.Process
	ids  *idrange.Range
	// records are the run's.
	records *runlog.Log
	// roots are the certificates that the proxy trusts, in PEM.
	roots []byte

	mu    sync.Mutex
	begun map[uint64]begunFetch
	// sequence numbers of requests whose answers sent the tool elsewhere
	sent    map[uint64]uint64
	denials runners.Denials
	usage   Usage // the fields of fetches
	// of the log, or the proxy's death
	err error
}

// A begunFetch is an intent that is on record.
type begunFetch struct {
	seq  uint64
	what fetch.What
}

// A proxyFilter is the compiled system call filter of fetch proxies.
type proxyFilter struct {
	mu      sync.Mutex
	program []byte
}

// get compiles the filter once for the daemon.
func (f *proxyFilter) get(ctx context.Context, l launch.Launcher) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.program == nil {
		program, err := l.CompileFilter(ctx, confine.Filter())
		if err != nil {
			return nil, err
		}
		f.program = program
	}
	return f.program, nil
}

// startFetch starts the run's proxy, where the policy grants any fetch. Without one there is no
// door, and no network at all.
func (r *run) startFetch(ctx context.Context) error {
	if r.job.compile || r.job.hold != nil || r.job.plan.Fetch == nil {
		return nil
	}
	f := &fetching{run: r, records: r.records, begun: map[uint64]begunFetch{}}
	settings, err := fetch.ReadSettings(r.s.config.Fetch)
	if err != nil {
		return r.badFetchSettings(err)
	}
	setup, err := settings.SetupFor(ctx, r.job.eff)
	if err != nil {
		return r.badFetchSettings(err)
	}
	if r.job.script != nil {
		setup.Scopes = r.job.script.scopes
	}
	f.roots = setup.Roots
	// A module speaks no TLS of its own.
	setup.Intercept = r.job.tool.native != ""
	if setup.Filter, err = r.s.filter.get(ctx, r.s.launcher); err != nil {
		return r.s.layers.Missing("fetch proxy", err.Error(), err)
	}
	if f.ids, err = idrange.Take(); err != nil {
		return problem.New(problem.Busy, "%w", err).WithHint("try again when other runs have ended")
	}
	setup.UID = f.ids.Base
	f.proc, err = fetch.Start(ctx, fetch.Spec{Exe: r.s.config.Exe,
		Cgroup: rungroup.Fetch(r.job.plan.Cgroup.Path), Setup: setup, Record: f, Died: f.died})
	if err != nil {
		f.ids.Release()
		return r.s.layers.Missing("fetch proxy", err.Error(), err)
	}
	r.fetch.Store(f)
	return nil
}

// badFetchSettings says what is wrong with the operator's file, and to whom.
func (r *run) badFetchSettings(err error) error {
	text := strings.TrimPrefix(err.Error(), r.s.config.Fetch+": ")
	return problem.New(problem.Failed, "settings of fetches, %s: %s", r.s.config.Fetch, text).
		WithCause(err).
		WithHint("the operator of this host corrects that file, or what it names")
}

// reportWarnings is what each run under report mode is told: what no rule grants was sent.
func reportWarnings(eff policy.Effective) (out []string) {
	for _, w := range eff.Policy().Weaknesses() {
		if w.Rule == "fetch.mode" {
			out = append(out, w.Text)
		}
	}
	return out
}

// door is the descriptor that comes last with the order, if there is one.
func (r *run) door() []*os.File {
	f := r.fetch.Load()
	if f == nil {
		return nil
	}
	return []*os.File{f.proc.Door}
}

// fetched is what the fetch proxy of a run did.
type fetched struct {
	// usage has the fields of fetches.
	usage  Usage
	denied []runners.Denial
}

// endFetch ends the proxy and returns what it did. The jail must have ended. Called again, it does
// nothing.
func (r *run) endFetch() (fetched, error) {
	f := r.fetch.Swap(nil)
	if f == nil {
		return fetched{}, nil
	}
	err := errors.Join(f.proc.Close(), f.proc.Door.Close())
	f.ids.Release()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err = errors.Join(err, f.err); err != nil {
		return fetched{}, problem.New(problem.Failed, "fetch proxy: %w", err)
	}
	return fetched{f.usage, f.denials.List()}, nil
}

func fetchEvent(w fetch.What) audit.Fetch {
	return audit.Fetch{Kind: w.Kind, Decision: w.Decision, Layer: w.Layer, Rule: w.Rule,
		Method: w.Method, Scheme: w.Scheme, Host: w.Host, Port: w.Port,
		Path: w.Path, Query: w.Query, Credential: w.Credential, TLSMode: w.Mode, Hops: w.Hops}
}

// Intend puts on record what is about to be done. What cannot be recorded is not done.
func (f *fetching) Intend(i fetch.Intent) (string, error) { return f.IntendAfter(nil, i) }

// IntendAfter is Intend behind the ends of other requests.
func (f *fetching) IntendAfter(ended []fetch.Outcome, i fetch.Intent) (string, error) {
	var entries []audit.Entry
	for _, o := range ended {
		if cause, e, ok := f.ended(o); ok {
			entries = append(entries, f.records.Entry(cause, e))
		}
	}
	e := fetchEvent(i.What)
	e.Begun, e.Resolve = true, i.Resolve
	for _, a := range i.Addresses {
		e.Addresses = append(e.Addresses, a.String())
	}
	_, seq, err := f.records.AppendAll(append(entries, f.records.Entry(f.before(i.What), e)))
	if err != nil && len(entries) > 0 {
		f.failedAppend(0, err)
	}
	if err == nil && i.Credential != "" {
		_, err = f.records.Append(seq, audit.CredentialUsed{Name: i.Credential, Kind: i.Kind,
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
		f.denials.Add(layerFetch, "would be refused: "+whatText(i.What), i.Layer+": "+i.Rule)
	}
	return "", nil
}

// maxSent bounds the redirects of a run that are remembered, as the proxy does.
const maxSent = 256

// before returns the record of the request whose answer sent the tool here, or 0.
func (f *fetching) before(w fetch.What) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent[w.After]
}

// Ended puts on record how it ended.
func (f *fetching) Ended(o fetch.Outcome) {
	if cause, e, ok := f.ended(o); ok {
		f.failedAppend(f.records.Append(cause, e))
	}
}

// ended takes over how a request ended, and returns what there is to record of it and its cause, if
// it was begun.
func (f *fetching) ended(o fetch.Outcome) (uint64, audit.Event, bool) {
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

// Refused puts a refusal on record: the first of its kind whole, those alike as a number at the end
// of the run.
func (f *fetching) Refused(r fetch.Refused) {
	d := runners.Denial{Layer: layerFetch, What: runners.Printable(whatText(r.What), 300),
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
		f.failedAppend(f.records.Append(f.before(r.What), fetchEvent(r.What)))
	}
}

func (f *fetching) failedAppend(_ uint64, err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	f.err = errors.Join(f.err, err)
	f.mu.Unlock()
	f.run.end(cause{gone: true})
}

// died says of a run whose proxy ended before it that it has had no network since.
func (f *fetching) died(error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.denials.Add(layerFetch, "every fetch since", "the fetch proxy ended before the run did")
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
