package fetch

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/policy"
)

// The daemon and the proxy of a run speak over one socket, in frames of jail/control:
//
//	jaild ──Setup, sockets─► proxy     once, first: the jail's socket, and the second one, if any
//	jaild ◄──Ready────────── proxy     it is confined; with its authority's certificate, if any
//	jaild ◄──Question─────── proxy     before that, if the policy holds the request back
//	jaild ──Answer─────────► proxy     the verdict
//	jaild ◄──Intent───────── proxy     before anything is dialled
//	jaild ──Answer─────────► proxy     the intent is on record, or the request must not be sent
//	jaild ◄──Outcome──────── proxy     how the request ended
//	jaild ◄──Refused──────── proxy     a request that was not sent
//
// Intents, outcomes and answers are packed, the others are JSON. The proxy ends when the daemon
// closes its end or dies. If an internal host is a Unix socket, a second socket carries
//
//	jaild ◄──socketRequest──────────── proxy     an intent on record needs its connection
//	jaild ──socketAnswer, connection─► proxy     the connection, or why it failed

// Setup is everything that a proxy knows.
type Setup struct {
	// UID of this proxy alone; also its GID.
	UID    uint32       `json:"uid"`
	Filter []byte       `json:"filter"`
	Layers []SetupLayer `json:"layers"`
	// Ceiling is the name of the layer that report mode does not exceed.
	Ceiling string            `json:"ceiling"`
	Servers []netip.AddrPort  `json:"servers"`
	NAT64   []netip.Prefix    `json:"nat64,omitempty"`
	Roots   []byte            `json:"roots"` // PEM
	Secrets map[string]Secret `json:"secrets,omitempty"`
	// Queries records queries as they are.
	Queries bool `json:"queries,omitempty"`
	// Scopes narrow the layers further, each for some tools of a script.
	Scopes []SetupLayer `json:"scopes,omitempty"`
	// Intercept ends the TLS of tunnels at the proxy, with an authority of its own, unless a rule
	// makes them opaque.
	Intercept bool `json:"intercept,omitempty"`
	// Internal are the hosts inside the operator's network.
	Internal []Internal `json:"internal,omitempty"`
}

// sockets reports whether an entry of Internal is a Unix socket of the host.
func (s *Setup) sockets() bool {
	return slices.ContainsFunc(s.Internal, func(e Internal) bool { return e.Socket != "" })
}

// SetupLayer is the fetch part of one layer of the policy.
type SetupLayer struct {
	Name   string       `json:"name"`
	Source string       `json:"source"`
	Fetch  policy.Fetch `json:"fetch"`
	// Approve holds requests back until somebody has approved them.
	Approve policy.Approve `json:"approve,omitempty"`
}

// fromProxy is a message of the proxy; exactly one field is set.
type fromProxy struct {
	Ready *ready `json:"ready,omitempty"`
	// Failed says why the proxy could not confine itself.
	Failed  string   `json:"failed,omitempty"`
	Intent  *Intent  `json:"intent,omitempty"`
	Outcome *Outcome `json:"outcome,omitempty"`
	Refused *Refused `json:"refused,omitempty"`
	// Question is about a request whose intent follows if it is approved.
	Question *Question `json:"question,omitempty"`
	// Gone is the question that nobody waits for any more.
	Gone uint64 `json:"gone,omitempty"`
}

// ready reports that the proxy is confined and serves.
type ready struct {
	// Authority is the PEM certificate that the run's tools trust.
	Authority []byte `json:"authority,omitempty"`
}

// What describes a request in a record.
type What struct {
	// ID is unique within this proxy.
	ID     uint64 `json:"id"`
	Kind   string `json:"kind"`
	Method string `json:"method,omitempty"`
	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	Port   uint16 `json:"port"`
	Path   string `json:"path,omitempty"`
	// Query is a hash, unless the settings say otherwise.
	Query      string `json:"query,omitempty"`
	Decision   string `json:"decision"`
	Layer      string `json:"layer"`
	Rule       string `json:"rule"`
	Credential string `json:"credential,omitempty"`
	// Mode says who ends the TLS.
	Mode string `json:"mode,omitempty"`
	// After is the request whose redirect this one follows.
	After uint64 `json:"after,omitempty"`
	// Hops counts the redirects so far.
	Hops int `json:"hops,omitempty"`
	// Internal: the host is inside the operator's network.
	Internal bool `json:"internal,omitempty"`
}

// Kinds of requests.
const (
	kindRequest   = "request"
	kindTunnel    = "tunnel"
	kindWebSocket = "websocket"
	// Only host and port are known yet; recorded as a tunnel.
	kindHost = "host"
)

// Modes of TLS.
const (
	// Only the proxy speaks TLS.
	modeProxy = "proxy"
	// The tool speaks TLS to the proxy, and the proxy to the host.
	modeIntercept = "intercept"
	// The tool speaks TLS to the host; the proxy sees only the name.
	modeOpaque = "opaque"
)

// Decisions.
const (
	Allowed = "allowed"
	Denied  = "denied"
	// No rule grants it, and report mode let it pass.
	Reported = "report"
)

// Intent describes a request before it is sent.
type Intent struct {
	What
	Addresses []netip.Addr  `json:"addresses"`
	Resolve   time.Duration `json:"resolve_ns"`
	// Socket is the Unix socket of the host that is dialled in place of an address.
	Socket string `json:"socket,omitempty"`
}

// socketRequest asks for a connection to the Unix socket of an intent that is on record.
type socketRequest struct {
	ID uint64 `json:"id"`
}

// socketAnswer answers a socketRequest. It carries the connection, unless it failed.
type socketAnswer struct {
	Failed string `json:"failed,omitempty"`
}

// answer is the daemon's answer to an intent.
type answer struct {
	ID uint64 `json:"id"`
	// Refuse says why the request must not be sent.
	Refuse string `json:"refuse,omitempty"`
	// Failed: the intent is not on record.
	Failed bool `json:"failed,omitempty"`
	// End is no answer: the run has ended, and the proxy sends its last messages and ends.
	End bool `json:"end,omitempty"`
	// Code and Next are of the refusal that answers a question; Refuse is its message. An intent
	// that nobody approved has a code, too.
	Code string `json:"code,omitempty"`
	Next string `json:"next,omitempty"`
	// Approval is the id of the action that waits, if the refusal is for that.
	Approval string `json:"approval,omitempty"`
}

// Outcome describes the end of an intended request.
type Outcome struct {
	ID uint64 `json:"id"`
	// Address is the dialled address.
	Address string `json:"address,omitempty"`
	Status  int    `json:"status,omitempty"`
	// Bytes on the wire, with TLS.
	BytesIn  int64         `json:"bytes_in"`
	BytesOut int64         `json:"bytes_out"`
	Connect  time.Duration `json:"connect_ns,omitempty"`
	TLS      time.Duration `json:"tls_ns,omitempty"`
	// First is the time from the start to the first byte of the response.
	First     time.Duration `json:"first_ns,omitempty"`
	Total     time.Duration `json:"total_ns"`
	Reused    bool          `json:"reused,omitempty"`
	Truncated bool          `json:"truncated,omitempty"`
	// Scrubbed: a secret was removed from the response.
	Scrubbed bool   `json:"scrubbed,omitempty"`
	Version  string `json:"tls_version,omitempty"`
	// Peer is the SHA-256 of the certificate.
	Peer string `json:"tls_peer,omitempty"`
	// Redirect is the target of the response's redirect, without query.
	Redirect string `json:"redirect,omitempty"`
	Error    string `json:"error,omitempty"`
}

// Refused is a request that was not sent. Count is the number of equal refusals that it stands for.
type Refused struct {
	What
	Count int64 `json:"count"`
}

// Intents, outcomes and answers are sent for every request, so they are packed instead of JSON. The
// first byte of a body says which it is; JSON starts with a brace. Numbers are varints (package
// encoding/binary), texts and addresses follow their length.
const (
	packedIntent  = 1
	packedOutcome = 2
	packedAnswer  = 3
)

var errPacked = errors.New("a packed message cannot be read")

// pack returns the frame of a message, in the buffer of another one: the length, then the body.
func pack(frame []byte, kind byte, message any) []byte {
	c := codec{b: append(frame[:0], 0, 0, 0, 0, kind)}
	c.fields(message)
	binary.BigEndian.PutUint32(c.b, uint32(len(c.b)-4))
	return c.b
}

// unpack reads the body of a message behind its kind.
func unpack(body []byte, message any) error {
	c := codec{b: body, reads: true}
	if c.fields(message); c.bad || len(c.b) > 0 {
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

// fields codes the fields of a message, in the order of the packed message.
func (c *codec) fields(message any) {
	switch m := message.(type) {
	case *Intent:
		c.number(&m.ID)
		c.texts(&m.Kind, &m.Method, &m.Scheme, &m.Host)
		c.port(&m.Port)
		c.texts(&m.Path, &m.Query, &m.Decision, &m.Layer, &m.Rule, &m.Credential, &m.Mode)
		c.number(&m.After)
		signed(c, &m.Hops)
		c.flags(&m.Internal)
		signed(c, &m.Resolve)
		c.texts(&m.Socket)
		c.addresses(&m.Addresses)
	case *Outcome:
		c.number(&m.ID)
		c.texts(&m.Address)
		signed(c, &m.Status)
		signed(c, &m.BytesIn, &m.BytesOut)
		signed(c, &m.Connect, &m.TLS, &m.First, &m.Total)
		c.flags(&m.Reused, &m.Truncated, &m.Scrubbed)
		c.texts(&m.Version, &m.Peer, &m.Redirect, &m.Error)
	case *answer:
		c.number(&m.ID)
		c.texts(&m.Refuse)
		c.flags(&m.Failed, &m.End)
		c.texts(&m.Code, &m.Next, &m.Approval)
	default:
		c.bad = true
	}
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

func (s *sender) pack(kind byte, message any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = pack(s.room, kind, message)
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
