package main

import (
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	tab := table{head: []string{"what", "median"}}
	tab.add("jail run", millis(1234*time.Microsecond))
	tab.add("– none", none)
	var b strings.Builder
	if err := tab.write(&b); err != nil {
		t.Fatal(err)
	}
	want := `| what     | median |
|----------|-------:|
| jail run |   1.23 |
| – none   |      – |
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
}

func TestTimes(t *testing.T) {
	if got := times(1.005, false); got != none {
		t.Errorf("no ratio is %q", got)
	}
	if got := times(2, true); got != "2.00" {
		t.Errorf("2 is %q", got)
	}
}
