package main

import (
	"slices"
	"time"
)

// A sample is how long each of several runs of one thing took.
type sample []time.Duration

// median returns the middle, or of an even number the mean of the two in the middle; 0 of an empty
// sample.
func (s sample) median() time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	i := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[i]
	}
	return sorted[i-1] + (sorted[i]-sorted[i-1])/2
}

// percentile returns the smallest value that is not exceeded by p of 100 values (nearest rank); 0
// of an empty sample.
func (s sample) percentile(p int) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := (p*len(sorted) + 99) / 100
	return sorted[max(rank, 1)-1]
}

// min returns the smallest value; 0 of an empty sample.
func (s sample) min() time.Duration {
	if len(s) == 0 {
		return 0
	}
	return slices.Min(s)
}

// ratio returns how many times the median of other the median of s is, and whether there is such a
// number.
func (s sample) ratio(other sample) (float64, bool) {
	if len(s) == 0 || other.median() <= 0 {
		return 0, false
	}
	return float64(s.median()) / float64(other.median()), true
}
