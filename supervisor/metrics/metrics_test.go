package metrics

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestText(t *testing.T) {
	set := &Set{}
	c := set.Counter("runs_total", "Runs.\nBy \\ outcome.", "outcome")
	c.Add(2, "ex\"it\\ed\n")
	c.Add(0, "failed")
	set.Counter("plain_total", "Plain.").Add(1.5)
	set.Gauge("live", "Live.", func() float64 { return 3 })
	set.Info("build_info", "What.", "version", "1")
	h := set.Histogram("seconds", "Times.", []float64{.1, 1})
	for _, d := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond,
		500 * time.Millisecond, time.Minute} {
		h.Observe(d)
	}
	var b strings.Builder
	if _, err := set.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	const want = `# HELP build_info What.
# TYPE build_info gauge
build_info{version="1"} 1
# HELP live Live.
# TYPE live gauge
live 3
# HELP plain_total Plain.
# TYPE plain_total counter
plain_total 1.5
# HELP runs_total Runs.\nBy \\ outcome.
# TYPE runs_total counter
runs_total{outcome="ex\"it\\ed\n"} 2
runs_total{outcome="failed"} 0
# HELP seconds Times.
# TYPE seconds histogram
seconds_bucket{le="0.1"} 2
seconds_bucket{le="1"} 3
seconds_bucket{le="+Inf"} 4
seconds_sum 60.65
seconds_count 4
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

// However many values a label has, there is an end to what is kept, and nothing of it is lost.
func TestManySeries(t *testing.T) {
	set := &Set{}
	c, h := set.Counter("c_total", "C.", "l"), set.Histogram("h_seconds", "H.", []float64{1}, "l")
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			c.Add(1, fmt.Sprint(i))
			h.Observe(0, fmt.Sprint(i))
		})
	}
	all.Wait()
	var b strings.Builder
	if _, err := set.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{`c_total{l="other"} 744`, `h_seconds_count{l="other"} 744`} {
		if !strings.Contains(b.String(), other+"\n") {
			t.Errorf("no %s", other)
		}
	}
	if n := strings.Count(b.String(), "\nc_total{"); n != maxSeries+1 {
		t.Errorf("%d series", n)
	}
	line := regexp.MustCompile(
		`^(# (HELP|TYPE) .+|[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [0-9.e+-]+)$`)
	for l := range strings.Lines(b.String()) {
		if !line.MatchString(strings.TrimSuffix(l, "\n")) {
			t.Errorf("line %q", l)
		}
	}
}
