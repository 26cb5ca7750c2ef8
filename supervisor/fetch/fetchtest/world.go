package fetchtest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Names is a name server whose answers a test sets.
type Names struct {
	Server netip.AddrPort

	mu    sync.Mutex
	asked []string
	// script has the answers for each name, one for each IPv4 query. The last one repeats.
	script map[string][][]string
	count  map[string]int
	// raw, if set, returns the answer to a query, instead of script.
	raw func(query []byte) []byte
}

// StartNames starts a name server on the namespace's loopback.
func StartNames(t testing.TB) *Names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &Names{script: map[string][][]string{}, count: map[string]int{},
		Server: conn.LocalAddr().(*net.UDPAddr).AddrPort()}
	var done sync.WaitGroup
	done.Go(func() {
		buf := make([]byte, 4096)
		for {
			size, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if out := n.answer(bytes.Clone(buf[:size])); out != nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	})
	t.Cleanup(func() { conn.Close(); done.Wait() })
	return n
}

// Set sets the answers for a name: one list of addresses for each query. The last one repeats.
func (n *Names) Set(name string, answers ...[]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.script[name+"."] = answers
	n.count[name+"."] = 0
}

// SetRaw answers every query with the result of f.
func (n *Names) SetRaw(f func(query []byte) []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.raw = f
}

// Asked returns the names that were queried since the last call.
func (n *Names) Asked() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.asked
	n.asked = nil
	return out
}

func (n *Names) answer(query []byte) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	name := q.Name.String()
	if q.Type == dnsmessage.TypeA {
		n.asked = append(n.asked, name)
	}
	if n.raw != nil {
		return n.raw(query)
	}
	header := dnsmessage.Header{ID: h.ID, Response: true, RecursionAvailable: true}
	answers, ok := n.script[name]
	if !ok {
		header.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, header)
	if errors.Join(b.StartQuestions(), b.Question(q), b.StartAnswers()) != nil {
		return nil
	}
	if ok && len(answers) > 0 {
		turn := min(n.count[name], len(answers)-1)
		if q.Type == dnsmessage.TypeA {
			n.count[name]++
		} else if turn > 0 && n.count[name] < len(answers) {
			turn--
		}
		for _, text := range answers[turn] {
			a := netip.MustParseAddr(text)
			rh := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}
			switch {
			case a.Is4() && q.Type == dnsmessage.TypeA:
				err = b.AResource(rh, dnsmessage.AResource{A: a.As4()})
			case a.Is6() && q.Type == dnsmessage.TypeAAAA:
				err = b.AAAAResource(rh, dnsmessage.AAAAResource{AAAA: a.As16()})
			}
			if err != nil {
				return nil
			}
		}
	}
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	return out
}

// Host listens on one address and keeps all bytes that it receives.
type Host struct {
	Addr netip.AddrPort

	mu    sync.Mutex
	got   []byte
	wrote int64
	conns int
}

// StartHost starts a host at addr. It calls serve for each connection, then closes the connection.
// With TLS serve sees the plain text, but the host keeps the encrypted bytes.
func StartHost(t testing.TB, addr string, config *tls.Config, serve func(net.Conn)) *Host {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// The host does not own its addresses (IP_FREEBIND).
		const freeBind4, freeBind6 = 15, 78
		return errors.Join(c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, freeBind4, 1)
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, freeBind6, 1)
		}))
	}}
	l, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{Addr: netip.MustParseAddrPort(l.Addr().String())}
	var all sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h.mu.Lock()
			h.conns++
			h.mu.Unlock()
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			all.Go(func() {
				defer conn.Close()
				var c net.Conn = &kept{conn, h}
				if config != nil {
					c = tls.Server(c, config)
				}
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return h
}

// kept is a connection that keeps the bytes that are read.
type kept struct {
	net.Conn
	h *Host
}

func (k *kept) Read(p []byte) (int, error) {
	n, err := k.Conn.Read(p)
	k.h.mu.Lock()
	k.h.got = append(k.h.got, p[:n]...)
	k.h.mu.Unlock()
	return n, err
}

func (k *kept) Write(p []byte) (int, error) {
	// Count them before the other side can receive them.
	k.h.count(len(p))
	n, err := k.Conn.Write(p)
	k.h.count(n - len(p))
	return n, err
}

func (h *Host) count(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrote += int64(n)
}

// Took returns the bytes that the host received, the number of bytes it sent and its number of
// connections since the last call.
func (h *Host) Took() (got []byte, wrote int64, conns int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	got, wrote, conns = h.got, h.wrote, h.conns
	h.got, h.wrote, h.conns = nil, 0, 0
	return got, wrote, conns
}

// Authority is a certificate authority for hosts.
type Authority struct {
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority with a new key.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1),
		Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), cert, key}
}

// Config returns a TLS configuration for a host with these names. Its certificate expires at until.
func (a *Authority) Config(t testing.TB, until time.Time, names ...string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2),
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der},
		PrivateKey: key}}}
}
