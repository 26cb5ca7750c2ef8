package cmdtest

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/rundir"
)

// Says checks what a command answers on standard output.
func (h *Host) Says(o Outcome, code int, text string) {
	h.T.Helper()
	if o.Code != code || !strings.Contains(o.Out, text) {
		h.T.Errorf("exit code %d, want %d and %q in\n%s%s", o.Code, code, text, o.Out, o.Err)
	}
}

// A DeniedRecord is a record of the log of something that was refused; a count that is left out is
// one.
type DeniedRecord struct {
	Layer, What, Rule string
	Count             int
	First, Last       time.Time
}

// DeniedRecords returns the records of what was refused to a run.
func DeniedRecords(t *testing.T, h *Host, id string) []DeniedRecord {
	t.Helper()
	var all []DeniedRecord
	for dec := json.NewDecoder(strings.NewReader(h.Jail("audit", "show", "--run", id, "--type",
		"denied", "--json").Out)); ; {
		var r DeniedRecord
		if err := dec.Decode(&r); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
}

// Verification asks another daemon than the run's own, as every command of root's does where none
// is shared.
func Verification(h *Host, id string, code int) rundir.Verification {
	h.T.Helper()
	o := h.Jail("verify", "--json", id)
	var v rundir.Verification
	if err := json.Unmarshal([]byte(o.Out), &v); err != nil || o.Code != code {
		h.T.Fatalf("verify: %v, exit code %d, want %d\n%s%s", err, o.Code, code, o.Out, o.Err)
	}
	return v
}
