package fetch

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// s3 is the one service whose paths are signed as they are sent, and whose bodies need not be signed.
const s3 = "s3"

// sign adds AWS's signature, version 4, to a request.
func (s Secret) sign(t Target, method string, h fields, body []byte, now time.Time) (fields, error) {
	sum := "UNSIGNED-PAYLOAD"
	if body != nil {
		sum = hexSum(body)
	} else if s.Service != s3 {
		return nil, bad("the body is too large to be signed")
	}
	stamp := now.UTC().Format("20060102T150405Z")
	signed := fields{{"host", t.Authority()}, {"x-amz-date", stamp}}
	if s.Service == s3 {
		signed = append(signed, field{"x-amz-content-sha256", sum})
	}
	if s.Session != "" {
		signed = append(signed, field{"x-amz-security-token", s.Session})
	}
	slices.SortFunc(signed, func(a, b field) int { return strings.Compare(a.name, b.name) })
	var lines, names []string
	for _, f := range signed {
		lines, names = append(lines, f.name+":"+f.value+"\n"), append(names, f.name)
	}
	list := strings.Join(names, ";")
	canonical := strings.Join([]string{method, s.canonicalURI(t.Path), canonicalQuery(t.Query), strings.Join(lines, ""), list, sum}, "\n")
	scope := strings.Join([]string{stamp[:8], s.Region, s.Service, "aws4_request"}, "/")
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, scope, hexSum([]byte(canonical))}, "\n")
	key := []byte("AWS4" + s.Value)
	for _, part := range append(strings.Split(scope, "/"), text) {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	for _, f := range signed {
		if f.name != "host" {
			h = append(h, f)
		}
	}
	return append(h, field{"Authorization", "AWS4-HMAC-SHA256 Credential=" + s.User + "/" + scope + ", SignedHeaders=" + list + ", Signature=" + hex.EncodeToString(key)}), nil
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// canonicalURI escapes the path once more, but for S3.
func (s Secret) canonicalURI(path string) string {
	if s.Service == s3 {
		return path
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
		pairs[i] = awsEscape(name, "%") + "=" + awsEscape(value, "%")
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

// awsEscape escapes all but unreserved characters, and those of keep.
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
