package fetch

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"time"
)

// Bounds of an authority.
const (
	// authorityTime is longer than any run, and the key ends with the run.
	authorityTime = 30 * 24 * time.Hour
	// maxLeaves bounds the kept certificates.
	maxLeaves  = 1024
	serialBits = 127
)

// authority is a certificate authority for the hosts to which the tools of one run speak TLS, so
// that the proxy can decide each request inside. Its key is made in the memory of the run's proxy
// and never leaves it. Only the tools in that jail trust its certificate.
type authority struct {
	pem  []byte // the certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// leaf is the key in the certificates of all hosts.
	leaf *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := certificate("jail fetch proxy of one run", now)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		cert: cert, key: key, leaf: leaf,
		leaves: map[string]*tls.Certificate{}}, nil
}

func certificate(name string, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, err
	}
	// Valid from an hour ago, since a tool's clock may be behind.
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(authorityTime)}, nil
}

// sign returns the certificate for a host. It caches certificates.
func (a *authority) sign(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[host]; c != nil {
		return c, nil
	}
	name := host
	if len(name) > maxCommonName {
		// Clients check the subject alternative name, which is set below.
		name = ""
	}
	template, err := certificate(name, time.Now())
	if err != nil {
		return nil, err
	}
	template.DNSNames, template.ExtKeyUsage = []string{host},
		[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.leaf.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	a.leaves[host] = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf}
	return a.leaves[host], nil
}

// maxCommonName is the upper bound of a common name (RFC 5280, ub-common-name).
const maxCommonName = 64

// config returns the server's TLS configuration for a tunnel to host. It rejects a client that
// names no host or another one, since only host was decided.
func (a *authority) config(host string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		SessionTicketsDisabled: true,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if name := normalName(hello.ServerName); name != host {
				return nil, fmt.Errorf("the TLS greeting names another host than %s", host)
			}
			return a.sign(host)
		}}
}
