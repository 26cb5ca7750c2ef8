package preview1

import (
	"encoding/binary"
	"math"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// Sizes and tags of poll_oneoff.
const (
	subscriptionSize = 48
	eventSize        = 32
	maxSubscriptions = 4096

	eventClock   = 0
	eventFdRead  = 1
	eventFdWrite = 2
)

// subscription is one thing that the guest waits for.
type subscription struct {
	userdata uint64
	tag      uint8
	errno    Errno // known at once
	ready    bool  // known at once
	// of a clock, on the clock that it names
	deadline int64
	clock    int32
	// Index of the descriptor to wait for, or -1.
	poll int
}

// pollOneoff waits until one of the subscriptions has an event, and reports all that have one.
func pollOneoff(p *Process, mem []byte, a []uint64) Errno {
	n := uint32(a[2])
	if n == 0 || n > maxSubscriptions {
		return errInval
	}
	in, ok := memory(mem).at(uint32(a[0]), n*subscriptionSize)
	if !ok {
		return errFault
	}
	out, ok := memory(mem).at(uint32(a[1]), n*eventSize)
	if !ok {
		return errFault
	}
	subs := make([]subscription, n)
	var fds []sys.PollFD
	for i := range subs {
		var e Errno
		if fds, e = p.subscribe(&subs[i], in[i*subscriptionSize:], fds); e != success {
			return e
		}
	}
	if e := p.await(subs, fds); e != success {
		return e
	}
	events := uint32(0)
	for i := range subs {
		if s := &subs[i]; s.ready || s.errno != success {
			writeEvent(out[events*eventSize:], s, fds)
			events++
		}
	}
	return memory(mem).putU32(uint32(a[3]), events)
}

// subscribe reads one subscription.
func (p *Process) subscribe(s *subscription, b []byte, fds []sys.PollFD) ([]sys.PollFD, Errno) {
	s.userdata, s.tag, s.poll = binary.LittleEndian.Uint64(b), b[8], -1
	switch s.tag {
	case eventClock:
		return fds, s.setClock(b[16:])
	case eventFdRead, eventFdWrite:
		f := p.fds.get(binary.LittleEndian.Uint32(b[16:]))
		switch {
		case f == nil:
			s.errno = errBadf
		case f.kind != kindStream && f.kind != kindSocket || f.fd < 0:
			// A file always is, and a stream that is at its end.
			s.ready = true
		default:
			events := int16(sys.PollIn)
			if s.tag == eventFdWrite {
				events = sys.PollOut
			}
			s.poll = len(fds)
			fds = append(fds, sys.PollFD{Fd: int32(f.fd), Events: events})
		}
		return fds, success
	}
	return fds, errInval
}

func (s *subscription) setClock(b []byte) Errno {
	const absolute = 1
	id, timeout, flags := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint64(b[8:]),
		binary.LittleEndian.Uint16(b[24:])
	if id > maxClock || flags&^absolute != 0 {
		s.errno = errInval
		return success
	}
	s.clock = int32(id)
	if flags&absolute != 0 {
		s.deadline = int64(min(timeout, math.MaxInt64))
		return success
	}
	now, err := sys.Clock(s.clock)
	if err != nil {
		return errnoOf(err)
	}
	s.deadline = math.MaxInt64
	if timeout < uint64(math.MaxInt64-now) {
		s.deadline = now + int64(timeout)
	}
	return success
}

// lookEvery is the interval in nanoseconds at which a waiting call checks whether its guest must
// end.
const lookEvery = 20e6

// ending reports whether the guest must end (Config.Done).
func (p *Process) ending() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// await waits until a subscription is ready.
func (p *Process) await(subs []subscription, fds []sys.PollFD) Errno {
	for {
		if p.ending() {
			return errIntr
		}
		done, timeout := false, int64(math.MaxInt64)
		for i := range subs {
			s := &subs[i]
			if s.tag == eventClock && s.errno == success {
				now, err := sys.Clock(s.clock)
				if err != nil {
					return errnoOf(err)
				}
				left := s.deadline - now
				s.ready = left <= 0
				timeout = min(timeout, max(left, 0))
			}
			done = done || s.ready || s.errno != success
		}
		if done {
			// But look which descriptors are ready as well.
			timeout = 0
		}
		if done && len(fds) == 0 {
			return success
		}
		if p.done != nil {
			timeout = min(timeout, lookEvery)
		}
		n, err := sys.Poll(fds, pollTime(timeout))
		if err != nil {
			return errnoOf(err)
		}
		for i := range subs {
			if s := &subs[i]; s.poll >= 0 {
				s.ready = fds[s.poll].Revents != 0
			}
		}
		if done || n > 0 {
			return success
		}
	}
}

func pollTime(ns int64) *sys.Timespec {
	if ns == math.MaxInt64 {
		return nil
	}
	return &sys.Timespec{Sec: ns / 1e9, Nsec: ns % 1e9}
}

func writeEvent(b []byte, s *subscription, fds []sys.PollFD) {
	const hangup = 1
	clear(b[:eventSize])
	binary.LittleEndian.PutUint64(b, s.userdata)
	binary.LittleEndian.PutUint16(b[8:], uint16(s.errno))
	b[10] = s.tag
	if s.tag == eventClock || s.errno != success {
		return
	}
	// At least one byte can be moved.
	binary.LittleEndian.PutUint64(b[16:], 1)
	if s.poll >= 0 && fds[s.poll].Revents&sys.PollHup != 0 {
		binary.LittleEndian.PutUint16(b[24:], hangup)
	}
}
