// Package control carries orders between the processes of one run, because each of them trusts the
// next one less.
//
//	jaild ──Order, descriptors──► jail-shim        one socket pair, the shim's descriptor 3
//	jaild ──more, descriptors───► jail-shim        as often as the order's descriptors need
//	jaild ◄──Started | Failed──── jail-shim
//	jaild ──Ask{Share}──────────► jail-shim        any number of times, while the jail lives
//	jaild ◄──Shared, a mount───── jail-shim
//	jaild ──Ask{Attach}, layers─► jail-shim        once, where the order said Later
//	jaild ──Ask{Ready}──────────► jail-shim        any number of times
//	jaild ──Ask{Refresh}────────► jail-shim        any number of times
//	jaild ◄──Done──────────────── jail-shim        to these three
//	jaild ◄──Exited────────────── jail-shim        jaild closing its end means: kill the jail
//
//	jail-shim ──Restrict────────► jail-init        another pair, jail-init's descriptor 3; stage 1
//	jail-shim ──Filter──────────► jail-init        stage 2, after jail-init has executed itself anew
//	jail-shim ◄──Listener, it──── jail-init        on a pair of its own, jail-init's descriptor 4, which is closed then
//	jaild ──Invoke, module──────► jail-init
//	jaild ◄──Report────────────── jail-init        jail-init is inside: its words are checked like a guest's
//
// A message is four bytes of length, big-endian, and that many bytes of JSON; descriptors travel
// with the first byte.
package control

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// MaxMessage is the largest message in bytes. It holds the largest argument list that Linux itself
// takes, in JSON.
const MaxMessage = 16 << 20

// ErrTooLarge is returned for a message above MaxMessage.
var ErrTooLarge = errors.New("control message is too large")

// A Conn is one end of a control socket. It is not safe for use by several writers or several
// readers at once.
type Conn struct{ f *os.File }

// Pair returns the two ends of a new control socket: the first is kept, the second handed to a
// child.
func Pair(name string) (host *Conn, child *os.File, err error) {
	a, b, err := sys.SocketPair(name)
	if err != nil {
		return nil, nil, err
	}
	return &Conn{a}, b, nil
}

// Inherit takes over the control socket that the parent passed as descriptor fd.
func Inherit(fd int) (*Conn, error) {
	f, err := sys.NewSocket(fd, "control")
	if err != nil {
		return nil, err
	}
	return &Conn{f}, nil
}

// Passed returns the n descriptors from InitPassed on, which jail-init was started with.
func Passed(n int) (files []*os.File, err error) {
	for i := range n {
		f, err := sys.Inherited(InitPassed+i, "passed")
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

// New takes over f, one end of a socket pair.
func New(f *os.File) *Conn { return &Conn{f} }

// File returns the socket itself, to be passed on.
func (c *Conn) File() *os.File { return c.f }

// Close closes the socket. The other end reads io.EOF.
func (c *Conn) Close() error { return c.f.Close() }

// Send writes one message and passes files along with it. The caller keeps its own files.
func (c *Conn) Send(message any, files ...*os.File) error {
	body, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("control message %T: %w", message, err)
	}
	if len(body) > MaxMessage {
		return fmt.Errorf("control message %T of %d bytes: %w", message, len(body), ErrTooLarge)
	}
	if len(files) > sys.MaxFiles {
		return fmt.Errorf("control message %T: %d descriptors, at most %d", message, len(files),
			sys.MaxFiles)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	frame = append(frame, body...)
	if len(files) > 0 {
		n, err := sys.SendWithFiles(c.f, frame, files)
		if err != nil {
			return err
		}
		if frame = frame[n:]; len(frame) == 0 {
			// All is sent. An empty write would fail if the other end has read it and closed.
			return nil
		}
	}
	_, err = c.f.Write(frame)
	return err
}

// Receive reads one message into message and returns the descriptors that came with it, which the
// caller must close. It returns io.EOF when the other end has closed.
func (c *Conn) Receive(message any) ([]*os.File, error) {
	return c.ReceiveMost(message, MaxMessage)
}

// CloseAll closes descriptors that came with a message.
func CloseAll(files []*os.File) { sys.CloseAll(files) }

// ReceiveMost is Receive for a message of at most most bytes. Decoding can take 20 times as much
// memory (a list of empty objects), so messages from inside a jail have a lower limit.
func (c *Conn) ReceiveMost(message any, most uint32) ([]*os.File, error) {
	var head [4]byte
	n, files, err := sys.ReceiveWithFiles(c.f, head[:])
	if err != nil {
		return nil, err
	}
	fail := func(err error) ([]*os.File, error) {
		sys.CloseAll(files)
		return nil, err
	}
	if n == 0 {
		return fail(io.EOF)
	}
	if _, err := io.ReadFull(c.f, head[n:]); err != nil {
		return fail(noEOF(err))
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > most {
		return fail(fmt.Errorf("control message of %d bytes: %w", size, ErrTooLarge))
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.f, body); err != nil {
		return fail(noEOF(err))
	}
	if err := json.Unmarshal(body, message); err != nil {
		return fail(fmt.Errorf("control message %T: %w", message, err))
	}
	return files, nil
}

// SendOrder sends an order with its descriptors.
func (c *Conn) SendOrder(o Order, files []*os.File) error {
	o.Files = len(files)
	first := min(len(files), sys.MaxFiles)
	if err := c.Send(o, files[:first]...); err != nil {
		return err
	}
	for rest := range slices.Chunk(files[first:], sys.MaxFiles) {
		if err := c.Send(more{}, rest...); err != nil {
			return err
		}
	}
	return nil
}

// ReceiveOrder reads an order and its descriptors, which the caller must close. It returns io.EOF
// when the other end has closed without an order.
func (c *Conn) ReceiveOrder() (o Order, files []*os.File, err error) {
	files, err = c.Receive(&o)
	for some := files; err == nil && len(some) > 0 && len(files) < o.Files; {
		if some, err = c.Receive(&more{}); err != nil {
			err = noEOF(err)
		}
		files = append(files, some...)
	}
	if err == nil && len(files) != o.Files {
		err = fmt.Errorf("an order of %d descriptors came with %d", o.Files, len(files))
	}
	if err != nil {
		sys.CloseAll(files)
		return Order{}, nil, err
	}
	return o, files, nil
}

// EndReceive shuts down the receiving side (shutdown(2), SHUT_RD): Receive still returns what has
// arrived, and then io.EOF.
func (c *Conn) EndReceive() error { return sys.ShutdownRead(c.f) }

// A Proxy is the client's end of a fetch proxy's control socket. jail-init has it, or jail-shim for
// a jail that cannot receive descriptors. Its methods may be called from several goroutines.
type Proxy struct {
	mu   sync.Mutex
	conn *Conn
}

// NewProxy takes over the socket f.
func NewProxy(f *os.File) *Proxy { return &Proxy{conn: New(f)} }

// ErrNoStream is returned if the fetch proxy has too many streams or has ended.
var ErrNoStream = errors.New("the fetch proxy gives no stream")

// Ask sends a request to the proxy and returns the stream of the answer, or nil for a request with
// an Event. The error is ErrNoStream if the proxy refuses or has ended.
func (p *Proxy) Ask(request OpenStream) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.conn.Send(request); err != nil {
		return nil, err
	}
	var opened Opened
	files, err := p.conn.Receive(&opened)
	switch {
	case err == nil && !opened.Refused && len(files) == 1:
		return files[0], nil
	case err == nil && !opened.Refused && len(files) == 0 && request.Event != nil:
		return nil, nil
	}
	CloseAll(files)
	return nil, errors.Join(ErrNoStream, err)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
