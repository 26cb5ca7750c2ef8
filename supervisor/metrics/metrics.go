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
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ContentType is that of what WriteTo writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// maxSeries bounds the combinations of labels of one metric; what comes beyond is counted together,
// under other.
const (
	maxSeries = 256
	other     = "other"
)

// A Set is what one daemon counts. The zero value is empty. Its methods may be called from several
// goroutines.
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

// WriteTo writes all metrics, in the order of their names.
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

// key makes the labels of a series; extra is one more, for the buckets of a histogram.
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

func number(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// A Counter only grows.
type Counter struct {
	head
	mu     sync.Mutex
	series map[string]float64
}

// Counter adds a counter. One without labels is there from the start, as 0; with labels, Add of 0
// makes a series be there.
func (s *Set) Counter(name, help string, labels ...string) *Counter {
	c := &Counter{head: head{name, help, "counter", labels}, series: map[string]float64{}}
	if len(labels) == 0 {
		c.series[""] = 0
	}
	s.add(c)
	return c
}

// Add counts n, which is not negative, for the values of the labels.
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

// read is a metric whose value is asked for when it is written.
type read struct {
	head
	value func() float64
}

// Gauge adds a value that goes up and down.
func (s *Set) Gauge(name, help string, value func() float64) {
	s.add(&read{head{name, help, "gauge", nil}, value})
}

// Count adds a counter that somebody else keeps.
func (s *Set) Count(name, help string, value func() float64) {
	s.add(&read{head{name, help, "counter", nil}, value})
}

func (r *read) write(b *strings.Builder) {
	r.top(b)
	fmt.Fprintf(b, "%s %s\n", r.called, number(r.value()))
}

// info is a constant 1 whose labels say something.
type info struct {
	head
	values []string
}

// Info adds a metric that says something in its labels: names and values in turn.
func (s *Set) Info(name, help string, pairs ...string) {
	i := &info{head: head{called: name, help: help, kind: "gauge"}}
	for j := 0; j+1 < len(pairs); j += 2 {
		i.labels, i.values = append(i.labels, pairs[j]), append(i.values, pairs[j+1])
	}
	s.add(i)
}

func (i *info) write(b *strings.Builder) {
	i.top(b)
	fmt.Fprintf(b, "%s%s 1\n", i.called, braced(i.key(i.values)))
}
