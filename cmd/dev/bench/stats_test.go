package main

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSample(t *testing.T) {
	upTo := func(n int) (s sample) {
		for i := n; i > 0; i-- { // not in order
			s = append(s, time.Duration(i))
		}
		return s
	}
	for _, tt := range []struct {
		name             string
		s                sample
		median, p99, min time.Duration
	}{
		{"none", nil, 0, 0, 0},
		{"one", sample{7}, 7, 7, 7},
		{"two", sample{30, 10}, 20, 30, 10},
		{"odd", sample{9, 1, 5}, 5, 9, 1},
		{"an outlier moves no median", sample{1, 2, 3, 1000}, 2, 1000, 1},
		{"fifty", upTo(50), 25, 50, 1},
		{"a hundred", upTo(100), 50, 99, 1},
		{"a thousand", upTo(1000), 500, 990, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.s.median(); got != tt.median {
				t.Errorf("median %d, want %d", got, tt.median)
			}
			if got := tt.s.percentile(99); got != tt.p99 {
				t.Errorf("p99 %d, want %d", got, tt.p99)
			}
			if got := tt.s.min(); got != tt.min {
				t.Errorf("min %d, want %d", got, tt.min)
			}
		})
	}
}

func TestRatio(t *testing.T) {
	for _, tt := range []struct {
		s, other sample
		want     float64
		ok       bool
	}{
		{sample{4, 6}, sample{10}, 0.5, true},
		{sample{30}, sample{10}, 3, true},
		{sample{30}, nil, 0, false},
		{nil, sample{30}, 0, false},
		{sample{30}, sample{0}, 0, false},
	} {
		if got, ok := tt.s.ratio(tt.other); got != tt.want || ok != tt.ok {
			t.Errorf("%v / %v = %v, %v, want %v, %v", tt.s, tt.other, got, ok, tt.want, tt.ok)
		}
	}
}

// The measurements stay in the order in which they were made, and the numbers are in theirs.
func TestSampleProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := sample(rapid.SliceOfN(rapid.Map(rapid.Int64Range(0, 1<<40),
			func(n int64) time.Duration { return time.Duration(n) }), 1, 200).Draw(t, "sample"))
		before := append(sample(nil), s...)
		least, mid, most := s.min(), s.median(), s.percentile(100)
		if least > mid || mid > s.percentile(99) && len(s) > 2 || s.percentile(99) > most ||
			s.percentile(1) != least && len(s) <= 100 {
			t.Fatalf("min %d, median %d, p99 %d, max %d", least, mid, s.percentile(99), most)
		}
		for i := range s {
			if s[i] != before[i] {
				t.Fatalf("value %d is %d, was %d", i, s[i], before[i])
			}
		}
	})
}
