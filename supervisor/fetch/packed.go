package fetch

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/jail/control"
)

// Intents, outcomes and answers are sent for every request, so they are packed instead of JSON. The
// first byte of a body says which it is; JSON starts with a brace. Numbers are varints (package
// encoding/binary), texts and addresses follow their length. The order is that of the fields.
const (
	packedIntent  = 1
	packedOutcome = 2
	packedAnswer  = 3
)

var errPacked = errors.New("a packed message cannot be read")

// packing is a frame that is being written: the length, then the packed body.
type packing []byte

// start begins a message in the buffer of the last one.
func (b packing) start(kind byte) packing { return append(b[:0], 0, 0, 0, 0, kind) }

// end sets the length.
func (b packing) end() packing {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func (b packing) number(n uint64) packing { return binary.AppendUvarint(b, n) }
func (b packing) signed(n int64) packing  { return binary.AppendVarint(b, n) }

func (b packing) text(s string) packing { return append(b.number(uint64(len(s))), s...) }

func (b packing) flag(f bool) packing {
	if f {
		return append(b, 1)
	}
	return append(b, 0)
}

func (b packing) intent(i Intent) packing {
	w := i.What
	b = b.start(packedIntent).number(w.ID).text(w.Kind).text(w.Method).text(w.Scheme).text(w.Host).
		number(uint64(w.Port)).text(w.Path).text(w.Query).text(w.Decision).text(w.Layer).
		text(w.Rule).text(w.Credential).text(w.Mode).number(w.After).signed(int64(w.Hops)).
		flag(w.Internal).signed(int64(i.Resolve)).text(i.Socket).number(uint64(len(i.Addresses)))
	for _, a := range i.Addresses {
		// MarshalBinary of an address returns no error.
		raw, _ := a.MarshalBinary()
		b = b.text(string(raw))
	}
	return b.end()
}

func (b packing) outcome(o Outcome) packing {
	return b.start(packedOutcome).number(o.ID).text(o.Address).signed(int64(o.Status)).
		signed(o.BytesIn).signed(o.BytesOut).signed(int64(o.Connect)).signed(int64(o.TLS)).
		signed(int64(o.First)).signed(int64(o.Total)).flag(o.Reused).flag(o.Truncated).
		flag(o.Scrubbed).text(o.Version).text(o.Peer).text(o.Redirect).text(o.Error).end()
}

func (b packing) answer(a answer) packing {
	return b.start(packedAnswer).number(a.ID).text(a.Refuse).flag(a.Failed).flag(a.End).
		text(a.Code).text(a.Next).text(a.Approval).end()
}

// sender sends packed messages and others over one socket. It may be used by several goroutines.
type sender struct {
	mu   sync.Mutex
	conn *control.Conn
	// room is the buffer of the last packed message, for the next one.
	room packing
}

func (s *sender) send(message any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn.Send(message)
}

func (s *sender) pack(message func(packing) packing) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = message(s.room)
	_, err := s.conn.File().Write(s.room)
	if cap(s.room) > keptFrame {
		s.room = nil
	}
	return err
}

// unpacking takes fields off a message. After the first error it returns zero values.
type unpacking struct {
	b   []byte
	bad bool
}

func (u *unpacking) number() uint64 {
	n, size := binary.Uvarint(u.b)
	if size <= 0 || u.bad {
		u.bad = true
		return 0
	}
	u.b = u.b[size:]
	return n
}

func (u *unpacking) signed() int64 {
	n, size := binary.Varint(u.b)
	if size <= 0 || u.bad {
		u.bad = true
		return 0
	}
	u.b = u.b[size:]
	return n
}

func (u *unpacking) bytes() []byte {
	size := u.number()
	if u.bad || size > uint64(len(u.b)) {
		u.bad = true
		return nil
	}
	out := u.b[:size]
	u.b = u.b[size:]
	return out
}

// text returns a text as JSON would: each byte that is not valid UTF-8 becomes U+FFFD.
func (u *unpacking) text() string {
	s := string(u.bytes())
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	return s
}

func (u *unpacking) time() time.Duration { return time.Duration(u.signed()) }

func (u *unpacking) flag() bool {
	n := u.number()
	u.bad = u.bad || n > 1
	return n == 1
}

func (u *unpacking) port() uint16 {
	n := u.number()
	u.bad = u.bad || n > 1<<16-1
	return uint16(n)
}

func (u *unpacking) intent() *Intent {
	i := &Intent{What: What{ID: u.number(), Kind: u.text(), Method: u.text(), Scheme: u.text(),
		Host: u.text(), Port: u.port(), Path: u.text(), Query: u.text(), Decision: u.text(),
		Layer: u.text(), Rule: u.text(), Credential: u.text(), Mode: u.text(), After: u.number(),
		Hops: int(u.signed()), Internal: u.flag()}, Resolve: u.time(), Socket: u.text()}
	for n := u.number(); n > 0 && !u.bad; n-- {
		var a netip.Addr
		if err := a.UnmarshalBinary(u.bytes()); err != nil {
			u.bad = true
		}
		i.Addresses = append(i.Addresses, a)
	}
	return i
}

func (u *unpacking) outcome() *Outcome {
	return &Outcome{ID: u.number(), Address: u.text(), Status: int(u.signed()), BytesIn: u.signed(),
		BytesOut: u.signed(), Connect: u.time(), TLS: u.time(), First: u.time(), Total: u.time(),
		Reused: u.flag(), Truncated: u.flag(), Scrubbed: u.flag(), Version: u.text(),
		Peer: u.text(), Redirect: u.text(), Error: u.text()}
}

func (u *unpacking) answer() answer {
	return answer{ID: u.number(), Refuse: u.text(), Failed: u.flag(), End: u.flag(), Code: u.text(),
		Next: u.text(), Approval: u.text()}
}

// unpack reads a packed message of the proxy.
func (m *fromProxy) unpack(kind byte, body []byte) error {
	u := &unpacking{b: body}
	switch kind {
	case packedIntent:
		m.Intent = u.intent()
	case packedOutcome:
		m.Outcome = u.outcome()
	default:
		return errPacked
	}
	return u.end()
}

// unpack reads a packed answer of the daemon.
func (a *answer) unpack(kind byte, body []byte) error {
	u := &unpacking{b: body}
	if kind != packedAnswer {
		return errPacked
	}
	*a = u.answer()
	return u.end()
}

func (u *unpacking) end() error {
	if u.bad || len(u.b) > 0 {
		return errPacked
	}
	return nil
}
