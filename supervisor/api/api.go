// Package api is how a client asks a supervisor: HTTP and JSON over a Unix socket, versioned below /v1/, described by openapi.json beside this
// file. It exists so that the command line, a daemon for all and a private daemon for one run go through the same code.
package api

import (
	"encoding/json"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor"
)

// Number is that of the API: a client and a daemon of one number understand one another, whatever their versions.
const Number = 1

// Paths of the API.
const (
	PathRuns       = "/v1/runs"
	PathPlan       = "/v1/plan"
	PathWorkspaces = "/v1/workspaces"
	PathPrune      = "/v1/prune"
	PathVersion    = "/v1/version"
	PathMetrics    = "/v1/metrics"
	PathPolicy     = "/v1/policy"
	PathRecords    = "/v1/records"
	PathEvents     = "/v1/events"
	PathTools      = "/v1/tools"
	PathPublishers = "/v1/publishers"
)

// Forms of the differences in a review, for ?patch=.
const (
	PatchPlain    = "plain"    // content as it is, for git apply
	PatchTerminal = "terminal" // control characters escaped, reversibly
	PatchHunks    = "hunks"    // for Client.Changes: no text, but what can be chosen among
	PatchReview   = "review"   // for Client.Changes: as PatchTerminal and PatchHunks; the text of a change comes after it, before that of the next
)

// Upgrade is the protocol that POST /v1/runs switches to: the streams of a run, see Frame.
const Upgrade = "jail-streams"

// A KillRequest asks for the end of a run.
type KillRequest struct {
	Signal int `json:"signal,omitempty"` // 0 is SIGKILL; it names the end in the result, nothing inside can refuse it
}

// A ReviewLine is one line of the answer to GET /v1/workspaces/ID/changes: first one with info, then one for each change, at
// last one with the summary. Between them are, if ?patch=plain or ?patch=terminal asks for it, the differences as text, which taken together are one patch, and
// if ?hunks=1 asks for them the hunks of a change after it. So a change set of any size is streamed, in one pass.
type ReviewLine struct {
	Info    *supervisor.WorkspaceInfo `json:"info,omitempty"`
	Change  *Change                   `json:"change,omitempty"`
	Hunks   *workspace.FileHunks      `json:"hunks,omitempty"` // of the change before, if ?hunks=1 asks for them
	Patch   []byte                    `json:"patch,omitempty"` // the next part of the differences as text
	Summary *ReviewSummary            `json:"summary,omitempty"`
	Error   *supervisor.Error         `json:"error,omitempty"`
}

// A Change is a change with what a reviewer needs beside it.
type Change struct {
	workspace.Change
	Protected string `json:"protected,omitempty"` // why a commit holds it back
}

// ReviewSummary ends a review.
type ReviewSummary struct {
	workspace.Shown
}

// Version says what answers.
type Version struct {
	Version string `json:"version"`
	API     int    `json:"api"`
	PID     int    `json:"pid"`
	State   string `json:"state"`
	Log     string `json:"log"`
}

// A RecordLine is one line of the answer to POST /v1/records: a record, as it stands in the log, or at last what went wrong.
type RecordLine struct {
	Record json.RawMessage   `json:"record,omitempty"`
	Error  *supervisor.Error `json:"error,omitempty"`
}

// Problem is the body of every answer that is not a success.
type Problem struct {
	Error *supervisor.Error `json:"error"`
}

// Records are the lines of the log about one run.
type Records struct {
	Live      *supervisor.RunInfo `json:"live,omitempty"`
	Records   []json.RawMessage   `json:"records,omitempty"`
	Truncated bool                `json:"truncated,omitempty"` // there are more, which POST /v1/records gives
}
