// Package idrange gives each jail its own range of host ids, so that no two live jails, even of
// different daemons, share an owner. A range is held by an abstract Unix socket (unix(7)), which
// the kernel releases when the process ends, so nothing needs cleaning up.
package idrange

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/rootless"
)

// errNone means that all ranges are taken.
var errNone = errors.New("every range of host ids is in use")

// A Range is a range of host ids, held until Release.
type Range struct {
	// The first of jail.BaseSize ids.
	Base uint32
	// nil for the one id of an ordinary user
	hold net.PacketConn
}

// Take returns a free range. In the daemon of an ordinary user, it returns the user's own id, which
// all jails share.
func Take() (*Range, error) {
	if u := rootless.User(); u != nil {
		return &Range{Base: u.UID}, nil
	}
	return take(rand.IntN(jail.Bases))
}

// take searches for a free range from slot start on.
func take(start int) (*Range, error) {
	for i := range jail.Bases {
		slot := (start + i) % jail.Bases
		hold, err := net.ListenPacket("unixgram", fmt.Sprintf("@jail/ids/%d", slot))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("host id range %d: %w", slot, err)
		}
		return &Range{Base: jail.FirstBase + uint32(slot)*jail.BaseSize, hold: hold}, nil
	}
	return nil, errNone
}

// Release frees the range. Every process of the jail must have ended.
func (r *Range) Release() {
	if r.hold != nil {
		r.hold.Close()
	}
}
