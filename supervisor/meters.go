package supervisor

import (
	"context"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/metrics"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// meters are what the daemon counts. Nothing in them is of a user's: no name of a tool, a file, a
// host or a user is a label.
type meters struct {
	set      metrics.Set
	runs     *metrics.Counter
	starts   *metrics.Counter
	denied   *metrics.Counter
	limits   *metrics.Counter
	fetches  *metrics.Counter
	fetched  *metrics.Counter
	changes  *metrics.Counter
	whole    *metrics.Histogram
	queued   *metrics.Histogram
	begin    *metrics.Histogram
	cpu      *metrics.Counter
	appended *metrics.Histogram
}

// Outcomes of runs.
const (
	outcomeExited = "exited" // with 0
	outcomeFailed = "failed" // with another code
	outcomeSignal = "signal" // ended by one
	outcomeLimit  = "limit"  // met one
	// never started: policy, a missing layer, no such tool, a wrong request
	outcomeRefused = "refused"
	// never started: there was no room, or the daemon was being ended
	outcomeBusy  = "busy"
	outcomeError = "error" // jail itself failed
)

// newMeters makes the metrics of a supervisor. Those that can be known before they happen are there
// from the start, since a rate needs a zero.
func newMeters(s *Supervisor) *meters {
	m := &meters{}
	set := &m.set
	m.runs = set.Counter("jail_runs_total", "Runs that have ended, by how.", "outcome")
	for _, o := range []string{outcomeExited, outcomeFailed, outcomeSignal, outcomeLimit,
		outcomeRefused, outcomeBusy, outcomeError} {
		m.runs.Add(0, o)
	}
	m.starts = set.Counter("jail_starts_total",
		"Jails that runs were given: warm ones stood already and waited, cold ones were made when they were asked for.", "start")
	m.starts.Add(0, prewarm.StartWarm)
	m.starts.Add(0, prewarm.StartCold)
	m.denied = set.Counter("jail_denied_total", "What tools were refused, by the layer that did.",
		"layer")
	for _, l := range []string{"policy", layerFetch, "seccomp", "landlock", "wasi", "mount"} {
		m.denied.Add(0, l)
	}
	m.limits = set.Counter("jail_limit_hits_total", "Runs that met a limit, by its name.", "limit")
	m.fetches = set.Counter("jail_fetch_requests_total", "Requests that the fetch proxies made.")
	m.fetched = set.Counter("jail_fetch_bytes_total", "Bytes that went through the fetch proxies.",
		"direction")
	m.fetched.Add(0, "in")
	m.fetched.Add(0, "out")
	m.changes = set.Counter("jail_workspace_changes_total", "Changes that runs made to shadows.",
		"kind")
	m.cpu = set.Counter("jail_cpu_seconds_total", "CPU time that runs used.")
	m.whole = set.Histogram("jail_run_seconds", "From the request of a run to its result.",
		metrics.Latencies)
	m.queued = set.Histogram("jail_admission_seconds",
		"From the request of a run to its being let in: decision, compilation where it was the module's first run, and waiting.", metrics.Latencies)
	m.begin = set.Histogram("jail_start_seconds",
		"From the request of a run to the order to start its tool.", metrics.Latencies)
	m.appended = set.Histogram("jail_audit_append_seconds",
		"How long a record takes to be on disk, signed: the audit lag.", metrics.Latencies)
	set.Gauge("jail_audit_waiting", "Records that wait to be on disk.",
		func() float64 { return float64(s.log.waiting.Load()) })
	set.Gauge("jail_runs_active", "Runs and sessions that are alive.", func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(len(s.active))
	})
	m.bounds(s)
	set.Count("jail_policy_reloads_total", "Changes of policy files that were taken up.",
		func() float64 { return float64(s.policies.Status().Reloads) })
	set.Count("jail_policy_reload_failures_total", "Changes of policy files that were refused.",
		func() float64 { return float64(s.policies.Status().Failures) })
	set.Info("jail_build_info", "The version.", "version", s.config.Version, "go",
		runtime.Version())
	m.process()
	return m
}

func (m *meters) bounds(s *Supervisor) {
	set := &m.set
	set.Gauge("jail_pool_jails", "Jails that stand and wait for runs.",
		func() float64 { return float64(s.pool.Prewarmed()) })
	set.Gauge("jail_pool_jails_max", "Jails that may.",
		func() float64 { return float64(s.queue.Bounds().Warm) })
	set.Gauge("jail_admission_waiting", "Runs that wait to be let in.",
		func() float64 { return float64(s.queue.Load().Waiting) })
	set.Gauge("jail_admission_running", "Runs that were let in.",
		func() float64 { return float64(s.queue.Load().Runs) })
	set.Gauge("jail_admission_running_max", "Runs that may be in at one time.",
		func() float64 { return float64(s.queue.Bounds().Runs) })
	set.Gauge("jail_admission_memory_bytes",
		"Memory that is promised: limits of what was let in, all together.",
		func() float64 { return float64(s.queue.Load().Memory) })
	set.Gauge("jail_admission_memory_bytes_max", "Memory that may be promised.",
		func() float64 { return float64(s.queue.Bounds().Memory) })
	set.Count("jail_admission_refused_total", "Runs that were told that the daemon is busy.",
		func() float64 { return float64(s.queue.Load().Refused) })
}

// process adds what Prometheus knows of any process, by the names that it has for it.
func (m *meters) process() {
	start := float64(time.Now().UnixMilli()) / 1000
	m.set.Gauge("process_start_time_seconds", "When the daemon started, in seconds since 1970.",
		func() float64 { return start })
	m.set.Gauge("process_resident_memory_bytes", "Memory of the daemon.", func() float64 {
		text, err := os.ReadFile("/proc/self/statm")
		fields := strings.Fields(string(text))
		if err != nil || len(fields) < 2 {
			return 0
		}
		pages, _ := strconv.ParseFloat(fields[1], 64)
		return pages * float64(os.Getpagesize())
	})
	m.set.Gauge("process_open_fds", "Descriptors of the daemon.", func() float64 {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return 0
		}
		return float64(len(names))
	})
	m.set.Gauge("go_goroutines", "Goroutines of the daemon.",
		func() float64 { return float64(runtime.NumGoroutine()) })
}

// ended counts a run that is over; whole is 0 for one that never was.
func (m *meters) ended(res *Result, whole time.Duration) {
	m.runs.Add(1, outcomeOf(res))
	for _, d := range res.Denied {
		m.denied.Add(float64(max(d.Count, 1)), d.Layer)
	}
	if res.Limit != nil {
		m.limits.Add(1, res.Limit.Name)
	}
	u := res.Usage
	m.fetches.Add(float64(u.FetchRequests))
	m.fetched.Add(float64(u.FetchBytesIn), "in")
	m.fetched.Add(float64(u.FetchBytesOut), "out")
	m.cpu.Add(float64(u.CPUMS) / 1000)
	m.changes.Add(float64(res.Changes.Added), "added")
	m.changes.Add(float64(res.Changes.Modified), "modified")
	m.changes.Add(float64(res.Changes.Deleted), "deleted")
	if whole > 0 {
		m.whole.Observe(whole)
	}
}

func outcomeOf(res *Result) string {
	switch {
	case res.Error != nil && (res.Error.Code == problem.Busy || res.Error.Code == problem.Ending):
		return outcomeBusy
	case res.Error != nil && res.Error.Code == problem.Failed:
		return outcomeError
	case res.Error != nil:
		return outcomeRefused
	case res.Limit != nil:
		return outcomeLimit
	case res.Signal != nil:
		return outcomeSignal
	case res.ExitCode != 0:
		return outcomeFailed
	}
	return outcomeExited
}

// Metrics writes what the daemon has counted, in the text format of Prometheus.
func (s *Supervisor) Metrics(w io.Writer) error {
	_, err := s.meters.set.WriteTo(w)
	return err
}

// Meters is where parts of the daemon around the supervisor add what they count.
func (s *Supervisor) Meters() *metrics.Set { return &s.meters.set }

// timedLog is the audit log, and how long it takes.
type timedLog struct {
	*audit.Log
	s       *Supervisor
	waiting atomic.Int64
}

// Append is that of the log.
func (l *timedLog) Append(ctx context.Context, e audit.Entry) (uint64, error) {
	begun := time.Now()
	l.waiting.Add(1)
	l.s.named(&e)
	seq, err := l.Log.Append(ctx, e)
	l.waiting.Add(-1)
	l.s.meters.appended.Observe(time.Since(begun))
	return seq, err
}

// AppendAll is that of the log.
func (l *timedLog) AppendAll(entries []audit.Entry) (first, last uint64, err error) {
	for i := range entries {
		l.s.named(&entries[i])
	}
	return l.Log.AppendAll(entries)
}
