// Package idrange gives each jail a range of host ids of its own, so that no two jails that live at
// the same time, also under different daemons, share an owner. A range is held by a name that the
// kernel keeps for one process at a time and takes back when that process is gone: an abstract Unix
// socket (unix(7)). There is nothing to clean up.
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

// errNone says that all ranges are taken.
var errNone = errors.New("every range of host ids is in use")

// A Range is held until Release.
type Range struct {
	// The first of jail.BaseSize ids.
	Base uint32
	// nil where it is the user's one id
	hold net.PacketConn
}

// Take takes a range that nobody holds. An ordinary user's daemon has none: its jails have the one
// id that the user has, all of them.
func Take() (*Range, error) {
	if u := rootless.User(); u != nil {
		return &Range{Base: u.UID}, nil
	}
	return take(rand.IntN(jail.Bases))
}

// take begins its search at a slot.
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

// Release gives the range back. Every process of the jail must have ended.
func (r *Range) Release() {
	if r.hold != nil {
		r.hold.Close()
	}
}
