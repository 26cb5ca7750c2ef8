package message

import (
	"time"
)

// A DetachRequest asks for a run that goes on without the client that started it. The id must be
// that of the path.
type DetachRequest struct {
	Request
	// Keep the tool's standard input open for a client that attaches.
	Input bool `json:"input,omitempty"`
}

// A DetachedInfo is a detached run.
type DetachedInfo struct {
	ID string `json:"id"`
	// The id that no other run has. `id` is the name that its user gave to it, where there is
	// one.
	GlobalID string    `json:"global_id,omitempty"`
	Started  time.Time `json:"started"`
	Running  bool      `json:"running"`
}

// Digest stands for all that was asked for: the same request has the same digest.
func (q DetachRequest) Digest() string {
	// another terminal's variables ask for nothing else
	q.Inherit = nil
	return digestOf(q)
}
