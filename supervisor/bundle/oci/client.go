package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/jail-sandbox/jail/supervisor/fetch"
)

var (
	// ErrElsewhere is wrapped by errors about registries that redirect to a forbidden address.
	ErrElsewhere = errors.New("the registry sends its client elsewhere")
	// ErrNotFound is wrapped by errors about references to a missing directory, repository or tag.
	ErrNotFound = errors.New("not found")
	// ErrDenied is wrapped by errors about registries that refuse the credentials.
	ErrDenied = errors.New("the registry refuses it")
	// ErrUnsigned is wrapped by errors of Push for a bundle without a signature.
	ErrUnsigned = errors.New("it is not signed, so nobody could install it")
)

// A RegistryError is another failure of a registry or of the network.
type RegistryError struct{ Err error }

func (e *RegistryError) Error() string { return e.Err.Error() }
func (e *RegistryError) Unwrap() error { return e.Err }

// A Client talks to registries. The zero value has no credentials.
type Client struct {
	// PlainHTTP turns TLS off; only for a registry on this host.
	PlainHTTP bool
	// Auth is a file with credentials, as `oras login` and `docker login` write it; "" for none.
	Auth string
	// Stall is how long a registry may send nothing; 0 means a minute.
	Stall    time.Duration
	Progress func(done, total int64)
}

func (c *Client) progress(done, total int64) {
	if c.Progress != nil {
		c.Progress(done, total)
	}
}

func (c *Client) stall() time.Duration {
	if c.Stall > 0 {
		return c.Stall
	}
	return time.Minute
}

func (c *Client) source(ref Reference) (source, error) {
	if ref.Layout != "" {
		return layout{ref.Layout}, nil
	}
	return c.repository(ref)
}

func (c *Client) repository(ref Reference) (*remote.Repository, error) {
	repo, err := remote.NewRepository(ref.Registry + "/" + ref.Repository)
	if err != nil {
		return nil, err
	}
	if c.PlainHTTP && !local(ref.Registry) {
		return nil, fmt.Errorf("registry %s: only one on this host may be asked without TLS",
			ref.Registry)
	}
	repo.PlainHTTP = c.PlainHTTP
	repo.MaxMetadataBytes = maxDocument
	client := &auth.Client{Client: c.http(ref.Registry), Cache: auth.NewCache()}
	client.SetUserAgent("jail")
	if c.Auth != "" {
		// The docker client's store would run programs that the file names.
		store, err := credentials.NewFileStore(c.Auth)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Auth, err)
		}
		client.Credential = credentials.Credential(store)
	}
	repo.Client = client
	return repo, nil
}

// local reports whether a registry is on this host.
func local(registry string) bool {
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		host = registry
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && a.IsLoopback()
}

const maxRedirects = 5

// http returns a client that may connect to the named registry at any address, and to public
// addresses, for blobs and tokens elsewhere. Redirects never leave TLS, and cannot reach this host
// or its network.
func (c *Client) http(registry string) *http.Client {
	named := &net.Dialer{Timeout: 30 * time.Second}
	others := &net.Dialer{Timeout: 30 * time.Second, ControlContext: publicOnly}
	proxy := ""
	if u, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https",
		Host: registry}}); err == nil && u != nil {
		proxy = withPort(u.Host, u.Scheme)
	}
	scheme := "https"
	if c.PlainHTTP {
		scheme = "http"
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   30 * time.Second,
		ResponseHeaderTimeout: c.stall(),
		// Digests are of the bytes that were sent.
		DisableCompression: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == withPort(registry, scheme) || addr == proxy {
				return named.DialContext(ctx, network, addr)
			}
			return others.DialContext(ctx, network, addr)
		},
	}
	return &http.Client{Transport: transport, CheckRedirect: func(req *http.Request,
		via []*http.Request) error {
		switch {
		case len(via) > maxRedirects:
			return fmt.Errorf("%w: more than %d times", ErrElsewhere, maxRedirects)
		case req.URL.Scheme != "https" && req.URL.Host != via[0].URL.Host:
			return fmt.Errorf("%w: to %s, without TLS", ErrElsewhere, req.URL.Host)
		case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
			return fmt.Errorf("%w: from TLS to none", ErrElsewhere)
		}
		// Behind a proxy only the proxy resolves names, so an address is all that can be checked.
		if a, err := netip.ParseAddr(req.URL.Hostname()); err == nil && req.URL.Host != registry &&
			fetch.Forbidden(a, nil) != "" {
			return fmt.Errorf("%w: to %s (%s)", ErrElsewhere, req.URL.Host, fetch.Forbidden(a, nil))
		}
		return nil
	}}
}

func withPort(host, scheme string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	if scheme == "http" {
		return net.JoinHostPort(strings.Trim(host, "[]"), "80")
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "443")
}

// publicOnly refuses an address that is not public, when it is dialled, after the name was
// resolved.
func publicOnly(_ context.Context, _, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: to %s", ErrElsewhere, address)
	}
	if why := fetch.Forbidden(a.Addr(), nil); why != "" {
		return fmt.Errorf("%w: to %s (%s)", ErrElsewhere, address, why)
	}
	return nil
}

// describe wraps an error of a registry as ErrNotFound, ErrDenied or a RegistryError. Others are
// returned unchanged.
func describe(ctx context.Context, ref Reference, err error) error {
	var response *errcode.ErrorResponse
	// an error on this host's disk
	var local *fs.PathError
	switch {
	case err == nil, errors.Is(err, ErrNotFound):
		return err
	case errors.Is(err, errdef.ErrNotFound):
		return fmt.Errorf("%s: %w: the registry has no such thing", ref, ErrNotFound)
	case errors.As(err, &response) && (response.StatusCode == http.StatusUnauthorized ||
		response.StatusCode == http.StatusForbidden):
		return fmt.Errorf("%s: %w: %w", ref, ErrDenied, err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case ref.Layout != "", errors.As(err, &local), errors.Is(err, ErrArtifact), errors.Is(err,
		ErrElsewhere):
		return err
	}
	return &RegistryError{err}
}

// A watched reader cancels a transfer when nothing arrives for stall.
type watched struct {
	r     io.Reader
	timer *time.Timer
	stall time.Duration
	over  atomic.Bool
}

var errStalled = errors.New("the registry stopped sending")

func (c *Client) watch(r io.Reader, cancel context.CancelCauseFunc) *watched {
	w := &watched{r: r, stall: c.stall()}
	w.timer = time.AfterFunc(w.stall, func() {
		w.over.Store(true)
		cancel(fmt.Errorf("%w for %v; repeat the pull, and it goes on from there", errStalled,
			w.stall))
	})
	return w
}

func (w *watched) stop() { w.timer.Stop() }

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if n > 0 && !w.over.Load() {
		w.timer.Reset(w.stall)
	}
	return n, err
}

// counting returns a reader that calls progress with the bytes read so far, starting from at.
func (w *watched) counting(at int64, progress func(int64)) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := w.Read(p)
		at += int64(n)
		progress(at)
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
