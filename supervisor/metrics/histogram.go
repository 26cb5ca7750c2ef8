package metrics

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// Latencies are bounds of buckets in seconds, from a tenth of a millisecond to two minutes.
var Latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1,
	2.5, 5, 10, 30, 60, 120}

// A Histogram counts how often a time was at most so long.
type Histogram struct {
	head
	bounds []float64
	mu     sync.Mutex
	series map[string]*buckets
}

type buckets struct {
	// One for each bound, and one beyond; not added up.
	counts []uint64
	sum    float64
}

// Histogram adds a histogram with buckets up to each of bounds, in seconds and rising.
func (s *Set) Histogram(name, help string, bounds []float64, labels ...string) *Histogram {
	h := &Histogram{head: head{name, help, "histogram", labels}, bounds: bounds,
		series: map[string]*buckets{}}
	if len(labels) == 0 {
		h.series[""] = &buckets{counts: make([]uint64, len(bounds)+1)}
	}
	s.add(h)
	return h
}

// Observe counts a time, for the values of the labels.
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
