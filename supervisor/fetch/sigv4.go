package fetch

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// s3 is the one service whose paths are signed with one escape for each byte, and whose bodies need
// not be signed.
const s3 = "s3"

// sign adds AWS's signature, version 4, to a request.
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
	// All but the host, which is sent anyway.
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

// signedFor are AWS's headers that a tool may send: headers about the object itself or the tool's
// own program. Others are not signed, and AWS refuses unsigned ones, since they reach beyond the
// decided path: x-amz-copy-source reads another object, x-amz-acl lets others read this one.
var signedFor = []string{"x-amz-target", "x-amz-api-version", "x-amz-user-agent",
	"x-amz-storage-class", "x-amz-sdk-checksum-algorithm", "x-amz-expected-bucket-owner"}

// signable returns the tool's headers that are signed, in the form in which they are sent: AWS
// requires all of its own, and the content type.
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

// canonicalURI escapes the path once more; for S3 only the bytes that are not escaped yet.
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

// awsParameter returns a part of a query with AWS's escapes, whatever escapes it had.
func awsParameter(text string) string {
	// A plus stays a plus.
	plain, err := url.PathUnescape(text)
	if err != nil {
		return awsEscape(text, "%")
	}
	return awsEscape(plain, "")
}

// awsEscape escapes all characters but unreserved ones and those of keep.
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
