package store

import (
	"fmt"
	"testing"
	"time"
)

// Entries of gatekeepers stay as long as they are not over. Of those that are over the last ones do.
func TestGates(t *testing.T) {
	gates, ctx, began := GatesOf(openIn(t, t.TempDir())), t.Context(), time.UnixMilli(1000)
	for n := range 6 {
		at := began.Add(time.Duration(n) * time.Second)
		if err := gates.Put(fmt.Sprint(n), at, n != 1, []byte("old")); err != nil {
			t.Fatal(err)
		}
	}
	if err := gates.Put("2", began, false, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := gates.Forget(began.Add(time.Second), 2); err != nil {
		t.Fatal(err)
	}
	var left string
	for n := range 6 {
		text, err := gates.Find(ctx, fmt.Sprint(n))
		if err != nil {
			t.Fatal(err)
		}
		left += fmt.Sprintf("%d%s ", n, text)
	}
	if left != "0 1old 2new 3 4old 5old " {
		t.Errorf("left: %s", left)
	}
	open, err := gates.Open(ctx)
	if err != nil || len(open) != 2 || string(open[0]) != "old" || string(open[1]) != "new" {
		t.Errorf("open: %q, %v", open, err)
	}
	if err := gates.Remove("1"); err != nil {
		t.Fatal(err)
	}
	if all, err := gates.All(ctx); err != nil || len(all) != 3 {
		t.Errorf("all: %q, %v", all, err)
	}
}
