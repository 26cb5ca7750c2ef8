package fetch

import (
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
)

// Each of these is refused before anything is decided, resolved or dialled (T-206, T-214, T-220 to T-225, T-228).
var badTargets = strings.Split(`/relative
*
host
http:host
http:/host/
http:///path
https://
http://:80/
ftp://a.example/
file:///etc/passwd
gopher://a.example/
unix:///run/x
HTTPX://a.example/
http://2130706433/
http://0x7f000001/
http://0x7f.1/
http://017700000001/
http://0177.0.0.1/
http://127.1/
http://0/
http://127.0.0.1/
http://127.0.0.1./
http://127.0.0.1:80/
http://1.2.3.4.5/
http://a.1/
http://a.0x1/
http://[::1]/
http://[::1]:80/
http://[::ffff:127.0.0.1]/
http://[fe80::1%25lo]/
http://[fe80::1%lo]/
http://[a.example]/
http://[a.example]:80/
http://[]/
http://[::1/
http://::1/
http://[::1]x/
http://[::1]:/
http://a.example]/
http://a..example/
http://.a.example/
http://a.example../
http://./
http://../
http://-a.example/
http://a-.example/
http://a_b.example/
http://a.example%00/
http://a.example%00.b.example/
http://a.example%2eb.example/
http://%61.example/
http://a%2eexample/
http://a.example%09/
http://a.example%0d%0ax/
http://a!b.example/
http://a*b.example/
http://*.example.com/
http://a,b/
http://a$b/
http://a"b/
http://a~b/
http://user@a.example/
http://user:pass@a.example/
http://a.example:80@evil.example/
http://a.example@evil.example:80/
http://a.example#@evil.example/
http://a.example\@evil.example/
http://a.example\evil.example/
http://evil.example#a.example
http://a.example;@evil.example/
http://a.example:/
http://a.example:0/
http://a.example:65536/
http://a.example:99999/
http://a.example:080/
http://a.example:+80/
http://a.example:-1/
http://a.example:8a/
http://a.example:http/
http://a.example:80:80/
http://a.example:0x50/
http://a.example:443x/
http://a.example: 80/
http://a.example/#frag
http://a.example/a#b
http://a.example/a/../b
http://a.example/..
http://a.example/.
http://a.example/a/.
http://a.example/a/..
http://a.example/a/./b
http://a.example//
http://a.example//a
http://a.example/a//b
http://a.example/a///b
http://a.example/a/%2e%2e/b
http://a.example/a/%2E%2e/b
http://a.example/a/.%2e/b
http://a.example/a/%2e/b
http://a.example/%2f
http://a.example/a%2fb
http://a.example/a%2Fb
http://a.example/a%5cb
http://a.example/a%5Cb
http://a.example/a\b
http://a.example/\a
http://a.example/a;b
http://a.example/..;/b
http://a.example/a/..;/b
http://a.example/a;jsessionid=1
http://a.example/a%3bb
http://a.example/a%3Bb
http://a.example/%00
http://a.example/a%00b
http://a.example/a%0d%0ab
http://a.example/a%0ab
http://a.example/a%7f
http://a.example/a%1f
http://a.example/%252e%252e/
http://a.example/%252f
http://a.example/%25
http://a.example/%2525
http://a.example/a%3fb
http://a.example/a%23b
http://a.example/%
http://a.example/%2
http://a.example/%zz
http://a.example/%+1
http://a.example/%-1
http://a.example/%c0%ae
http://a.example/%c0%af
http://a.example/%ff
http://a.example/%e0%80%af
http://a.example/%ed%a0%80
http://a.example/%f4%90%80%80
http://a.example/a"b
http://a.example/a<b
http://a.example/a>b
http://a.example/a^b
http://a.example/a|b
http://a.example/a{b}
http://a.example/a[b]
http://a.example/a`+"`"+`b
http://a.example/?a b
http://a.example/?a#b
http://a.example/?a"b
http://a.example/?a<b
http://a.example/?a\b
http://127。0。0。1/
http://127.0.0.1/
http://ⓔⓧⓐⓜⓟⓛⓔ.com/
http://℀.example/
http://exämple.com/
http://a.example/ä
http://a.example/?ä
http://😀.example/`, "\n")

func TestBadTargets(t *testing.T) {
	if len(badTargets) < 150 {
		t.Errorf("only %d vectors", len(badTargets))
	}
	long := []string{"http://" + strings.Repeat("a", 64) + ".example/", "http://" + strings.Repeat("a.", 127) + "example/",
		"http://a.example/" + strings.Repeat("a", maxTarget), "http://a.example\x00.b.example/", "http://a.example\t/", "http://a.example/\x01", "http://a.example/\xff"}
	for _, text := range append(badTargets, long...) {
		if got, err := ParseTarget(text); err == nil {
			t.Errorf("%q reads as %+v", text, got)
		}
	}
	for _, text := range []string{"", "a.example", "a.example:", "a.example:0", "a.example:0443", "a.example:https", "a.example:443/", "a.example:443?", "/x", "http://a.example:443",
		"https://a.example", "[::1]:443", "127.0.0.1:443", "u@a.example:443", "a.example:443:443", "*", "a.example:65536", ":443", "a..b:443", "a.example.:443.", "a.example:4\x0043"} {
		if got, err := ParseTunnel(text); err == nil {
			t.Errorf("CONNECT %q reads as %+v", text, got)
		}
	}
}

func TestGoodTargets(t *testing.T) {
	for text, want := range map[string]Target{
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
		"http://a.example/a+b,c=d@e:f!g":     {"http", "a.example", 80, "/a+b,c=d@e:f!g", ""},
		"http://localhost/":                  {"http", "localhost", 80, "/", ""},
	} {
		got, err := ParseTarget(text)
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
	for _, raw := range []string{"/public/a", "/public/%41", "/public/%c3%a4", "/public/a%20b", "/public/..a", "/public/a..", "/public/%2d", "/public/%2B", "/public/%3A", "/public/%40/x"} {
		p, err := CanonicalPath(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		for name, read := range readers {
			if got := read(p); !strings.HasPrefix(got, "/public/") {
				t.Errorf("%s: %s, as %s reads it, is %s", raw, p, name, got)
			}
		}
		again, err := CanonicalPath(p)
		if err != nil || again != p {
			t.Errorf("%s: its form is %s, whose form is %s, %v", raw, p, again, err)
		}
		if req, err := http.NewRequest("GET", "http://a.example"+p, nil); err != nil || req.URL.EscapedPath() != p {
			t.Errorf("%s: Go sends another path", p)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, text := range badTargets {
		f.Add(text)
	}
	f.Add("https://a.example:8443/a%20b?c")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseTarget(text)
		if err != nil {
			return
		}
		again, err := ParseTarget(got.String() + got.Query)
		if err != nil || again != got {
			t.Errorf("%q: %+v reads again as %+v, %v", text, got, again, err)
		}
		if net.ParseIP(got.Host) != nil || strings.ContainsAny(got.Path, "?#\\; ") || strings.Contains(got.Path, "%2F") || strings.HasSuffix(got.Path, "/..") {
			t.Errorf("%q reads as %+v", text, got)
		}
	})
}
