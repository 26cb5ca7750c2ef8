// Package meters has the daemon's metrics for Prometheus. No label holds user data, such as the
// name of a tool, file, host or user.
package meters

import (
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/supervisor/admission"
	"github.com/jail-sandbox/jail/supervisor/hostpolicy"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/metrics"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/runproxy"
)

// Meters are the metrics of one daemon.
type Meters struct {
	set     metrics.Set
	results results

	// Starts counts the jails given to runs, by "warm" (prewarmed) or "cold" (new).
	Starts *metrics.Counter
	// Queued measures the time until a run is admitted, Begin until the order to start its tool,
	// both from the request.
	Queued *metrics.Histogram
	Begin  *metrics.Histogram
	// Appended measures the time until a record is on disk.
	Appended *metrics.Histogram
}

// results are the metrics that count ended runs.
type results struct {
	runs    *metrics.Counter
	denied  *metrics.Counter
	limits  *metrics.Counter
	fetches *metrics.Counter
	fetched *metrics.Counter
	changes *metrics.Counter
	cpu     *metrics.Counter
	whole   *metrics.Histogram
}

// Sources provide values that are read at each WriteTo.
type Sources struct {
	Version string
	// Waiting returns how many records wait to be on disk, Active how many runs and sessions are
	// alive, and Prewarmed how many jails are in the pool.
	Waiting, Active, Prewarmed func() int
	Queue                      *admission.Queue
	Policies                   func() hostpolicy.Status
}

// Outcomes of runs.
const (
	outcomeExited = "exited" // exit code 0
	outcomeFailed = "failed" // another exit code
	outcomeSignal = "signal" // ended by a signal
	outcomeLimit  = "limit"  // a limit was reached
	// never started: policy, a missing layer, no such tool, a wrong request
	outcomeRefused = "refused"
	// never started: no capacity, or the daemon was ending
	outcomeBusy  = "busy"
	outcomeError = "error" // jail itself failed
)

// New returns the metrics of a daemon. Counters with known labels start at 0, since Prometheus
// needs a zero to compute a rate.
func New(s Sources) *Meters {
	m := &Meters{}
	set, of := &m.set, &m.results
	of.runs = set.Counter("jail_runs_total", "Runs that have ended, by how.", "outcome")
	for _, o := range []string{outcomeExited, outcomeFailed, outcomeSignal, outcomeLimit,
		outcomeRefused, outcomeBusy, outcomeError} {
		of.runs.Add(0, o)
	}
	m.Starts = set.Counter("jail_starts_total",
		"Jails that runs were given: warm ones stood already and waited, cold ones were made when "+
			"they were asked for.", "start")
	m.Starts.Add(0, prewarm.StartWarm)
	m.Starts.Add(0, prewarm.StartCold)
	of.denied = set.Counter("jail_denied_total", "What tools were refused, by the layer that did.",
		"layer")
	for _, l := range []string{"policy", runproxy.Layer, "seccomp", "landlock", "wasi", "mount"} {
		of.denied.Add(0, l)
	}
	of.limits = set.Counter("jail_limit_hits_total", "Runs that met a limit, by its name.", "limit")
	of.fetches = set.Counter("jail_fetch_requests_total", "Requests that the fetch proxies made.")
	of.fetched = set.Counter("jail_fetch_bytes_total", "Bytes that went through the fetch proxies.",
		"direction")
	of.fetched.Add(0, "in")
	of.fetched.Add(0, "out")
	of.changes = set.Counter("jail_workspace_changes_total", "Changes that runs made to shadows.",
		"kind")
	of.cpu = set.Counter("jail_cpu_seconds_total", "CPU time that runs used.")
	of.whole = set.Histogram("jail_run_seconds", "From the request of a run to its result.",
		metrics.Latencies)
	m.Queued = set.Histogram("jail_admission_seconds",
		"From the request of a run to its being let in: decision, compilation where it was the "+
			"module's first run, and waiting.", metrics.Latencies)
	m.Begin = set.Histogram("jail_start_seconds",
		"From the request of a run to the order to start its tool.", metrics.Latencies)
	m.Appended = set.Histogram("jail_audit_append_seconds",
		"How long a record takes to be on disk, signed: the audit lag.", metrics.Latencies)
	set.Gauge("jail_audit_waiting", "Records that wait to be on disk.",
		func() float64 { return float64(s.Waiting()) })
	set.Gauge("jail_runs_active", "Runs and sessions that are alive.",
		func() float64 { return float64(s.Active()) })
	s.bounds(set)
	set.Count("jail_policy_reloads_total", "Changes of policy files that were taken up.",
		func() float64 { return float64(s.Policies().Reloads) })
	set.Count("jail_policy_reload_failures_total", "Changes of policy files that were refused.",
		func() float64 { return float64(s.Policies().Failures) })
	set.Info("jail_build_info", "The version.", "version", s.Version, "go", runtime.Version())
	process(set)
	return m
}

func (s Sources) bounds(set *metrics.Set) {
	set.Gauge("jail_pool_jails", "Jails that stand and wait for runs.",
		func() float64 { return float64(s.Prewarmed()) })
	set.Gauge("jail_pool_jails_max", "Jails that may.",
		func() float64 { return float64(s.Queue.Bounds().Warm) })
	set.Gauge("jail_admission_waiting", "Runs that wait to be let in.",
		func() float64 { return float64(s.Queue.Load().Waiting) })
	set.Gauge("jail_admission_running", "Runs that were let in.",
		func() float64 { return float64(s.Queue.Load().Runs) })
	set.Gauge("jail_admission_running_max", "Runs that may be in at one time.",
		func() float64 { return float64(s.Queue.Bounds().Runs) })
	set.Gauge("jail_admission_memory_bytes",
		"Memory that is promised: limits of what was let in, all together.",
		func() float64 { return float64(s.Queue.Load().Memory) })
	set.Gauge("jail_admission_memory_bytes_max", "Memory that may be promised.",
		func() float64 { return float64(s.Queue.Bounds().Memory) })
	set.Count("jail_admission_refused_total", "Runs that were told that the daemon is busy.",
		func() float64 { return float64(s.Queue.Load().Refused) })
}

// process adds the standard metrics of a process under their Prometheus names.
func process(set *metrics.Set) {
	start := float64(time.Now().UnixMilli()) / 1000
	set.Gauge("process_start_time_seconds", "When the daemon started, in seconds since 1970.",
		func() float64 { return start })
	set.Gauge("process_resident_memory_bytes", "Memory of the daemon.", func() float64 {
		text, err := os.ReadFile("/proc/self/statm")
		fields := strings.Fields(string(text))
		if err != nil || len(fields) < 2 {
			return 0
		}
		pages, _ := strconv.ParseFloat(fields[1], 64)
		return pages * float64(os.Getpagesize())
	})
	set.Gauge("process_open_fds", "Descriptors of the daemon.", func() float64 {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return 0
		}
		return float64(len(names))
	})
	set.Gauge("go_goroutines", "Goroutines of the daemon.",
		func() float64 { return float64(runtime.NumGoroutine()) })
}

// Ended counts an ended run. whole is its duration, or 0 if the run never started.
func (m *Meters) Ended(res *message.Result, whole time.Duration) {
	of := &m.results
	of.runs.Add(1, outcomeOf(res))
	for _, d := range res.Denied {
		of.denied.Add(float64(max(d.Count, 1)), d.Layer)
	}
	if res.Limit != nil {
		of.limits.Add(1, res.Limit.Name)
	}
	u := res.Usage
	of.fetches.Add(float64(u.FetchRequests))
	of.fetched.Add(float64(u.FetchBytesIn), "in")
	of.fetched.Add(float64(u.FetchBytesOut), "out")
	of.cpu.Add(float64(u.CPUMS) / 1000)
	of.changes.Add(float64(res.Changes.Added), "added")
	of.changes.Add(float64(res.Changes.Modified), "modified")
	of.changes.Add(float64(res.Changes.Deleted), "deleted")
	if whole > 0 {
		of.whole.Observe(whole)
	}
}

func outcomeOf(res *message.Result) string {
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

// WriteTo writes all metrics in the text format of Prometheus.
func (m *Meters) WriteTo(w io.Writer) (int64, error) { return m.set.WriteTo(w) }
