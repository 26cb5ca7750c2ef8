package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
)

func dial() (net.Conn, error) {
	proxy, err := url.Parse(os.Getenv("HTTP_PROXY"))
	if err != nil {
		return nil, err
	}
	return net.Dial("tcp", proxy.Host)
}

// tunnel opens a tunnel and speaks TLS in it, with the roots that the surroundings name.
func tunnel(conn net.Conn, host string) (*tls.Conn, error) {
	fmt.Fprintf(conn, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", host, host)
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body) // the status says it
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	}
	pem, err := os.ReadFile(os.Getenv("SSL_CERT_FILE"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	c := tls.Client(conn, &tls.Config{ServerName: host, RootCAs: roots})
	return c, c.Handshake()
}

func call(say) (string, int) { return "only guests have functions", 58 }
