package supervisor

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/policy/learn"
	"github.com/jail-sandbox/jail/runners"
)

// A Result is how a run ended. Its JSON form is the one of `jail run --json`.
type Result struct {
	ID        string           `json:"id"`
	Session   string           `json:"session,omitempty"` // that it was an invocation of, or its own
	ExitCode  int              `json:"exit_code"`
	Signal    *string          `json:"signal"`
	Stdout    Output           `json:"stdout"`
	Stderr    Output           `json:"stderr"`
	Truncated bool             `json:"truncated"`
	Limit     *LimitHit        `json:"limit"`
	Denied    []runners.Denial `json:"denied"`
	Warnings  []string         `json:"warnings,omitempty"` // of what the policy lets through that it does not grant, and of flags that change nothing
	Usage     Usage            `json:"usage"`
	Changes   Changes          `json:"changes"`
	Workspace string           `json:"workspace,omitempty"` // kept, discarded or committed
	Trap      *runners.Trap    `json:"trap,omitempty"`      // why the engine ended the module
	Policy    string           `json:"policy"`
	// Observed is what the run was seen to do, where its request asked to learn.
	Observed *learn.Observed `json:"observed,omitempty"`
	Audit    AuditSpan       `json:"audit"`
	Error    *Error          `json:"error,omitempty"` // of jail's own, never of the tool
}

// LimitHit is a limit that was reached. Times are in milliseconds, sizes in bytes.
type LimitHit struct {
	Name  string `json:"name"`
	Limit int64  `json:"limit"`
	Peak  int64  `json:"peak"`
}

// Usage is what a run used.
type Usage struct {
	WallMS         int64 `json:"wall_ms"`
	CPUMS          int64 `json:"cpu_ms"`
	MemoryPeak     int64 `json:"memory_peak"`
	PIDsPeak       int64 `json:"pids_peak"`
	ThrottledMS    int64 `json:"throttled_ms"` // that its CPUs were kept from it by the limit cpus
	IORead         int64 `json:"io_read"`      // bytes, from disks
	IOWrite        int64 `json:"io_write"`     // bytes, to disks
	WorkspaceBytes int64 `json:"workspace_bytes"`
	FetchBytesIn   int64 `json:"fetch_bytes_in"`
	FetchBytesOut  int64 `json:"fetch_bytes_out"`
	FetchRequests  int64 `json:"fetch_requests"`
}

// Changes counts what a run did to its workspace.
type Changes struct {
	Added    int64 `json:"added"`
	Modified int64 `json:"modified"`
	Deleted  int64 `json:"deleted"`
}

// Any reports whether something changed.
func (c Changes) Any() bool { return c != Changes{} }

// AuditSpan are the first and the last record of a run.
type AuditSpan struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// Output is what a tool wrote. In JSON it is a string where it is UTF-8 and {"base64":"…"} where it is not.
type Output []byte

// MarshalJSON writes the output.
func (o Output) MarshalJSON() ([]byte, error) {
	if utf8.Valid(o) {
		return json.Marshal(string(o))
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(o)})
}

// UnmarshalJSON reads what MarshalJSON writes.
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
