package fetch

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
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
	secretBearer = "bearer"
	secretBasic  = "basic"
	secretHeader = "header"
	secretQuery  = "query"
	secretSigV4  = "sigv4"
)

// Secret is a credential for the proxy to attach. Only the daemon, and the proxies of runs whose
// policy names it, have it in memory.
type Secret struct {
	Kind string `json:"kind"`
	// Value is the token, password, header or parameter value, or secret key.
	Value string `json:"value"`
	// User is the user of basic, or the access key of sigv4.
	User string `json:"user,omitempty"`
	// Name is the name of the header or query parameter.
	Name    string `json:"name,omitempty"`
	Region  string `json:"region,omitempty"`  // of sigv4
	Service string `json:"service,omitempty"` // of sigv4
	// Session is the session token of sigv4.
	Session   string `json:"session,omitempty"`
	Cleartext bool   `json:"cleartext,omitempty"`
	// Scrub: remove the secret from responses.
	Scrub bool `json:"scrub,omitempty"`
}

// minSecret is the least length in bytes; a shorter secret would match other text.
const minSecret = 8

// check returns an error for a secret that cannot be sent. The error shows none of it.
func (s Secret) check() error {
	for _, text := range []string{s.Value, s.User, s.Session} {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
			return errors.New("it has a line end, or a byte that is no plain text")
		}
	}
	switch {
	case len(s.Value) < minSecret:
		return fmt.Errorf("it is shorter than %d bytes", minSecret)
	case s.Kind == secretBearer:
	case s.Kind == secretBasic && (s.User == "" || strings.Contains(s.User, ":")):
		return errors.New("basic needs a user without a colon")
	case s.Kind == secretBasic:
	case s.Kind == secretHeader && (s.Name == "" || strings.ContainsFunc(s.Name,
		func(r rune) bool { return r >= 0x80 || !tokenByte(byte(r)) })):
		return errors.New("header needs the name of a header")
	case s.Kind == secretHeader && slices.Contains(notSent, dashed(s.Name)):
		return fmt.Errorf("header %s is never sent on", s.Name)
	case s.Kind == secretHeader:
	case s.Kind == secretQuery && (s.Name == "" || url.QueryEscape(s.Name) != s.Name):
		return errors.New("query needs the name of a parameter")
	case s.Kind == secretQuery:
	case s.Kind == secretSigV4 && (s.User == "" || s.Region == "" || s.Service == ""):
		return errors.New("sigv4 needs an access key, a region and a service")
	case s.Kind == secretSigV4:
	default:
		return fmt.Errorf("kind %q is none of bearer, basic, header, query, sigv4", s.Kind)
	}
	return nil
}

// replaces reports whether the credential replaces the tool's header with this dashed name.
func (s Secret) replaces(name string) bool {
	switch {
	case name == "authorization" || name == "cookie" || name == "proxy-authorization":
		return true
	// An encoded or partial response could hide the secret from scrub.
	case s.Scrub && (name == "accept-encoding" || name == "range"):
		return true
	case s.Kind == secretHeader:
		return name == dashed(s.Name)
	case s.Kind == secretSigV4:
		return name == "x-amz-date" || name == "x-amz-security-token" ||
			name == "x-amz-content-sha256" || name == "date"
	}
	return false
}

// attach adds the secret to the headers h or to t's query. body is the whole body, nil if it is not
// known yet.
func (s Secret) attach(t *target, method string, h fields, body []byte, now time.Time) (fields,
	error) {
	if s.Scrub {
		h = append(h, field{"Accept-Encoding", "identity"})
	}
	switch s.Kind {
	case secretBearer:
		return append(h, field{"Authorization", "Bearer " + s.Value}), nil
	case secretBasic:
		return append(h, field{"Authorization",
			"Basic " + base64.StdEncoding.EncodeToString([]byte(s.User+":"+s.Value))}), nil
	case secretHeader:
		return append(h, field{s.Name, s.Value}), nil
	case secretQuery:
		// Some servers split at & and some at ;.
		between := func(r rune) bool { return r == '&' || r == ';' }
		for pair := range strings.FieldsFuncSeq(strings.TrimPrefix(t.query, "?"), between) {
			name, _, _ := strings.Cut(pair, "=")
			if plain, err := url.QueryUnescape(name); err != nil || strings.EqualFold(plain,
				s.Name) {
				return nil, bad("the query has a parameter that the proxy sets itself")
			}
		}
		sep := "?"
		if t.query != "" {
			sep = "&"
		}
		t.query += sep + s.Name + "=" + url.QueryEscape(s.Value)
		return h, nil
	}
	return s.sign(*t, method, h, body, now)
}

// forms returns the encodings in which the secret could come back in a response.
func (s Secret) forms() [][]byte {
	value := []byte(s.Value)
	out := [][]byte{value, []byte(url.QueryEscape(s.Value)),
		[]byte(base64.StdEncoding.EncodeToString(value)),
		[]byte(base64.RawURLEncoding.EncodeToString(value))}
	if s.Kind == secretBasic {
		out = append(out, []byte(base64.StdEncoding.EncodeToString([]byte(s.User+":"+s.Value))))
	}
	slices.SortFunc(out, func(a, b []byte) int { return len(b) - len(a) })
	return slices.CompactFunc(out, bytes.Equal)
}

// scrubText removes the secret from text. It reports whether it found any.
func (s Secret) scrubText(text string) (string, bool) {
	out := []byte(text)
	hit := scrub(out, s.forms())
	return string(out), hit
}

// scrub overwrites all forms in b with stars and reports whether it found any.
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

// scrubber removes forms from a stream, also if they arrive in pieces: it holds back only an end
// that could be the beginning of a form, so that a stream of events passes without delay.
type scrubber struct {
	r     io.Reader
	forms [][]byte
	buf   []byte
	err   error
	hit   bool
}

func (s *scrubber) Read(p []byte) (int, error) {
	const chunk = 32 << 10
	ready := s.ready()
	for s.err == nil && ready == 0 {
		part := make([]byte, chunk)
		var n int
		n, s.err = s.r.Read(part)
		s.buf = append(s.buf, part[:n]...)
		s.hit = scrub(s.buf, s.forms) || s.hit
		ready = s.ready()
	}
	if ready == 0 {
		return 0, s.err
	}
	n := copy(p, s.buf[:ready])
	s.buf = s.buf[n:]
	return n, nil
}

// ready returns how many bytes can be passed on: all but the longest end that could begin a form.
// At the end of the stream it returns all.
func (s *scrubber) ready() int {
	if s.err != nil {
		return len(s.buf)
	}
	held := 0
	for _, f := range s.forms {
		for n := min(len(f)-1, len(s.buf)); n > held; n-- {
			if bytes.HasSuffix(s.buf, f[:n]) {
				held = n
			}
		}
	}
	return len(s.buf) - held
}

// s3 is the one service that signs paths with a single escape of each byte, and allows unsigned
// bodies.
const s3 = "s3"

// sign adds AWS's signature version 4 to a request.
func (s Secret) sign(t target, method string, h fields, body []byte, now time.Time) (fields,
	error) {
	sum := "UNSIGNED-PAYLOAD"
	if body != nil {
		sum = hexSum(body)
	} else if s.Service != s3 {
		return nil, bad("the body is too large to be signed")
	}
	stamp := now.UTC().Format("20060102T150405Z")
	signed := fields{{"host", t.authority()}, {"x-amz-date", stamp}}
	if s.Service == s3 {
		signed = append(signed, field{"x-amz-content-sha256", sum})
	}
	if s.Session != "" {
		signed = append(signed, field{"x-amz-security-token", s.Session})
	}
	own := len(signed)
	theirs, err := signable(h)
	if err != nil {
		return nil, err
	}
	// The Host header is not added, since it is sent anyway.
	added := slices.Clone(signed[1:own])
	signed = append(signed, theirs...)
	slices.SortFunc(signed, func(a, b field) int { return strings.Compare(a.name, b.name) })
	var lines, names []string
	for _, f := range signed {
		lines, names = append(lines, f.name+":"+f.value+"\n"), append(names, f.name)
	}
	list := strings.Join(names, ";")
	canonical := strings.Join([]string{method, s.canonicalURI(t.path), canonicalQuery(t.query),
		strings.Join(lines, ""), list, sum}, "\n")
	scope := strings.Join([]string{stamp[:8], s.Region, s.Service, "aws4_request"}, "/")
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, scope, hexSum([]byte(canonical))},
		"\n")
	key := []byte("AWS4" + s.Value)
	for _, part := range append(strings.Split(scope, "/"), text) {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	return append(append(h, added...), field{"Authorization", "AWS4-HMAC-SHA256 Credential=" +
		s.User + "/" + scope + ", SignedHeaders=" + list + ", Signature=" +
		hex.EncodeToString(key)}), nil
}

func hexSum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// signedFor are AWS's headers that a tool may send, about the object itself or the tool's program.
// Others are not signed, and AWS refuses them unsigned, since they reach beyond the decided path:
// x-amz-copy-source reads another object, x-amz-acl lets others read this one.
var signedFor = []string{"x-amz-target", "x-amz-api-version", "x-amz-user-agent",
	"x-amz-storage-class", "x-amz-sdk-checksum-algorithm", "x-amz-expected-bucket-owner"}

// signable returns those of the tool's headers that are signed, as they are sent. AWS requires its
// own headers and the content type.
func signable(h fields) (out fields, err error) {
	seen := map[string]bool{}
	for _, f := range h {
		name := strings.ToLower(f.name)
		switch {
		case seen[name] || name != "content-type" && name != "content-md5" &&
			!strings.HasPrefix(dashed(name), "x-amz-"):
			continue
		case strings.HasPrefix(dashed(name), "x-amz-") && !strings.HasPrefix(name, "x-amz-meta-") &&
			!strings.HasPrefix(name, "x-amz-checksum-") && !slices.Contains(signedFor, name):
			return nil, bad("the header %s is none that is signed for a tool: leave it out", name)
		}
		seen[name] = true
		values := h.get(name)
		for i, v := range values {
			values[i] = strings.Join(strings.Fields(v), " ")
		}
		out = append(out, field{name, strings.Join(values, ",")})
	}
	return out, nil
}

// canonicalURI escapes an escaped path again, as AWS signs it. For S3 it escapes only bytes that
// are not escaped yet.
func (s Secret) canonicalURI(path string) string {
	if s.Service == s3 {
		return awsEscape(path, "/%")
	}
	return awsEscape(path, "/")
}

func canonicalQuery(query string) string {
	if len(query) < 2 {
		return ""
	}
	pairs := strings.Split(query[1:], "&")
	for i, p := range pairs {
		name, value, _ := strings.Cut(p, "=")
		pairs[i] = awsParameter(name) + "=" + awsParameter(value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

// awsParameter returns a part of a query in AWS's escapes, whatever escapes it has.
func awsParameter(text string) string {
	// A plus is no space.
	plain, err := url.PathUnescape(text)
	if err != nil {
		return awsEscape(text, "%")
	}
	return awsEscape(plain, "")
}

// awsEscape escapes all characters of text except unreserved ones and those in keep.
func awsEscape(text, keep string) string {
	const digits = "0123456789ABCDEF"
	var out strings.Builder
	for i := range len(text) {
		c := text[i]
		if strings.IndexByte(unreserved, c) >= 0 || strings.IndexByte(keep, c) >= 0 {
			out.WriteByte(c)
			continue
		}
		out.Write([]byte{'%', digits[c>>4], digits[c&15]})
	}
	return out.String()
}
