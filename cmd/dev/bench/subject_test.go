package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// Every round measures everything once, in order; the warm-up does not count, and what is missing
// is said and not measured.
func TestMeasure(t *testing.T) {
	var order strings.Builder
	n := time.Duration(0)
	count := func(name string) *subject {
		return &subject{name: name, once: func(context.Context) (time.Duration, error) {
			order.WriteString(name)
			n++
			return n, nil
		}}
	}
	a, b := count("a"), count("b")
	gone := &subject{name: "gone", missing: "it is not installed"}
	b.bare = "a"
	subjects := []*subject{a, gone, b}
	if err := measure(t.Context(), subjects, 3, io.Discard); err != nil {
		t.Fatal(err)
	}
	if got, want := order.String(), strings.Repeat("ab", warmUps+3); got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	if first := time.Duration(2*warmUps + 1); len(a.took) != 3 || len(b.took) != 3 ||
		a.took[0] != first {
		t.Errorf("a has %v, b has %v", a.took, b.took)
	}
	var out strings.Builder
	if err := results(subjects).write(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "gone: not measured, it is not installed") ||
		!strings.Contains(out.String(), "1.14") {
		t.Errorf("the table is\n%s", &out)
	}
}

func TestMeasureStops(t *testing.T) {
	bad := errors.New("exit status 1")
	s := &subject{name: "it", once: func(context.Context) (time.Duration, error) { return 0, bad }}
	if err := measure(t.Context(), []*subject{s}, 3, io.Discard); !errors.Is(err, bad) ||
		!strings.HasPrefix(err.Error(), "it: ") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := measure(ctx, []*subject{s}, 3, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v after the end", err)
	}
}

func TestRate(t *testing.T) {
	calls := make(chan struct{}, 100)
	got, err := rate(4, 100, func() error { calls <- struct{}{}; return nil })
	if err != nil || len(calls) != 100 || got <= 0 {
		t.Errorf("rate %v after %d calls, error %v", got, len(calls), err)
	}
	bad := errors.New("no room")
	if _, err := rate(4, 100, func() error { return bad }); !errors.Is(err, bad) {
		t.Errorf("error %v", err)
	}
}
