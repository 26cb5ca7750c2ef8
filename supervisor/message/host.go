package message

import (
	"github.com/jail-sandbox/jail/jail/probe"
)

// HostStatus says what this host, and the daemon on it, can enforce.
type HostStatus struct {
	Findings []probe.Finding `json:"findings"`
}
