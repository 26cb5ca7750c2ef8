package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// FetchBounds narrow one rule. Each is 0 where the rule sets no bound of its own; the meet
// is the smaller of those that are set. All but the sizes hold for one host in one run.
type FetchBounds struct {
	// Bytes of the body of one request.
	RequestSize int64 `json:"request_size,omitempty"`
	// Bytes of the body of one answer.
	ResponseSize int64 `json:"response_size,omitempty"`
	Requests     int64 `json:"requests,omitempty"`
	BytesIn      int64 `json:"bytes_in,omitempty"`
	BytesOut     int64 `json:"bytes_out,omitempty"`
	Concurrent   int64 `json:"concurrent,omitempty"`
	// Requests that start in one second.
	Rate    int64         `json:"rate,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
}

var fetchBoundFields = []limitField[FetchBounds]{
	{"request_size", Bytes, "bytes of the body of a request",
		func(b *FetchBounds) *int64 { return &b.RequestSize }},
	{"response_size", Bytes, "bytes of the body of an answer",
		func(b *FetchBounds) *int64 { return &b.ResponseSize }},
	{"requests", Count, "requests to one host", func(b *FetchBounds) *int64 { return &b.Requests }},
	{"bytes_in", Bytes, "bytes received from one host",
		func(b *FetchBounds) *int64 { return &b.BytesIn }},
	{"bytes_out", Bytes, "bytes sent to one host",
		func(b *FetchBounds) *int64 { return &b.BytesOut }},
	{"concurrent", Count, "requests at one time to one host",
		func(b *FetchBounds) *int64 { return &b.Concurrent }},
	{"rate", Count, "requests to one host that start in one second",
		func(b *FetchBounds) *int64 { return &b.Rate }},
	{"timeout", Duration, "time for one request",
		func(b *FetchBounds) *int64 { return (*int64)(&b.Timeout) }},
}

// lesser returns the smaller of two bounds; 0 is no bound.
func lesser(a, b int64) int64 {
	switch {
	case a <= 0:
		return max(b, 0)
	case b <= 0:
		return a
	}
	return min(a, b)
}

// within reports whether the bound a is within b; 0 is no bound.
func within(a, b int64) bool { return b <= 0 || a > 0 && a <= b }

func (b FetchBounds) meet(c FetchBounds) (out FetchBounds) {
	for _, f := range fetchBoundFields {
		*f.at(&out) = lesser(*f.at(&b), *f.at(&c))
	}
	return out
}

func (b FetchBounds) lessEq(c FetchBounds) bool {
	return !slices.ContainsFunc(fetchBoundFields,
		func(f limitField[FetchBounds]) bool { return !within(*f.at(&b), *f.at(&c)) })
}

func (b FetchBounds) normal() FetchBounds { return b.meet(FetchBounds{}) }

func (b FetchBounds) check() error {
	for _, f := range fetchBoundFields {
		if *f.at(&b) < 0 {
			return fmt.Errorf("%s is negative", f.name)
		}
	}
	return nil
}

// String shows the bounds that are set, each after a space.
func (b FetchBounds) String() string {
	var out strings.Builder
	for _, f := range fetchBoundFields {
		if n := *f.at(&b); n > 0 {
			out.WriteString(" " + f.name + " " + f.unit.Format(n))
		}
	}
	return out.String()
}

// FetchBoundNames returns the names of all bounds of a rule.
func FetchBoundNames() []string { return limitNames(fetchBoundFields) }

// Get returns the bound called name: its count, its unit, and whether there is one of that name.
func (b FetchBounds) Get(name string) (int64, Unit, bool) {
	return getLimit(fetchBoundFields, b, name)
}

// Set reads value into the bound called name. A bound of nothing at all is refused: a rule
// that grants nothing is one that is not there.
func (b *FetchBounds) Set(name, value string) error {
	return setLimit(fetchBoundFields, b, name, value)
}
