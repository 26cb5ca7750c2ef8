package fetch

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/jail/control"
)

// Intents, outcomes and answers are sent for every request, so they are packed instead of JSON. The
// first byte of a body says which it is; JSON starts with a brace. Numbers are varints (package
// encoding/binary), texts and addresses follow their length.
const (
	packedIntent  = 1
	packedOutcome = 2
	packedAnswer  = 3
)

var errPacked = errors.New("a packed message cannot be read")

// packable is a message that can be packed. Its method fields calls the codec for each field, in the
// order of the packed message.
type packable interface{ fields(*codec) }

func (i *Intent) fields(c *codec) {
	c.number(&i.ID)
	c.texts(&i.Kind, &i.Method, &i.Scheme, &i.Host)
	c.port(&i.Port)
	c.texts(&i.Path, &i.Query, &i.Decision, &i.Layer, &i.Rule, &i.Credential, &i.Mode)
	c.number(&i.After)
	signed(c, &i.Hops)
	c.flags(&i.Internal)
	signed(c, &i.Resolve)
	c.texts(&i.Socket)
	c.addresses(&i.Addresses)
}

func (o *Outcome) fields(c *codec) {
	c.number(&o.ID)
	c.texts(&o.Address)
	signed(c, &o.Status)
	signed(c, &o.BytesIn, &o.BytesOut)
	signed(c, &o.Connect, &o.TLS, &o.First, &o.Total)
	c.flags(&o.Reused, &o.Truncated, &o.Scrubbed)
	c.texts(&o.Version, &o.Peer, &o.Redirect, &o.Error)
}

func (a *answer) fields(c *codec) {
	c.number(&a.ID)
	c.texts(&a.Refuse)
	c.flags(&a.Failed, &a.End)
	c.texts(&a.Code, &a.Next, &a.Approval)
}

// pack returns the frame of a message, in the buffer of another one: the length, then the body.
func pack(frame []byte, kind byte, m packable) []byte {
	c := codec{b: append(frame[:0], 0, 0, 0, 0, kind)}
	m.fields(&c)
	binary.BigEndian.PutUint32(c.b, uint32(len(c.b)-4))
	return c.b
}

// unpack reads the body of a message behind its kind.
func unpack(body []byte, m packable) error {
	c := codec{b: body, reads: true}
	if m.fields(&c); c.bad || len(c.b) > 0 {
		return errPacked
	}
	return nil
}

// unpack reads a packed message of the proxy.
func (m *fromProxy) unpack(kind byte, body []byte) error {
	switch kind {
	case packedIntent:
		m.Intent = &Intent{}
		return unpack(body, m.Intent)
	case packedOutcome:
		m.Outcome = &Outcome{}
		return unpack(body, m.Outcome)
	}
	return errPacked
}

// unpack reads a packed answer of the daemon.
func (a *answer) unpack(kind byte, body []byte) error {
	if kind != packedAnswer {
		return errPacked
	}
	return unpack(body, a)
}

// codec appends fields to a message, or takes them off one. It reads zero values after the first
// error.
type codec struct {
	b     []byte
	reads bool
	bad   bool
}

func (c *codec) number(n *uint64) {
	if !c.reads {
		c.b = binary.AppendUvarint(c.b, *n)
		return
	}
	size := 0
	if *n, size = binary.Uvarint(c.b); size <= 0 || c.bad {
		*n, c.bad = 0, true
		return
	}
	c.b = c.b[size:]
}

// signed codes numbers as [binary.AppendVarint] does.
func signed[T ~int | ~int64](c *codec, all ...*T) {
	for _, n := range all {
		u := uint64(*n)<<1 ^ uint64(int64(*n)>>63)
		c.number(&u)
		*n = T(u>>1) ^ -T(u&1)
	}
}

func (c *codec) port(p *uint16) {
	n := uint64(*p)
	c.number(&n)
	*p, c.bad = uint16(n), c.bad || n > 1<<16-1
}

func (c *codec) flags(all ...*bool) {
	for _, f := range all {
		n := uint64(0)
		if *f {
			n = 1
		}
		c.number(&n)
		*f, c.bad = n == 1, c.bad || n > 1
	}
}

// texts codes texts as JSON would: each byte that is not valid UTF-8 is read as U+FFFD.
func (c *codec) texts(all ...*string) {
	for _, s := range all {
		if c.reads {
			*s = string(c.take())
			if !utf8.ValidString(*s) {
				*s = string([]rune(*s))
			}
			continue
		}
		n := uint64(len(*s))
		c.number(&n)
		c.b = append(c.b, *s...)
	}
}

// take takes a length, and that many bytes.
func (c *codec) take() (out []byte) {
	var n uint64
	if c.number(&n); n > uint64(len(c.b)) {
		c.bad = true
		return nil
	}
	out, c.b = c.b[:n], c.b[n:]
	return out
}

func (c *codec) addresses(all *[]netip.Addr) {
	n := uint64(len(*all))
	c.number(&n)
	if !c.reads {
		for _, a := range *all {
			// MarshalBinary of an address returns no error.
			raw, _ := a.MarshalBinary()
			text := string(raw)
			c.texts(&text)
		}
		return
	}
	for ; n > 0 && !c.bad; n-- {
		var a netip.Addr
		c.bad = a.UnmarshalBinary(c.take()) != nil || c.bad
		*all = append(*all, a)
	}
}

// keptFrame is the largest buffer, in bytes, that is kept for the next message.
const keptFrame = 64 << 10

// sender sends packed messages and others over one socket. It may be used by several goroutines.
type sender struct {
	mu   sync.Mutex
	conn *control.Conn
	// room is the buffer of the last packed message, for the next one.
	room []byte
}

func (s *sender) send(message any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn.Send(message)
}

func (s *sender) pack(kind byte, m packable) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = pack(s.room, kind, m)
	_, err := s.conn.File().Write(s.room)
	if cap(s.room) > keptFrame {
		s.room = nil
	}
	return err
}

// frames reads messages of jail/control, and packed ones in the same frames, from a socket that no
// longer carries descriptors. One system call reads as many messages as are queued, up to the size
// of the buffer. The kernel drops descriptors that are sent nevertheless.
type frames struct {
	r    *bufio.Reader
	body []byte
}

// newFrames returns a reader of the messages after those that conn has received.
func newFrames(conn *control.Conn) *frames {
	return &frames{r: bufio.NewReaderSize(conn.File(), 16<<10)}
}

// receive reads one message. It returns io.EOF after the last message.
func (f *frames) receive(message any) error {
	var head [4]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(head[:]))
	if size > control.MaxMessage {
		return fmt.Errorf("control message of %d bytes: %w", size, control.ErrTooLarge)
	}
	if size > cap(f.body) {
		f.body = make([]byte, size)
	}
	body := f.body[:size]
	if cap(f.body) > keptFrame {
		f.body = nil
	}
	if _, err := io.ReadFull(f.r, body); errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return err
	}
	if packed, ok := message.(interface {
		unpack(kind byte, body []byte) error
	}); ok && size > 0 && body[0] != '{' {
		return packed.unpack(body[0], body[1:])
	}
	if err := json.Unmarshal(body, message); err != nil {
		return fmt.Errorf("control message %T: %w", message, err)
	}
	return nil
}
