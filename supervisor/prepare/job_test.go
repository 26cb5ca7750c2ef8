package prepare

import (
	"testing"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/policy"
)

// TestCheckIO: a policy that bounds no disk needs no controller for it.
func TestCheckIO(t *testing.T) {
	if err := checkIO("", policy.TopLimits()); err != nil {
		t.Error(err)
	}
	l := policy.TopLimits()
	l.IORead = 1 << 20
	if err := checkIO("", l); (err == nil) != (cgroup.MissingIO("") == nil) {
		t.Errorf("%v, and the host says %v", err, cgroup.MissingIO(""))
	}
}
