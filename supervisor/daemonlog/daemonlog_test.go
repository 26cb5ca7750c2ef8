package daemonlog

import (
	"errors"
	"strings"
	"testing"
)

// A failure that lasts is logged once, another one and the end of it as well.
func TestCheck(t *testing.T) {
	var out strings.Builder
	l := New(&out, false)
	for _, err := range []error{nil, errors.New("no room"), errors.New("no room"),
		errors.New("no room"), errors.New("gone"), nil, nil, errors.New("no room")} {
		l.Check("prune", err)
	}
	l.Check("sweep", errors.New("no room"))
	l.Failed("discard", "r1", errors.New("a\nb"))
	l.Failed("discard", "r1", nil)
	want := `level=WARN msg=prune error="no room"
level=WARN msg=prune error=gone
level=INFO msg="prune: works again"
level=WARN msg=prune error="no room"
level=WARN msg=sweep error="no room"
level=WARN msg=discard id=r1 error="a\nb"
`
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
	var none *Log
	none.Check("x", errors.New("x"))
	none.Failed("x", "y", errors.New("x"))

	out.Reset()
	New(&out, true).Failed("discard", "r1", errors.New("x"))
	if !strings.HasPrefix(out.String(), "time=20") {
		t.Errorf("%s", out.String())
	}
}
