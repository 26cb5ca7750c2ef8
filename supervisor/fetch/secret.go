package fetch

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Kinds of credentials.
const (
	SecretBearer = "bearer"
	SecretBasic  = "basic"
	SecretHeader = "header"
	SecretQuery  = "query"
	SecretSigV4  = "sigv4"
)

// A Secret is a credential as the proxy attaches it. It is in the memory of the daemon and of the proxies of the runs whose policy names it, and
// nowhere else.
type Secret struct {
	Kind      string `json:"kind"`
	Value     string `json:"value"`             // token, password, value or secret key
	User      string `json:"user,omitempty"`    // of basic; the access key of sigv4
	Name      string `json:"name,omitempty"`    // of the header or the parameter
	Region    string `json:"region,omitempty"`  // of sigv4
	Service   string `json:"service,omitempty"` // of sigv4
	Session   string `json:"session,omitempty"` // of sigv4: the session's token
	Cleartext bool   `json:"cleartext,omitempty"`
	Scrub     bool   `json:"scrub,omitempty"` // cut it out of what comes back
}

const minSecret = 8 // bytes; a shorter one would be cut out of what it is not

// Check returns what makes a secret one that cannot be sent as it is, without showing any of it.
func (s Secret) Check() error {
	for _, text := range []string{s.Value, s.User, s.Session} {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
			return errors.New("it has a line end, or a byte that is no plain text")
		}
	}
	switch {
	case len(s.Value) < minSecret:
		return fmt.Errorf("it is shorter than %d bytes", minSecret)
	case s.Kind == SecretBearer:
	case s.Kind == SecretBasic && (s.User == "" || strings.Contains(s.User, ":")):
		return errors.New("basic needs a user without a colon")
	case s.Kind == SecretBasic:
	case s.Kind == SecretHeader && (s.Name == "" || strings.ContainsFunc(s.Name, func(r rune) bool { return r >= 0x80 || !tokenByte(byte(r)) })):
		return errors.New("header needs the name of a header")
	case s.Kind == SecretHeader && slices.Contains(notSent, dashed(s.Name)):
		return fmt.Errorf("header %s is never sent on", s.Name)
	case s.Kind == SecretHeader:
	case s.Kind == SecretQuery && (s.Name == "" || url.QueryEscape(s.Name) != s.Name):
		return errors.New("query needs the name of a parameter")
	case s.Kind == SecretQuery:
	case s.Kind == SecretSigV4 && (s.User == "" || s.Region == "" || s.Service == ""):
		return errors.New("sigv4 needs an access key, a region and a service")
	case s.Kind == SecretSigV4:
	default:
		return fmt.Errorf("kind %q is none of bearer, basic, header, query, sigv4", s.Kind)
	}
	return nil
}

// replaces reports whether a header of the tool's, by its dashed name, gives way to the secret's.
func (s Secret) replaces(name string) bool {
	switch {
	case name == "authorization" || name == "cookie" || name == "proxy-authorization":
		return true
	case s.Scrub && (name == "accept-encoding" || name == "range"): // what is coded, or in parts, hides what is to be cut out
		return true
	case s.Kind == SecretHeader:
		return name == dashed(s.Name)
	case s.Kind == SecretSigV4:
		return name == "x-amz-date" || name == "x-amz-security-token" || name == "x-amz-content-sha256" || name == "date"
	}
	return false
}

// attach adds the secret to what is sent. body is the whole body, or nil where it is not known yet.
func (s Secret) attach(t *Target, method string, h fields, body []byte, now time.Time) (fields, error) {
	if s.Scrub {
		h = append(h, field{"Accept-Encoding", "identity"})
	}
	switch s.Kind {
	case SecretBearer:
		return append(h, field{"Authorization", "Bearer " + s.Value}), nil
	case SecretBasic:
		return append(h, field{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(s.User+":"+s.Value))}), nil
	case SecretHeader:
		return append(h, field{s.Name, s.Value}), nil
	case SecretQuery:
		between := func(r rune) bool { return r == '&' || r == ';' } // some servers split at either
		for pair := range strings.FieldsFuncSeq(strings.TrimPrefix(t.Query, "?"), between) {
			name, _, _ := strings.Cut(pair, "=")
			if plain, err := url.QueryUnescape(name); err != nil || strings.EqualFold(plain, s.Name) {
				return nil, bad("the query has a parameter that the proxy sets itself")
			}
		}
		sep := "?"
		if t.Query != "" {
			sep = "&"
		}
		t.Query += sep + s.Name + "=" + url.QueryEscape(s.Value)
		return h, nil
	}
	return s.sign(*t, method, h, body, now)
}

// forms are the texts in which the secret could come back.
func (s Secret) forms() [][]byte {
	value := []byte(s.Value)
	out := [][]byte{value, []byte(url.QueryEscape(s.Value)), []byte(base64.StdEncoding.EncodeToString(value)),
		[]byte(base64.RawURLEncoding.EncodeToString(value))}
	if s.Kind == SecretBasic {
		out = append(out, []byte(base64.StdEncoding.EncodeToString([]byte(s.User+":"+s.Value))))
	}
	slices.SortFunc(out, func(a, b []byte) int { return len(b) - len(a) })
	return slices.CompactFunc(out, bytes.Equal)
}

// scrubText cuts the secret out of a text.
func (s Secret) scrubText(text string) (string, bool) {
	out := []byte(text)
	hit := scrub(out, s.forms())
	return string(out), hit
}

// scrub overwrites every form with stars, in place.
func scrub(b []byte, forms [][]byte) (hit bool) {
	for _, f := range forms {
		for rest := b; ; {
			i := bytes.Index(rest, f)
			if i < 0 {
				break
			}
			for j := range f {
				rest[i+j] = '*'
			}
			rest, hit = rest[i+len(f):], true
		}
	}
	return hit
}

// A scrubber cuts forms out of a stream, also where they come in pieces: it holds back what could be the start of one.
type scrubber struct {
	r     io.Reader
	forms [][]byte
	buf   []byte
	err   error
	hit   bool
}

func (s *scrubber) Read(p []byte) (int, error) {
	const chunk = 32 << 10
	hold := len(s.forms[0]) - 1
	for s.err == nil && len(s.buf) <= hold {
		part := make([]byte, chunk)
		var n int
		n, s.err = s.r.Read(part)
		s.buf = append(s.buf, part[:n]...)
		s.hit = scrub(s.buf, s.forms) || s.hit
	}
	ready := len(s.buf) - hold
	if s.err != nil {
		ready = len(s.buf)
	}
	if ready <= 0 {
		return 0, s.err
	}
	n := copy(p, s.buf[:ready])
	s.buf = s.buf[n:]
	return n, nil
}
