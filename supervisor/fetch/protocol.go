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

// Setup has everything that a proxy is told.
type Setup struct {
	// UID is the user and group id of this proxy alone.
	UID    uint32       `json:"uid"`
	Filter []byte       `json:"filter"`
	Layers []SetupLayer `json:"layers"`
	// Ceiling is the name of the layer that report mode cannot override.
	Ceiling string            `json:"ceiling"`
	Servers []netip.AddrPort  `json:"servers"`
	NAT64   []netip.Prefix    `json:"nat64,omitempty"`
	Roots   []byte            `json:"roots"` // PEM
	Secrets map[string]Secret `json:"secrets,omitempty"`
	// Queries: record queries as they are, not as a hash.
	Queries bool `json:"queries,omitempty"`
	// Scopes narrow the layers further, each for some commands of a script.
	Scopes []SetupLayer `json:"scopes,omitempty"`
	// Intercept makes the proxy end the TLS of tunnels with an authority of its own, unless a rule
	// makes a tunnel opaque.
	Intercept bool `json:"intercept,omitempty"`
	// Internal are the hosts inside the operator's network.
	Internal []Internal `json:"internal,omitempty"`
}

// sockets reports whether an internal host is a Unix socket.
func (s *Setup) sockets() bool {
	return slices.ContainsFunc(s.Internal, func(e Internal) bool { return e.Socket != "" })
}

// SetupLayer is the part of a policy layer about fetches.
type SetupLayer struct {
	Name   string       `json:"name"`
	Source string       `json:"source"`
	Fetch  policy.Fetch `json:"fetch"`
	// Approve has the rules for requests that need an approval.
	Approve policy.Approve `json:"approve,omitempty"`
}

// fromProxy is a message from the proxy; exactly one field is set.
type fromProxy struct {
	Ready *ready `json:"ready,omitempty"`
	// Failed says why the proxy could not confine itself.
	Failed  string   `json:"failed,omitempty"`
	Intent  *Intent  `json:"intent,omitempty"`
	Outcome *Outcome `json:"outcome,omitempty"`
	Refused *Refused `json:"refused,omitempty"`
	// Question asks about a request. If it is approved, its Intent follows.
	Question *Question `json:"question,omitempty"`
	// Gone is the id of a question whose verdict is no longer needed.
	Gone uint64 `json:"gone,omitempty"`
}

// ready says that the proxy is confined and serves requests.
type ready struct {
	// Authority is the PEM certificate that the run's tools must trust.
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
	// Query is a hash, unless Setup.Queries is set.
	Query      string `json:"query,omitempty"`
	Decision   string `json:"decision"`
	Layer      string `json:"layer"`
	Rule       string `json:"rule"`
	Credential string `json:"credential,omitempty"`
	// Mode says who ends the TLS: see the modes below.
	Mode string `json:"mode,omitempty"`
	// After is the id of the request whose redirect this one follows, or 0.
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
	// kindHost is a CONNECT of which only host and port are known; recorded as a tunnel.
	kindHost = "host"
)

// Modes of TLS.
const (
	// modeProxy: only the proxy speaks TLS.
	modeProxy = "proxy"
	// modeIntercept: the tool speaks TLS to the proxy, and the proxy to the host.
	modeIntercept = "intercept"
	// modeOpaque: the tool speaks TLS to the host; the proxy sees only the host's name.
	modeOpaque = "opaque"
)

// Decisions.
const (
	Allowed = "allowed"
	Denied  = "denied"
	// Reported: no rule grants the request, and report mode let it pass.
	Reported = "report"
)

// Intent describes a request that is about to be sent.
type Intent struct {
	What
	Addresses []netip.Addr  `json:"addresses"`
	Resolve   time.Duration `json:"resolve_ns"`
	// Socket is the Unix socket of the host that is dialled instead of an address.
	Socket string `json:"socket,omitempty"`
}

// socketRequest requests a connection to the Unix socket of a recorded intent.
type socketRequest struct {
	ID uint64 `json:"id"`
}

// socketAnswer answers a socketRequest. The connection comes with it, unless it failed.
type socketAnswer struct {
	Failed string `json:"failed,omitempty"`
}

// answer is the daemon's reply to an intent or a question.
type answer struct {
	ID uint64 `json:"id"`
	// Refuse says why the request must not be sent; empty if it may.
	Refuse string `json:"refuse,omitempty"`
	// Failed: the intent could not be recorded.
	Failed bool `json:"failed,omitempty"`
	// End is no answer: the run has ended, and the proxy sends its last messages and exits.
	End bool `json:"end,omitempty"`
	// Code and Next belong to the refusal of a question; Refuse is its message. An intent without
	// the approval that it needs has a Code, too.
	Code string `json:"code,omitempty"`
	Next string `json:"next,omitempty"`
	// Approval is the id of the waiting action, if the refusal is due to that.
	Approval string `json:"approval,omitempty"`
}

// Outcome describes the end of an intended request.
type Outcome struct {
	ID uint64 `json:"id"`
	// Address is the dialled address.
	Address string `json:"address,omitempty"`
	Status  int    `json:"status,omitempty"`
	// BytesIn and BytesOut count bytes on the wire, with TLS.
	BytesIn  int64         `json:"bytes_in"`
	BytesOut int64         `json:"bytes_out"`
	Connect  time.Duration `json:"connect_ns,omitempty"`
	TLS      time.Duration `json:"tls_ns,omitempty"`
	// First is the time from the start of the request to the first byte of the response.
	First     time.Duration `json:"first_ns,omitempty"`
	Total     time.Duration `json:"total_ns"`
	Reused    bool          `json:"reused,omitempty"`
	Truncated bool          `json:"truncated,omitempty"`
	// Scrubbed: a secret was removed from the response.
	Scrubbed bool   `json:"scrubbed,omitempty"`
	Version  string `json:"tls_version,omitempty"`
	// Peer is the SHA-256 of the host's certificate.
	Peer string `json:"tls_peer,omitempty"`
	// Redirect is the target of the response's redirect, without its query.
	Redirect string `json:"redirect,omitempty"`
	Error    string `json:"error,omitempty"`
}

// Refused is a request that was not sent. Count is the number of equal refusals.
type Refused struct {
	What
	Count int64 `json:"count"`
}

// Intents, outcomes and answers are sent for every request, so they are packed instead of JSON. The
// first byte of a message's body says which it is; JSON starts with a brace. Numbers are varints
// (package encoding/binary); texts and addresses are preceded by their length.
const (
	packedIntent  = 1
	packedOutcome = 2
	packedAnswer  = 3
)

var errPacked = errors.New("a packed message cannot be read")

// pack returns the frame of a message, which is a length and the body. It reuses the buffer frame.
func pack(frame []byte, kind byte, message any) []byte {
	c := codec{b: append(frame[:0], 0, 0, 0, 0, kind)}
	c.fields(message)
	binary.BigEndian.PutUint32(c.b, uint32(len(c.b)-4))
	return c.b
}

// unpack reads into message the body after its kind.
func unpack(body []byte, message any) error {
	c := codec{b: body, reads: true}
	if c.fields(message); c.bad || len(c.b) > 0 {
		return errPacked
	}
	return nil
}

// unpack reads a packed message from the proxy.
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

// unpack reads a packed answer from the daemon.
func (a *answer) unpack(kind byte, body []byte) error {
	if kind != packedAnswer {
		return errPacked
	}
	return unpack(body, a)
}

// codec writes the fields of a message to b, or reads them from b if reads is set. After an error
// bad is set, and reads give zero values.
type codec struct {
	b     []byte
	reads bool
	bad   bool
}

// fields writes or reads the fields of a message, in the order of the packed format.
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

// signed writes or reads numbers in the format of [binary.AppendVarint].
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

// texts writes or reads texts. Like JSON, it reads invalid UTF-8 as U+FFFD.
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

// take reads a length and that many bytes.
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
			// MarshalBinary of an address never fails.
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

// keptFrame bounds, in bytes, the buffer that is kept for the next message.
const keptFrame = 64 << 10

// sender sends packed and JSON messages over one socket. It is safe for concurrent use.
type sender struct {
	mu   sync.Mutex
	conn *control.Conn
	// room is the buffer that packed messages reuse.
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

// frames reads packed and JSON messages from a socket that no longer carries descriptors. One
// system call reads as many messages as are queued, up to the size of the buffer. The kernel drops
// descriptors that are sent nevertheless.
type frames struct {
	r    *bufio.Reader
	body []byte
}

// newFrames returns a reader of the messages that follow those already received by conn.
func newFrames(conn *control.Conn) *frames {
	return &frames{r: bufio.NewReaderSize(conn.File(), 16<<10)}
}

// receive reads one message. It returns io.EOF at the end of the socket.
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
