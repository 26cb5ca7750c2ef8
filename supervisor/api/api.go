// Package api is the API between clients and jaild: HTTP and JSON over a Unix socket, versioned
// below /v1/, described by openapi.json beside this file. The command line uses it alike with a
// daemon for all users and with a private daemon for one run.
package api

import (
	"encoding/json"
	"slices"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// Number is the version of the API: a client and a daemon with the same number can work together,
// whatever their releases.
const Number = wire.Number

// Paths of the API.
const (
	PathRuns       = wire.PathRuns
	pathPlan       = "/v1/plan"
	pathWorkspaces = "/v1/workspaces"
	pathBranches   = "/v1/branches"
	pathPrune      = "/v1/prune"
	pathCaches     = "/v1/caches"
	PathVersion    = "/v1/version"
	pathOpenAPI    = "/v1/openapi.json"
	pathMetrics    = "/v1/metrics"
	pathPolicy     = "/v1/policy"
	pathHost       = "/v1/host"
	pathRecords    = "/v1/records"
	pathEvents     = "/v1/events"
	pathTools      = "/v1/tools"
	pathPublishers = "/v1/publishers"
	pathImages     = "/v1/images"
)

// Formats of the differences in a review, for ?patch=.
const (
	// Content unchanged, for git apply.
	PatchPlain    = "plain"
	PatchTerminal = "terminal" // control characters escaped, reversibly
	// for Client.Changes: no text, but the hunks of each change
	PatchHunks = "hunks"
	// For Client.Changes: as PatchTerminal and PatchHunks. The text of a change comes after it,
	// before the next change.
	PatchReview = "review"
)

// Upgrade is the protocol to which POST /v1/runs switches for the streams of a run. See FrameKind.
const Upgrade = wire.Upgrade

// A KillRequest asks for the end of a run.
type KillRequest struct {
	// 0 is 9 (KILL). It names the end in the result; nothing inside can refuse it.
	Signal int `json:"signal,omitempty"`
}

// A ReviewLine is one line of the answer to GET /v1/workspaces/ID/changes, with exactly one field
// set. The first line has info, then each change has a line, and the last one has the summary. With
// ?patch=plain or ?patch=terminal, lines with parts of the differences come between, which together
// are one patch; with ?hunks=1, a line with the hunks follows each change. So a change set of any
// size is streamed. If the review fails, the last line has error.
type ReviewLine struct {
	Info   *shadows.WorkspaceInfo `json:"info,omitempty"`
	Change *Change                `json:"change,omitempty"`
	// The hunks of the last change, with ?hunks=1.
	Hunks *workspace.FileHunks `json:"hunks,omitempty"`
	// The next part of the differences as text.
	Patch   []byte         `json:"patch,omitempty"`
	Summary *ReviewSummary `json:"summary,omitempty"`
	Error   *problem.Error `json:"error,omitempty"`
}

// A Change is a change with what a reviewer needs beside it.
type Change struct {
	workspace.Change
	// Why a commit does not include it unless asked to.
	Protected string `json:"protected,omitempty"`
}

// Folds reports whether a change is to one of git's own files and needs no look of its own, since a
// report of the repository sums it up. It does if it is refused, protected or in conflict, or has a
// risk of another class than hooks.
func (c Change) Folds() bool {
	return c.Git != "" && c.Refused == "" && c.Conflict == "" && c.Protected == "" &&
		!slices.ContainsFunc(c.Risks, func(r workspace.Risk) bool {
			return r.Class != policy.Hooks
		})
}

// ReviewSummary ends a review.
type ReviewSummary struct {
	workspace.Shown
}

// Version describes the daemon.
type Version struct {
	Version string `json:"version"`
	// Version of this API.
	API int `json:"api"`
	// The process id of the daemon.
	PID int `json:"pid"`
	// The daemon's state directory.
	State string `json:"state"`
	// The directory of the daemon's audit log.
	Log string `json:"log"`
}

// A RecordLine is one line of the answer to POST /v1/records: a record as in the log, or on the
// last line an error.
type RecordLine struct {
	Record json.RawMessage `json:"record,omitempty"`
	Error  *problem.Error  `json:"error,omitempty"`
}

// Problem is the body of every answer that is an error.
type Problem struct {
	Error *problem.Error `json:"error"`
}

// Records are a live run and the records of the log about a run.
type Records struct {
	Live    *message.RunInfo  `json:"live,omitempty"`
	Records []json.RawMessage `json:"records,omitempty"`
	// There are more records: POST /v1/records returns them all.
	Truncated bool `json:"truncated,omitempty"`
}
