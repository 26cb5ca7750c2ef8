package guest

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/streams"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
)

// errNoStream is returned if the fetch proxy has too many streams or has ended.
var errNoStream = errors.New("the fetch proxy gives no stream")

// Proxy opens streams to the fetch proxy. Several guests may use it at once.
type Proxy struct {
	socket *socket
	// streams is in the place of socket in a jail that gets no descriptors.
	streams *streams.Client
	scope   int
}

// socket is the control socket of the fetch proxy, which all guests of a run share.
type socket struct {
	mu   sync.Mutex
	conn *control.Conn
}

// NewProxy takes over the control socket f, which came with the order.
func NewProxy(f *os.File) *Proxy { return &Proxy{socket: &socket{conn: control.New(f)}} }

// NewStreams takes over the socket f, which carries streams to the fetch proxy, in place of the
// control socket.
func NewStreams(f *os.File) (*Proxy, error) {
	client, err := streams.NewClient(f)
	if err != nil {
		return nil, err
	}
	return &Proxy{streams: client}, nil
}

// As returns p for guests under one scope of the proxy; see control.OpenStream. For runners.NoFetch
// it returns nil.
func (p *Proxy) As(scope int) *Proxy {
	if p == nil || scope == runners.NoFetch {
		return nil
	}
	return &Proxy{p.socket, p.streams, scope}
}

// Open returns a new stream to the proxy.
func (p *Proxy) Open() (*os.File, error) {
	if p.streams != nil {
		f, err := p.streams.Open(p.scope)
		if err != nil {
			return nil, errNoStream
		}
		return f, nil
	}
	files, err := p.socket.ask(control.OpenStream{Scope: p.scope})
	if err != nil || len(files) != 1 {
		return nil, errNoStream
	}
	return files[0], nil
}

// Event tells the proxy which event an agent works on, as AGENT/SEQ, or with an empty name that there
// is none. When it returns, the proxy gives the requests of that event their keys. A proxy that has
// gone has none to give. In a jail that gets no descriptors it does nothing.
func (p *Proxy) Event(name string) {
	if p == nil || p.streams != nil {
		return
	}
	_, _ = p.socket.ask(control.OpenStream{Event: &name})
}

// ask sends a request to the proxy and returns what came with the answer.
func (s *socket) ask(request control.OpenStream) ([]*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.conn.Send(request); err != nil {
		return nil, err
	}
	var opened control.Opened
	files, err := s.conn.Receive(&opened)
	if err == nil && !opened.Refused && len(files) <= 1 {
		return files, nil
	}
	control.CloseAll(files)
	return nil, errors.Join(errNoStream, err)
}

// proxyKey is the key of the Proxy in the context of a run.
type proxyKey struct{}

// WithProxy lets the guests of a run fetch through p.
func WithProxy(ctx context.Context, p *Proxy) context.Context {
	return context.WithValue(ctx, proxyKey{}, p)
}

// WithScope restricts the guests of a run to one scope of the Proxy in ctx.
func WithScope(ctx context.Context, scope int) context.Context {
	p, _ := ctx.Value(proxyKey{}).(*Proxy)
	return WithProxy(ctx, p.As(scope))
}

// opener returns how a run's guests get streams, or nil if they get none.
func opener(ctx context.Context) func() (*os.File, error) {
	if p, ok := ctx.Value(proxyKey{}).(*Proxy); ok && p != nil {
		return p.Open
	}
	return nil
}

// granted are the imports beyond preview 1 of a run's guests.
func granted(ctx context.Context) []wasi.Import {
	all := wasi.AgentFunctions(agentOf(ctx).Bindings...)
	if opener(ctx) != nil {
		all = append(all, wasi.FetchFunctions[:]...)
	}
	return all
}
