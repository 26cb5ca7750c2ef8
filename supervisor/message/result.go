package message

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/policy/learn"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/runlog"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// A Result is the result of a run. `jail run --json` prints its JSON.
type Result struct {
	ID string `json:"id"`
	// The id that no other run has. `id` is the name that its user gave to it, where there is
	// one.
	GlobalID string `json:"global_id,omitempty"`
	// The session of an invocation; for a session its own id.
	Session string `json:"session,omitempty"`
	// The exit code of the tool, or 124 time limit, 125 jail itself failed, 126 refused, 127 not
	// found, 128+n ended by signal n.
	ExitCode int `json:"exit_code"`
	// Name of the signal that ended it.
	Signal *string `json:"signal"`
	// Empty here: the output came in frames.
	Stdout Output `json:"stdout"`
	// Empty here: the output came in frames.
	Stderr Output `json:"stderr"`
	// Output beyond the limit was left out.
	Truncated bool `json:"truncated"`
	// The limit that ended it, or that it ran into.
	Limit  *LimitHit        `json:"limit"`
	Denied []runners.Denial `json:"denied"`
	// Warnings: a report mode of the policy let fetches pass that it does not grant; denied is
	// incomplete; a limit in the request exceeds the policy's and has no effect; the daemon was
	// stopped or restarted, and ended the run.
	Warnings  []string        `json:"warnings,omitempty"`
	Usage     Usage           `json:"usage"`
	Changes   shadows.Changes `json:"changes"`
	Workspace string          `json:"workspace,omitempty"` // kept, discarded or committed
	// What a session whose policy has commit = "auto" committed after the invocation.
	Commit *shadows.AutoCommit `json:"commit,omitempty"`
	// What an invocation with keep_env passes on to later ones.
	Kept *Kept `json:"kept,omitempty"`
	// How many processes a program of the host left behind at its end. They were killed.
	LeftProcesses int64 `json:"left_processes,omitempty"`
	// why the engine ended the module
	Trap *runners.Trap `json:"trap,omitempty"`
	// Digest of the effective policy.
	Policy string `json:"policy"`
	// Observed is what the run did, if its request has learn.
	Observed *learn.Observed `json:"observed,omitempty"`
	Audit    runlog.Span     `json:"audit"`
	// An error of jail, never of the tool.
	Error *problem.Error `json:"error,omitempty"`
}

// LimitHit is a limit that was reached. Times are in milliseconds, sizes in bytes.
type LimitHit struct {
	Name  string `json:"name"`
	Limit int64  `json:"limit"`
	Peak  int64  `json:"peak"`
	// Layer is the outer layer whose own use is included in the peak; empty if there is none.
	Layer string `json:"layer,omitempty"`
}

// Usage holds the resources that a run used.
type Usage struct {
	// Milliseconds.
	WallMS int64 `json:"wall_ms"`
	// Milliseconds.
	CPUMS int64 `json:"cpu_ms"`
	// Bytes.
	MemoryPeak int64 `json:"memory_peak"`
	PIDsPeak   int64 `json:"pids_peak"`
	// Milliseconds that its CPUs were kept from it by the limit cpus.
	ThrottledMS    int64 `json:"throttled_ms"`
	IORead         int64 `json:"io_read"`  // bytes, from disks
	IOWrite        int64 `json:"io_write"` // bytes, to disks
	WorkspaceBytes int64 `json:"workspace_bytes"`
	FetchBytesIn   int64 `json:"fetch_bytes_in"`
	FetchBytesOut  int64 `json:"fetch_bytes_out"`
	FetchRequests  int64 `json:"fetch_requests"`
}

// Output is the output of a tool. In JSON it is a string if it is UTF-8, otherwise {"base64":"…"}.
type Output []byte

// MarshalJSON encodes the output as a string or a base64 object.
func (o Output) MarshalJSON() ([]byte, error) {
	if utf8.Valid(o) {
		return json.Marshal(string(o))
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(o)})
}

// UnmarshalJSON decodes the JSON that MarshalJSON returns.
func (o *Output) UnmarshalJSON(text []byte) error {
	var s string
	if json.Unmarshal(text, &s) == nil {
		*o = []byte(s)
		return nil
	}
	var b struct {
		Base64 []byte `json:"base64"`
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return err
	}
	*o = b.Base64
	return nil
}

// Kept describes what an invocation with keep_env passes on to later ones: the names of variables
// that it set or unset, and its working directory below the workspace.
type Kept struct {
	Set   []string `json:"set,omitempty"`
	Unset []string `json:"unset,omitempty"`
	Cwd   string   `json:"cwd,omitempty"`
	// Why nothing was kept.
	Error string `json:"error,omitempty"`
}
