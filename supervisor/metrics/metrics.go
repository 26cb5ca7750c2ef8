// Package metrics counts, and writes what it has counted in the text format of Prometheus (version
// 0.0.4), so that a daemon can be watched without a dependency that is larger than the daemon's own
// API.
//
//	set := &metrics.Set{}
//	runs := set.Counter("jail_runs_total", "Runs that have ended.", "outcome")
//	runs.Add(1, "exited")
//	set.WriteTo(w)
//
// Names and values of labels come from the program, never from what a tool says: every pair of them
// is kept for as long as the daemon lives.
package metrics

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ContentType is the media type of the output of WriteTo.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// maxSeries bounds the label combinations of one metric. Further combinations are counted together,
// with the label value other.
const (
	maxSeries = 256
	other     = "other"
)

// A Set has the metrics of one daemon. The zero value is empty. Its methods are safe for concurrent
// use.
type Set struct {
	mu  sync.Mutex
	all []family
}

type family interface {
	name() string
	write(b *strings.Builder)
}

func (s *Set) add(f family) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, f)
}

// WriteTo writes all metrics, sorted by name.
func (s *Set) WriteTo(w io.Writer) (int64, error) {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b family) int { return strings.Compare(a.name(), b.name()) })
	var b strings.Builder
	for _, f := range all {
		f.write(&b)
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

type head struct {
	called, help, kind string
	labels             []string
}

func (h head) name() string { return h.called }

func (h head) top(b *strings.Builder) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", h.called,
		strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(h.help), h.called, h.kind)
}

// key returns the labels as text. It panics if there are not as many values as labels.
func (h head) key(values []string) string {
	if len(values) != len(h.labels) {
		panic(fmt.Sprintf("bug: metric %s has labels %v, and was given %v", h.called, h.labels,
			values))
	}
	var pairs []string
	for i, v := range values {
		pairs = append(pairs,
			h.labels[i]+`="`+strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(v)+`"`)
	}
	return strings.Join(pairs, ",")
}

func (h head) others() []string {
	values := make([]string, len(h.labels))
	for i := range values {
		values[i] = other
	}
	return values
}

func braced(pairs ...string) string {
	pairs = slices.DeleteFunc(pairs, func(p string) bool { return p == "" })
	if len(pairs) == 0 {
		return ""
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// A Counter is a metric that only grows.
type Counter struct {
	head
	mu     sync.Mutex
	series map[string]float64
}

// Counter adds a counter. A counter without labels starts as 0. With labels, a series exists after
// its first Add, which may add 0.
func (s *Set) Counter(name, help string, labels ...string) *Counter {
	c := &Counter{head: head{name, help, "counter", labels}, series: map[string]float64{}}
	if len(labels) == 0 {
		c.series[""] = 0
	}
	s.add(c)
	return c
}

// Add adds n, which must not be negative, to the series with these label values.
func (c *Counter) Add(n float64, values ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := c.key(values)
	if _, there := c.series[key]; !there && len(c.series) >= maxSeries {
		key = c.key(c.others())
	}
	c.series[key] += n
}

func (c *Counter) write(b *strings.Builder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.top(b)
	for _, key := range slices.Sorted(maps.Keys(c.series)) {
		fmt.Fprintf(b, "%s%s %s\n", c.called, braced(key), number(c.series[key]))
	}
}

// read is a metric whose value is read when the metrics are written.
type read struct {
	head
	value func() float64
}

// Gauge adds a metric that goes up and down. value is called at each WriteTo.
func (s *Set) Gauge(name, help string, value func() float64) {
	s.add(&read{head{name, help, "gauge", nil}, value})
}

// Count adds a counter that the caller keeps. value is called at each WriteTo.
func (s *Set) Count(name, help string, value func() float64) {
	s.add(&read{head{name, help, "counter", nil}, value})
}

func (r *read) write(b *strings.Builder) {
	r.top(b)
	fmt.Fprintf(b, "%s %s\n", r.called, number(r.value()))
}

// Info adds a metric of the constant value 1 whose labels carry information. pairs are label names
// and values in turn.
func (s *Set) Info(name, help string, pairs ...string) {
	c := &Counter{head: head{called: name, help: help, kind: "gauge"}, series: map[string]float64{}}
	var values []string
	for pair := range slices.Chunk(pairs, 2) {
		c.labels, values = append(c.labels, pair[0]), append(values, pair[1])
	}
	c.Add(1, values...)
	s.add(c)
}

// Latencies are bucket bounds in seconds, from 0.1 ms to two minutes.
var Latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1,
	2.5, 5, 10, 30, 60, 120}

// A Histogram counts durations in buckets.
type Histogram struct {
	head
	bounds []float64
	mu     sync.Mutex
	series map[string]*buckets
}

type buckets struct {
	// One count for each bound, and one for larger values. The counts are not cumulative.
	counts []uint64
	sum    float64
}

// Histogram adds a histogram. bounds are the upper bounds of the buckets in seconds, ascending.
func (s *Set) Histogram(name, help string, bounds []float64, labels ...string) *Histogram {
	h := &Histogram{head: head{name, help, "histogram", labels}, bounds: bounds,
		series: map[string]*buckets{}}
	if len(labels) == 0 {
		h.series[""] = &buckets{counts: make([]uint64, len(bounds)+1)}
	}
	s.add(h)
	return h
}

// Observe counts d in the series with these label values.
func (h *Histogram) Observe(d time.Duration, values ...string) {
	seconds := d.Seconds()
	h.mu.Lock()
	defer h.mu.Unlock()
	key := h.key(values)
	if h.series[key] == nil && len(h.series) >= maxSeries {
		key = h.key(h.others())
	}
	s := h.series[key]
	if s == nil {
		s = &buckets{counts: make([]uint64, len(h.bounds)+1)}
		h.series[key] = s
	}
	s.counts[sort.SearchFloat64s(h.bounds, seconds)]++
	s.sum += seconds
}

func (h *Histogram) write(b *strings.Builder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.top(b)
	for _, key := range slices.Sorted(maps.Keys(h.series)) {
		s, total := h.series[key], uint64(0)
		for i, n := range s.counts {
			total += n
			bound := "+Inf"
			if i < len(h.bounds) {
				bound = number(h.bounds[i])
			}
			fmt.Fprintf(b, "%s_bucket%s %d\n", h.called, braced(key, `le="`+bound+`"`), total)
		}
		fmt.Fprintf(b, "%s_sum%s %s\n%s_count%s %d\n", h.called, braced(key), number(s.sum),
			h.called, braced(key), total)
	}
}
