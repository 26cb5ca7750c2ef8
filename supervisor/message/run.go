package message

import (
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/rundir"
)

// A RunInfo is a live run, as `jail ps` and `jail inspect` show it.
type RunInfo struct {
	rundir.State
	// The id that no other run has. `id` is the name that its user gave to it, where there is
	// one.
	GlobalID string `json:"global_id,omitempty"`
	Usage    *Usage `json:"usage,omitempty"` // so far
}

// Inspection is what is known of a run: live, or from the record.
type Inspection struct {
	Live      *RunInfo
	Records   []audit.Record // the first 10,000
	Truncated bool           // there are more
}
