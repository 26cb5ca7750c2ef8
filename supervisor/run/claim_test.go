package run

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// TestNotStarted: a prewarmed jail that was killed while it waited is no fault of jail's own.
func TestNotStarted(t *testing.T) {
	for _, err := range []error{launch.ErrNotThere, errors.Join(launch.ErrNotThere, syscall.EPIPE),
		fmt.Errorf("share /tmp: %w", launch.ErrNotThere)} {
		if e := notStarted(err); e.Code != problem.Busy || strings.Contains(e.Hint, "fault of") {
			t.Errorf("%v: %+v", err, e)
		}
	}
	if e := notStarted(errors.New("x")); e.Code != problem.Failed {
		t.Errorf("control: %+v", e)
	}
}
