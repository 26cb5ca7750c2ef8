package fetch

import (
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// TestBadTargets: what is no URL, and what is no authority of a tunnel, is refused (T-206, T-214,
// T-220 to T-225, T-228, T-230).
func TestBadTargets(t *testing.T) {
	if len(fetchtest.BadTargets) < 150 {
		t.Errorf("only %d vectors", len(fetchtest.BadTargets))
	}
	long := []string{"http://" + strings.Repeat("a", 64) + ".example/",
		"http://" + strings.Repeat("a.", 127) + "example/",
		"http://a.example/" + strings.Repeat("a", maxTarget), "http://a.example\x00.b.example/",
		"http://a.example\t/", "http://a.example/\x01", "http://a.example/\xff"}
	for _, text := range append(fetchtest.BadTargets, long...) {
		if got, err := parseTarget(text); err == nil {
			t.Errorf("%q reads as %+v", text, got)
		}
	}
	for _, text := range []string{"", "a.example", "a.example:", "a.example:0", "a.example:0443",
		"a.example:https", "a.example:443/", "a.example:443?", "/x", "http://a.example:443",
		"https://a.example", "[::1]:443", "127.0.0.1:443", "u@a.example:443", "a.example:443:443",
		"*", "a.example:65536", ":443", "a..b:443", "a.example.:443.", "a.example:4\x0043"} {
		if got, err := parseTunnel(text); err == nil {
			t.Errorf("CONNECT %q reads as %+v", text, got)
		}
	}
}

func TestGoodTargets(t *testing.T) {
	for text, want := range map[string]target{
		"http://a.example":                   {"http", "a.example", 80, "/", ""},
		"http://a.example/":                  {"http", "a.example", 80, "/", ""},
		"HTTP://A.Example./":                 {"http", "a.example", 80, "/", ""},
		"https://a.example":                  {"https", "a.example", 443, "/", ""},
		"https://a.example:8443/x/":          {"https", "a.example", 8443, "/x/", ""},
		"http://a.example:443/x":             {"https", "a.example", 443, "/x", ""},
		"http://a.example:8080?":             {"http", "a.example", 8080, "/", "?"},
		"http://a.example/a?b=/../c&d=%2f":   {"http", "a.example", 80, "/a", "?b=/../c&d=%2f"},
		"http://a.example/a?b?c":             {"http", "a.example", 80, "/a", "?b?c"},
		"http://a.example/%41%7eb":           {"http", "a.example", 80, "/A~b", ""},
		"http://a.example/%c3%a4":            {"http", "a.example", 80, "/%C3%A4", ""},
		"http://a.example/a%20b":             {"http", "a.example", 80, "/a%20b", ""},
		"http://a.example/a...b/.well-known": {"http", "a.example", 80, "/a...b/.well-known", ""},
		"http://xn--exmple-cua.com/":         {"http", "xn--exmple-cua.com", 80, "/", ""},
		"http://a.example/a+b,c=d@e:f!g":     {"http", "a.example", 80, "/a%2Bb,c=d@e:f!g", ""},
		"http://a.example/a%2bb%2C%40%3ag":   {"http", "a.example", 80, "/a%2Bb,@:g", ""},
		"http://localhost/":                  {"http", "localhost", 80, "/", ""},
	} {
		got, err := parseTarget(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
}

// TestOneReading: what is taken is read alike by decoders of three habits, and by Go's own client.
func TestOneReading(t *testing.T) {
	readers := map[string]func(string) string{
		"nginx": func(p string) string { u, _ := url.PathUnescape(p); return path.Clean(u) },
		"tomcat": func(p string) string {
			p, _, _ = strings.Cut(p, ";")
			u, _ := url.PathUnescape(p)
			return path.Clean(u)
		},
		"twice": func(p string) string {
			u, _ := url.PathUnescape(p)
			if v, err := url.PathUnescape(u); err == nil {
				u = v
			}
			return path.Clean(strings.ReplaceAll(u, `\`, "/"))
		},
		"cgi": func(p string) string { return path.Clean(p) },
	}
	for _, raw := range []string{"/public/a", "/public/%41", "/public/%c3%a4", "/public/a%20b",
		"/public/..a", "/public/a..", "/public/%2d", "/public/%2B", "/public/%3A",
		"/public/%40/x"} {
		p, err := policy.CanonicalPath(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		for name, read := range readers {
			if got := read(p); !strings.HasPrefix(got, "/public/") {
				t.Errorf("%s: %s, as %s reads it, is %s", raw, p, name, got)
			}
		}
		again, err := policy.CanonicalPath(p)
		if err != nil || again != p {
			t.Errorf("%s: its form is %s, whose form is %s, %v", raw, p, again, err)
		}
		if req, err := http.NewRequest("GET", "http://a.example"+p, nil); err != nil ||
			req.URL.EscapedPath() != p {
			t.Errorf("%s: Go sends another path", p)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, text := range fetchtest.BadTargets {
		f.Add(text)
	}
	f.Add("https://a.example:8443/a%20b?c")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseTarget(text)
		if err != nil {
			return
		}
		again, err := parseTarget(got.String() + got.query)
		if err != nil || again != got {
			t.Errorf("%q: %+v reads again as %+v, %v", text, got, again, err)
		}
		if net.ParseIP(got.host) != nil || strings.ContainsAny(got.path, "?#\\; ") ||
			strings.Contains(got.path, "%2F") || strings.HasSuffix(got.path, "/..") {
			t.Errorf("%q reads as %+v", text, got)
		}
	})
}
