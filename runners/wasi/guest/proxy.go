package guest

import (
	"context"
	"os"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/streams"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/runners/wasi/guest/hostagent"
)

// Proxy opens streams to the fetch proxy. Several guests may use it at once.
type Proxy struct {
	socket *control.Proxy
	// streams is used instead of socket in a jail that cannot receive descriptors.
	streams *streams.Client
	scope   int
}

// NewProxy takes over the control socket f, which came with the order.
func NewProxy(f *os.File) *Proxy { return &Proxy{socket: control.NewProxy(f)} }

// NewStreams returns a Proxy on f, a socket that multiplexes streams to the fetch proxy (package
// streams). It takes f over.
func NewStreams(f *os.File) (*Proxy, error) {
	client, err := streams.NewClient(f)
	if err != nil {
		return nil, err
	}
	return &Proxy{streams: client}, nil
}

// As returns p with a scope for its streams; see control.OpenStream. For runners.NoFetch it returns
// nil.
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
			return nil, control.ErrNoStream
		}
		return f, nil
	}
	f, err := p.socket.Ask(control.OpenStream{Scope: p.scope})
	if err != nil {
		return nil, control.ErrNoStream
	}
	return f, nil
}

// Event tells the proxy which event an agent works on, as AGENT/SEQ, or with an empty name that
// there is none. When it returns, the proxy sets the Idempotency-Key of the event's requests.
// Errors are ignored. In a jail that cannot receive descriptors it does nothing.
func (p *Proxy) Event(name string) {
	if p == nil || p.streams != nil {
		return
	}
	_, _ = p.socket.Ask(control.OpenStream{Event: &name})
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

// opener returns the function that opens streams for a run's guests, or nil if they may not fetch.
func opener(ctx context.Context) func() (*os.File, error) {
	if p, ok := ctx.Value(proxyKey{}).(*Proxy); ok && p != nil {
		return p.Open
	}
	return nil
}

// granted returns the imports besides preview 1 that a run's guests may have.
func granted(ctx context.Context) []wasi.Import {
	all := wasi.AgentFunctions(agentOf(ctx).Bindings...)
	if opener(ctx) != nil {
		all = append(all, wasi.FetchFunctions[:]...)
	}
	return all
}

// An Agent connects the guest of an agent with its host.
type Agent struct {
	// Host answers its calls.
	Host hostagent.Host
	// Bindings are the names of the bindings whose functions it may import.
	Bindings []string
	// Open opens a stream on which Host answers the same calls as HTTP.
	Open func() (*os.File, error)
}

// agentKey is the key of the Agent in the context of a run.
type agentKey struct{}

// WithAgent makes the guests of a run guests of the agent a.
func WithAgent(ctx context.Context, a Agent) context.Context {
	return context.WithValue(ctx, agentKey{}, a)
}

// agentOf returns the Agent in ctx, or the zero Agent.
func agentOf(ctx context.Context) Agent {
	a, _ := ctx.Value(agentKey{}).(Agent)
	return a
}
