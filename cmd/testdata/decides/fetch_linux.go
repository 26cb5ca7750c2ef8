package main

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// What is asked through the proxy that the jail's surroundings name: a request, "7 GET https://host:443/path" with the number that the other side is to
// see, or a tunnel, "host:443".
func init() {
	try["request"], try["tunnel"] = request, tunnel
}

var client = &http.Client{
	Timeout:       20 * time.Second,
	Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// request asks through the proxy: a plain one in absolute form, any other inside a CONNECT. It is let through where the answer is the other side's own.
func request(what string) bool {
	words := strings.Fields(what)
	req, err := http.NewRequest(words[1], words[2], nil)
	if err != nil {
		return false
	}
	req.Header.Set("X-Question", words[0])
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK && resp.Header.Get("X-World") == words[0]
}

// tunnel is let through where the certificate in it is the other side's own.
func tunnel(address string) bool {
	proxy, err := url.Parse(os.Getenv("https_proxy"))
	if err != nil {
		return false
	}
	c, err := net.DialTimeout("tcp", proxy.Host, 5*time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, "CONNECT "+address+" HTTP/1.1\r\nHost: "+address+"\r\n\r\n"); err != nil {
		return false
	}
	head := make([]byte, 0, 1024)
	for !strings.HasSuffix(string(head), "\r\n\r\n") && len(head) < cap(head) {
		var one [1]byte
		if _, err := io.ReadFull(c, one[:]); err != nil {
			return false
		}
		head = append(head, one[0])
	}
	if !strings.HasPrefix(string(head), "HTTP/1.1 200 ") {
		return false
	}
	name, _, _ := strings.Cut(address, ":")
	inside := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}) // whose it is, is what is asked
	if inside.Handshake() != nil {
		return false
	}
	return inside.ConnectionState().PeerCertificates[0].Issuer.CommonName == "test"
}
