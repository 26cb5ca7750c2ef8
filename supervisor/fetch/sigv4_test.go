package fetch

import (
	"strings"
	"testing"
	"time"
)

// TestSigV4 is AWS's own example of a signature (get-vanilla of its test suite).
func TestSigV4(t *testing.T) {
	s := Secret{Kind: secretSigV4, User: "AKIDEXAMPLE",
		Value: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", Region: "us-east-1", Service: "service"}
	h, err := s.sign(target{scheme: schemeHTTPS, host: "example.amazonaws.com", port: 443,
		path: "/"}, "GET", nil, []byte{}, time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	const want = "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
	if got := h.get("authorization"); len(got) != 1 || !strings.HasSuffix(got[0], want) {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestSigV4Forms: what is signed is what AWS makes of the request that it gets ("Create a canonical
// request"), word by word; what it wants signed and is not a tool's to say is refused.
func TestSigV4Forms(t *testing.T) {
	now := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	at := target{scheme: schemeHTTPS, host: "s3.example.com", port: 443}
	signed := func(service, path, query string, h fields) (string, string) {
		t.Helper()
		target := at
		target.path, target.query = path, query
		s := Secret{Kind: secretSigV4, User: "U", Value: "V", Region: "r", Service: service}
		got, err := s.sign(target, "PUT", h, []byte("x"), now)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(got.get("authorization")[0], "SignedHeaders=")
		list, signature, _ := strings.Cut(rest, ", Signature=")
		return list, signature
	}
	same := func(service, path, query, otherPath, otherQuery string, want bool) {
		t.Helper()
		_, a := signed(service, path, query, nil)
		_, b := signed(service, otherPath, otherQuery, nil)
		if (a == b) != want {
			t.Errorf("%s: %s%s and %s%s: alike is %v", service, path, query, otherPath, otherQuery,
				a == b)
		}
	}
	same("s3", "/b/date=1/a+b@c:d", "", "/b/date%3D1/a%2Bb%40c%3Ad", "", true)
	same("s3", "/b/%C3%BC", "", "/b/%25C3%25BC", "", false)
	same("service", "/b/a@b", "", "/b/a%40b", "", false)
	same("s3", "/", "?prefix=%c3%bc/x&a", "/", "?a=&prefix=%C3%BC%2Fx", true)
	same("s3", "/", "?a=+", "/", "?a=%20", false)
	list, _ := signed("s3", "/", "", fields{{"X-Amz-Meta-A", " 1  2 "},
		{"Content-Type", "text/plain"}, {"Accept", "*/*"}, {"x-amz-meta-a", "3"}})
	if want := "content-type;host;x-amz-content-sha256;x-amz-date;x-amz-meta-a"; list != want {
		t.Errorf("signed are %s, want %s", list, want)
	}
	_, two := signed("s3", "/", "", fields{{"X-Amz-Meta-A", " 1  2 "}, {"x-amz-meta-a", "3"}})
	if _, one := signed("s3", "/", "", fields{{"x-amz-meta-a", "1 2,3"}}); one != two {
		t.Error("a header in two lines is not signed as one")
	}
	for _, name := range []string{"x-amz-copy-source", "X-Amz-Acl", "x-amz-grant-read",
		"x-amz-rename-source", "x_amz_acl", "x-amz_meta-a"} {
		s := Secret{Kind: secretSigV4, User: "U", Value: "V", Region: "r", Service: "s3"}
		if _, err := s.sign(at, "PUT", fields{{name, "/other/object"}}, nil, now); err == nil ||
			!strings.Contains(err.Error(), strings.ToLower(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
