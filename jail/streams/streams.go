// Package streams multiplexes streams to a fetch proxy over one socket, for a jail whose kernel
// cannot receive descriptors (SCM_RIGHTS). It is the only importer of yamux.
//
// The inside opens a stream, writes its scope as four bytes, big-endian (control.OpenStream), and
// reads one byte: 1 if the proxy has given a stream, else 0.
package streams

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/yamux"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// errTooMany is returned by Serve for a jail that keeps opening streams although they are refused.
var errTooMany = fmt.Errorf("the jail opened more than %d streams", 2*maxStreams)

// maxStreams bounds the open streams of a jail. Further ones are refused, and at twice as many the
// jail loses all: each may buffer 256 KiB outside of the jail's cgroup.
const maxStreams = 256

func config() *yamux.Config {
	c := yamux.DefaultConfig()
	// Both ends end with the jail, so keepalives are not needed.
	c.EnableKeepAlive = false
	c.LogOutput = io.Discard
	return c
}

// Serve passes streams from the jail's socket to the fetch proxy, whose control socket is proxy. It
// returns nil when the jail closes socket. It closes both.
func Serve(socket, proxy *os.File) error {
	defer proxy.Close()
	session, err := yamux.Server(socket, config())
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	defer session.Close()
	asked := control.NewProxy(proxy)
	for {
		stream, err := session.AcceptStream()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch n := session.NumStreams(); {
		case n > 2*maxStreams:
			return errTooMany
		case n > maxStreams:
			go refuse(stream)
		default:
			go answer(asked, stream)
		}
	}
}

func refuse(stream *yamux.Stream) {
	_, _ = stream.Write([]byte{0})
	stream.Close()
}

func answer(proxy *control.Proxy, stream *yamux.Stream) {
	defer stream.Close()
	var scope [4]byte
	if _, err := io.ReadFull(stream, scope[:]); err != nil {
		return
	}
	to, err := proxy.Ask(control.OpenStream{Scope: int(binary.BigEndian.Uint32(scope[:]))})
	if err != nil {
		refuse(stream)
		return
	}
	defer to.Close()
	if _, err := stream.Write([]byte{1}); err == nil {
		join(stream, to)
	}
}

// join copies in both directions and returns when both have reached their end.
func join(stream *yamux.Stream, socket *os.File) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The wrappers hide methods with which io.Copy would use system calls that a filter
		// refuses.
		_, _ = io.Copy(struct{ io.Writer }{stream}, struct{ io.Reader }{socket})
		// For a stream this closes only the sending direction.
		_ = stream.Close()
	}()
	_, _ = io.Copy(struct{ io.Writer }{socket}, struct{ io.Reader }{stream})
	_ = sys.ShutdownWrite(socket)
	<-done
}

// A Client opens streams from inside a jail.
type Client struct{ session *yamux.Session }

// NewClient returns a Client on socket, which it takes over. Serve has the other end.
func NewClient(socket *os.File) (*Client, error) {
	session, err := yamux.Client(socket, config())
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return &Client{session}, nil
}

// Open returns a new stream to the proxy. scope is as in control.OpenStream. The error is
// control.ErrNoStream if the proxy refuses.
func (c *Client) Open(scope int) (*os.File, error) {
	stream, err := c.session.OpenStream()
	if err != nil {
		return nil, err
	}
	ask := binary.BigEndian.AppendUint32(nil, uint32(scope))
	var given [1]byte
	_, err = stream.Write(ask)
	if err == nil {
		_, err = io.ReadFull(stream, given[:])
	}
	if err == nil && given[0] != 1 {
		err = control.ErrNoStream
	}
	if err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	own, other, err := sys.SocketPair("stream")
	if err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	go func() {
		defer other.Close()
		join(stream, other)
	}()
	return own, nil
}
