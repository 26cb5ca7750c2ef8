package fetch

import (
	"net/http"
	"slices"
	"strings"
)

// dashed returns the name of a header as CGI and WSGI servers read it: without case, an underscore
// as a hyphen.
func dashed(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "-")) }

// notSent are hop-by-hop headers, and headers by which a request could claim another host, path,
// method or caller than the decided one.
var notSent = []string{
	"connection", "proxy-connection", "keep-alive", "proxy-authorization", "proxy-authenticate",
	"te", "trailer", "transfer-encoding",
	"upgrade", "expect", "host", "content-length", "http2-settings", "alt-used",
	"x-http-method-override", "x-http-method", "x-method-override", "x-original-url",
	"x-rewrite-url", "x-original-method",
	"forwarded", "x-forwarded-host", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-port",
	"x-forwarded-prefix", "x-forwarded-server",
	"x-host", "x-real-ip", "x-original-host", "via",
}

// forwarded returns the tool's headers that are sent on. It removes the headers that Connection
// names before the proxy adds its own.
func (h *head) forwarded(secret *Secret) fields {
	var nominated []string
	for _, token := range append(h.headers.tokens("connection"),
		h.headers.tokens("proxy-connection")...) {
		nominated = append(nominated, dashed(token))
	}
	var out fields
	for _, f := range h.headers {
		name := dashed(f.name)
		if slices.Contains(notSent, name) || slices.Contains(nominated, name) || secret != nil &&
			secret.replaces(name) {
			continue
		}
		out = append(out, f)
	}
	return out
}

// notReturned are response headers that belong to the connection to the host, or that open other
// ways to it.
var notReturned = []string{"connection", "proxy-connection", "keep-alive", "proxy-authenticate",
	"proxy-authorization", "te", "trailer",
	"transfer-encoding", "upgrade", "content-length", "alt-svc",
	// Guests recognize a refusal of the proxy by it.
	"x-jail-fetch", "x-jail-approval"}

// returned returns the headers of a response that the tool gets, sorted by name.
func returned(header http.Header, secret *Secret) (out fields, scrubbed bool) {
	var nominated []string
	for _, v := range header.Values("Connection") {
		for part := range strings.SplitSeq(v, ",") {
			nominated = append(nominated, dashed(strings.TrimSpace(part)))
		}
	}
	for name, values := range header {
		read := dashed(name)
		if slices.Contains(notReturned, read) || slices.Contains(nominated, read) ||
			secret != nil && read == "set-cookie" {
			continue
		}
		for _, v := range values {
			if !plainField(name, v) {
				continue
			}
			if secret != nil && secret.Scrub {
				clean, hit := secret.scrubText(v)
				v, scrubbed = clean, scrubbed || hit
			}
			out = append(out, field{name, v})
		}
	}
	slices.SortStableFunc(out, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return out, scrubbed
}

func plainField(name, value string) bool {
	if name == "" {
		return false
	}
	for i := range len(name) {
		if !tokenByte(name[i]) {
			return false
		}
	}
	return !strings.ContainsFunc(value, func(r rune) bool {
		return r < ' ' && r != '\t' || r == 0x7f
	})
}

// write appends the header lines, without the empty line.
func (f fields) write(b []byte) []byte {
	for _, h := range f {
		b = append(append(append(append(b, h.name...), ": "...), h.value...), "\r\n"...)
	}
	return b
}
