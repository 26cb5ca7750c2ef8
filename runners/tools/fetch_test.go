package tools

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fetchServers start two hosts: where a name or a port differs, so does the origin.
func fetchServers(t *testing.T) (a, b string) {
	t.Helper()
	for _, at := range []*string{&a, &b} {
		s := httptest.NewServer(http.HandlerFunc(web))
		t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
		*at = s.URL
	}
	return a, b
}

// Whatever curl makes of a command line and of what a host answers, fetch makes of it too: output,
// files, and exit code.
func TestFetchAsCurl(t *testing.T) {
	b := tools(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl to compare with")
	}
	one, other := fetchServers(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	files := map[string]string{"form": "a=1\nb=2\r\n", "bin": "\x00\x01\n\xff", "headers": "X-Test: from a file\nReferer: here\n",
		"json": "{\"a\": [1]}\n"}
	for _, args := range fetchCases {
		for i, s := range args {
			args[i] = strings.NewReplacer("$A", one, "$B", other, "$GONE", gone.URL, "$HOST", strings.TrimPrefix(one,
				"http://")).Replace(s)
		}
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			run := func(do func(*testing.T, string, string, ...string) outcome, name string) outcome {
				dir := t.TempDir()
				for f, text := range files {
					must(t, os.WriteFile(filepath.Join(dir, f), []byte(text), 0o644))
				}
				got := do(t, dir, "from standard input", append([]string{name}, args...)...)
				got.stdout = plainHeads(got.stdout)
				got.tree = plainHeads(strings.ReplaceAll(got.tree, `\r\n`, "\r\n"))
				return got
			}
			got, want := run(b.inJail, "fetch"), run(onHost, "curl")
			if got.code != want.code || got.stdout != want.stdout || got.tree != want.tree {
				t.Errorf("fetch: %d %.600q\n%.600s\ncurl: %d %.600q\n%.600s\nstderr %q, curl's %q", got.code, got.stdout, got.tree, want.code, want.stdout, want.tree,
					got.stderr, want.stderr)
			}
			if strings.HasPrefix(strings.Join(args, " "), "-s") && (got.stderr == "") != (want.stderr == "") {
				t.Errorf("stderr %q, curl's %q", got.stderr, want.stderr)
			}
		})
	}
}

// plainHeads sorts the headers of each head in a text, and leaves out those that differ from one
// request to the next, or belong to the stream.
func plainHeads(text string) string {
	parts := strings.SplitAfter(text, "\r\n\r\n")
	for i, p := range parts {
		if strings.Count(p, "\r\n") < 2 {
			continue
		}
		lines := strings.SplitAfter(p, "\r\n")
		lines = slices.DeleteFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, "Date:") || strings.HasPrefix(l, "Connection:") || strings.HasPrefix(l,
				"Transfer-Encoding:")
		})
		slices.Sort(lines[1:])
		parts[i] = strings.Join(lines, "")
	}
	return strings.Join(parts, "")
}

var fetchCases = [][]string{
	{"-s", "$A/"}, {"-s", "$A"}, {"-s", "$HOST/x"}, {"-s", "$A/a/./b/../c?d=e#f"}, {"-s", "$A/a/.."}, {"-s",
		"$A/../../x"}, {"-s", "$A?x=1"},
	{"-s", "$A/1", "$A/2"}, {"-s", "-o", "out", "$A/"}, {"-s", "-O", "$A/d/name?q"}, {"-s", "-O",
		"$A/"}, {"-s", "-o", "1", "-o", "2", "$A/1", "$A/2", "$A/3"},
	{"-so", "out", "$A/"}, {"-s", "--output", "d/e/out", "--create-dirs", "$A/"}, {"-s", "-o",
		"no/such/dir", "$A/"}, {"-s", "-o", "-", "$A/"},
	{"-s", "-o", "out", "$A/empty"}, {"-s", "$A/empty"}, {"-s", "--output-dir", ".", "-o", "out",
		"$A/"},
	{"-s", "$A/status/404"}, {"-s", "-f", "$A/status/404"}, {"-sf", "-o", "out", "$A/status/500"}, {"-s",
		"--fail-with-body", "$A/status/404"}, {"-f", "-s", "-S", "$A/status/403"},
	{"-s", "-f", "$A/status/200"}, {"-s", "$A/status/204"}, {"-sf", "$A/status/404", "$A/ok"}, {"-sf",
		"$A/ok", "$A/status/404"},
	{"-s", "-i", "$A/x"}, {"-s", "-I", "$A/x"}, {"-sI", "-o", "out", "$A/x"}, {"-s", "-D", "heads",
		"$A/x"}, {"-s", "-D", "-", "-o", "out", "$A/x"}, {"-sif", "$A/status/404"},
	{"-s", "$A/redirect?to=/x"}, {"-s", "-L", "$A/redirect?to=/x"}, {"-s", "-L", "$A/redirect?to=x"}, {"-s",
		"-L", "$A/redirect?to=../x"}, {"-s", "-L", "$A/redirect?to=%3Fy=1"},
	{"-s", "-L", "$A/redirect?to=$B/x"}, {"-sL", "-i", "$A/redirect?to=$B/x"}, {"-sL", "-I",
		"$A/redirect?to=/x"}, {"-sL", "$A/redirect?to=/a%20b"},
	{"-sL", "-d", "a=1", "$A/redirect?to=/x"}, {"-sL", "-d", "a=1", "$A/redirect?to=/x&code=307"}, {"-sL",
		"-d", "a=1", "$A/redirect?to=/x&code=303"}, {"-sL", "-d", "a=1",
		"$A/redirect?to=/x&code=308"},
	{"-sL", "-X", "PUT", "-d", "a=1", "$A/redirect?to=/x"}, {"-sL", "-X", "DELETE",
		"$A/redirect?to=/x&code=303"}, {"-sL", "-X", "DELETE", "$A/redirect?to=/x"},
	{"-sL", "-H", "Authorization: s", "-H", "Cookie: c=1", "$A/redirect?to=$B/x"}, {"-sL", "-H",
		"Authorization: s", "$A/redirect?to=/x"},
	{"-sL", "--max-redirs", "3", "$A/loop"}, {"-sL", "$A/loop"}, {"-sLO", "$A/redirect?to=/y"},
	{"-s", "-X", "POST", "$A/"}, {"-s", "-X", "DELETE", "$A/"}, {"-s", "-d", "a=1", "$A/"}, {"-s",
		"-d", "a=1", "-d", "b=2", "$A/"}, {"-s", "-d", "@form", "$A/"},
	{"-s", "--data-binary", "@form", "$A/"}, {"-s", "--data-binary", "@bin", "$A/"}, {"-s",
		"--data-raw", "@form", "$A/"}, {"-s", "-d", "@-", "$A/"}, {"-s", "-d", "", "$A/"},
	{"-s", "--data-urlencode", "a=b c&d", "$A/"}, {"-s", "--data-urlencode", "=x y", "$A/"}, {"-s",
		"--data-urlencode", "x y", "$A/"}, {"-s", "--data-urlencode", "n@form", "$A/"},
	{"-s", "-G", "-d", "a=1", "-d", "b=2", "$A/?c=3"}, {"-s", "-G", "--data-urlencode", "a=b c",
		"$A/p"}, {"-s", "-G", "-I", "-d", "a=1", "$A/p"},
	{"-s", "--json", `{"a":1}`, "$A/"}, {"-s", "--json", "@json", "$A/"}, {"-s", "--json", "{",
		"--json", "}", "$A/"}, {"-s", "--json", "1", "-H", "Accept: text/plain", "$A/"},
	{"-s", "-H", "X-Test: 1", "-H", "x-test: 2", "$A/"}, {"-s", "-H", "Accept:", "$A/"}, {"-s", "-H",
		"X-Test;", "$A/"}, {"-s", "-H", "X-Test:", "$A/"}, {"-s", "-H", "@headers", "$A/"},
	{"-s", "-H", "Content-Type: text/plain", "-d", "x", "$A/"}, {"-s", "-A", "given agent", "$A/"}, {"-s",
		"-e", "from", "$A/"}, {"-s", "-b", "a=b; c=d", "$A/"},
	{"-s", "-T", "bin", "$A/up"}, {"-s", "-T", "-", "$A/up"}, {"-s", "-T", "bin", "-X", "POST",
		"$A/up"},
	{"-s", "-w", "%{http_code}\\n", "$A/"}, {"-s", "-o", "out", "-w", "%{http_code} " +
		"%{size_download} %{content_type} %{num_redirects}%%\\t%{method}", "$A/x"},
	{"-s", "-w", "%{http_code} %{exitcode}", "$GONE/"}, {"-sL", "-w", "%{url_effective} " +
		"%{num_redirects}", "$A/redirect?to=/x"}, {"-s", "-w", "%{redirect_url} %{response_code}",
		"$A/redirect?to=x"},
	{"-s", "-o", "out", "-w", "%{filename_effective} %{scheme} %{http_version} %{url}", "$A"}, {"-sf",
		"-w", "%{http_code} %{errormsg}", "$A/status/404"},
	{"$GONE/"}, {"-s", "$GONE/"}, {"-sS", "$GONE/"}, {"-s", "http://no-such-name.invalid/"}, {"-s",
		"--max-time", "0.3", "$A/slow"}, {"-s", "-m", "1", "$A/slow"}, {"-s", "-o", "out", "-m",
		"0.3", "$A/slow"},
	{"-s", "$A/cut"}, {"-s", "-o", "out", "$A/cut"}, {"-s", "$A/chunks"}, {"-s", "$A/big"}, {"-s",
		"-o", "out", "$A/big"},
	{"-s", "ftp//x:y"}, {"-s", "nosuch://x/"}, {"-s", "http://"}, {"-s", "$A/a b"}, {"--no-such-option"}, {"-m",
		"x", "$A"}, {"-I", "-d", "x", "$A"},
	{"-s", "--url", "$A/x"}, {"-s", "--compressed", "-N", "-4", "$A/x"}, {"-s", "--", "$A/x"},
	{"-s", "--fail-early", "-f", "$A/status/404", "$A/ok"}, {"-s", "-T", "bin", "$A/dir/"}, {"-s",
		"-w", "@form", "$A/x"},
	{"-s", "-o", "/dev/null", "-w", "%{http_code}", "$A/x"}, {"-s", "-D", "/dev/null", "$A/x"}, {"-s",
		"-o", "/dev/null", "$A/empty"},
	{"-s", "-A", "given a", "-A", "given b", "$A/x"}, {"-s", "-A", "", "$A/x"}, {"-s", "-H",
		"User-Agent: given x", "-A", "given y", "$A/x"}, {"-s", "-e", "a", "-e", "b", "$A/x"},
	{"-s", "-b", "a=b", "-b", "c=d", "$A/x"}, {"-s", "-H", "Cookie: z=1", "-b", "a=b", "$A/x"}, {"-sL",
		"-b", "a=b", "$A/redirect?to=/x"},
	{"-s", "-I", "-L", "$A/redirect?to=/x"}, {"-s", "-f", "-i", "-o", "out", "$A/status/404"}, {"-s",
		"-D", "h", "-o", "out", "-L", "$A/redirect?to=/x"}, {"-sL", "--max-redirs", "0",
		"$A/redirect?to=/x"},
	{"-sL", "-T", "bin", "$A/redirect?to=/y"}, {"-sL", "-T", "bin", "$A/redirect?to=/y&code=307"}, {"-s",
		"$A//x//y"}, {"-s", "-H", "Accept: a", "-H", "Accept: b", "$A/x"},
}

// What fetch does otherwise than curl is on purpose: it is written down, and it is still so. Each
// is a command line, its exit code, something that fetch says, and words of docs/fetch-abi.md.
var fetchDifferences = []struct {
	args       []string
	code       int
	says, docs string
}{
	{[]string{"-s", "$A/[1-2]"}, 0, "GET /[1-2]", "URLs are not expanded"},
	{[]string{"-s", "-d", "@missing", "$A/"}, 26, "cannot read missing", "an unreadable file is " +
		"an error"},
	{[]string{"-s", "--data-urlencode", "a@missing", "$A/"}, 26, "cannot read missing", "an unreadable file is an error"},
	{[]string{"-s", "-H", "@missing", "$A/"}, 26, "cannot read missing", "an unreadable file is an error"},
	{[]string{"-sS", "-H", "no colon", "$A/"}, 2, "no header line", "an invalid header"},
	{[]string{"-s", "--silen", "$A/x"}, 2, "no such option", "options are whole words"},
	{[]string{"-s", "--no-include", "$A/x"}, 2, "no such option", "options are whole words"},
	{[]string{"-s", "--retry", "3", "$A/x"}, 2, "no such option", "unsupported flags"},
	{[]string{"-s", "-F", "a=b", "$A/x"}, 2, "no such option", "unsupported flags"},
	{[]string{"-s", "-r", "0-1", "$A/x"}, 2, "no such option", "unsupported flags"},
	{[]string{"-s", "-K", "missing", "$A/x"}, 2, "no such option", "unsupported flags"},
	{[]string{"-s", "-OJ", "$A/x"}, 2, "no such option", "unsupported flags"},
	{[]string{"-s", "-k", "$A/x"}, 2, "checks certificates", "TLS (`-k`)"},
	{[]string{"-s", "-x", "http://127.0.0.1:9", "$A/x"}, 2, "the only way out", "proxies (`-x`)"},
	{[]string{"-s", "$A/{a,b}"}, 0, "GET /%7Ba,b%7D", "URLs are not expanded"},
	{[]string{"-s", "$A/agent"}, 0, "jail-fetch/1.0", "`jail-fetch/1.0`"},
	{[]string{"-o", "/dev/null", "$A/x"}, 0, "", "a progress meter"},
	{[]string{"-w", "%{http_code}", "$A/denied"}, 7, "is not allowed", "the proxy's message on standard error"},
	{[]string{"-sS", "http:///$HOST/x"}, 3, "no host", "too few or too many slashes"},
	{[]string{"-s", " $A/x"}, 1, "", "too few or too many slashes"},
	{[]string{"-sS", "file:///etc/hostname"}, 1, "neither http nor https", "neither http nor https"},
	{[]string{"-sS", "-L", "$A/redirect?to=ftp://x/"}, 1, "neither http nor https", "neither http nor https"},
	{[]string{"-s", "-e", "a;auto", "$A/x"}, 0, `referer="a;auto"`, "`;auto`"},
	{[]string{"-s", "-w", "%{size_header}", "$A/x"}, 0, "unknown --write-out variable", "variables of `-w`"},
	{[]string{"-s", "-u", "a:b", "$A/x"}, 2, "credentials are the proxy's", "credentials (`-u`)"},
}

func TestFetchDifferences(t *testing.T) {
	b := tools(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl to compare with")
	}
	text, err := os.ReadFile("../../docs/fetch-abi.md")
	must(t, err)
	docs := strings.Join(strings.Fields(string(text)), " ")
	one, _ := fetchServers(t)
	for _, c := range fetchDifferences {
		for i, s := range c.args {
			c.args[i] = strings.NewReplacer("$A", one, "$HOST", strings.TrimPrefix(one, "http://")).Replace(s)
		}
		got := b.inJail(t, t.TempDir(), "", append([]string{"fetch"}, c.args...)...)
		want := onHost(t, t.TempDir(), "", append([]string{"curl"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.stdout+got.stderr, c.says) {
			t.Errorf("%q: %d %q %q, want %d and %q", c.args, got.code, got.stdout, got.stderr, c.code, c.says)
		}
		if c.says == "" && got.code == 0 && got.stdout+got.stderr != "" {
			t.Errorf("%q: %q %q, want nothing", c.args, got.stdout, got.stderr)
		}
		if got.code == want.code && got.stdout == want.stdout && got.stderr == want.stderr {
			t.Errorf("%q: fetch does what curl does: %d %q", c.args, got.code, got.stdout)
		}
		if !strings.Contains(docs, c.docs) {
			t.Errorf("%q: the documentation does not say %q", c.args, c.docs)
		}
	}
}

// What curl can and a jail's tool must not is refused, with the reason and before anything is sent.
func TestFetchRefuses(t *testing.T) {
	b := tools(t)
	one, _ := fetchServers(t)
	for says, flags := range map[string][][]string{
		"credentials are the proxy's": {{"-u", "a:b"}, {"--user", "a:b"}, {"-n"}, {"--oauth2-bearer", "x"}, {"--aws-sigv4", "x"}, {"--cert", "x"}, {"--key", "k"}},
		"checks certificates":         {{"-k"}, {"--insecure"}, {"--cacert", "x"}},
		"the only way out":            {{"-x", "http://p"}, {"--proxy", "p"}, {"--resolve", "a:1:b"}, {"--connect-to", "a"}, {"--unix-socket", "s"}, {"--interface", "e"}, {"--noproxy", "*"}},
		"cookies are not kept":        {{"-c", "jar"}, {"-b", "jar"}},
		"follows from the request":    {{"-H", "Host: other"}, {"-H", "Content-Length: 3"}, {"-H", "Transfer-Encoding: chunked"}, {"-H", "Connection: x"}, {"-H", "Upgrade: websocket"}},
		"no header line":              {{"-H", "no colon"}, {"-H", "a b: c"}},
		"one line":                    {{"-H", "X: y\r\nHost: z"}, {"-H", "X: y\nHost: z"}},
		"no upper-case name":          {{"-X", "get"}, {"-X", "CONNECT"}, {"-X", "GET /x"}, {"-X", "A\r\nB"}},
		"more than":                   {{"-H", "X: " + strings.Repeat("y", 61<<10)}, {"-X", strings.Repeat("A", 33)}},
	} {
		for _, f := range flags {
			got := b.inJail(t, t.TempDir(), "", append(append([]string{"fetch"}, f...), one)...)
			if got.code != 2 || got.stdout != "" || !strings.Contains(got.stderr, says) || strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("%.60q: %d %q %q", f, got.code, got.stdout, got.stderr)
			}
		}
	}
	got := b.inJail(t, t.TempDir(), "", "fetch", strings.Replace(one, "://", "://me:secret@", 1))
	if got.code != 3 || !strings.Contains(got.stderr, "credentials are the proxy's") || strings.Contains(got.stdout, "secret") {
		t.Errorf("%+v", got)
	}
}

// A refusal of the proxy is told in its own words, with what to do.
func TestFetchTellsRefusals(t *testing.T) {
	b := tools(t)
	one, _ := fetchServers(t)
	got := b.inJail(t, t.TempDir(), "", "fetch", "-w", "%{http_code}", one+"/denied")
	if got.code != 7 || got.stdout != "000" || !strings.Contains(got.stderr, `is not allowed: "quoted"; do something else`) {
		t.Errorf("%+v", got)
	}
}

// A tool of the bundle that fetches is not started without a fetch proxy; the other tools are. See
// TestFetchCommand of the built programs.
func TestFetchHelp(t *testing.T) {
	b := tools(t)
	got := b.inJail(t, t.TempDir(), "", "fetch", "--help")
	if got.code != 0 || !strings.HasPrefix(got.stdout, "usage: fetch") {
		t.Errorf("%+v", got)
	}
	for _, f := range []string{"-o", "--max-time", "--json", "-w"} {
		if !strings.Contains(got.stdout, f) {
			t.Errorf("the help has no %s", f)
		}
	}
	if v := b.inJail(t, t.TempDir(), "", "fetch", "-V"); v.code != 0 || !strings.Contains(v.stdout, "fetch ") {
		t.Errorf("%+v", v)
	}
}

// Answers that break off, or are none, end with curl's codes and never in a hang.
func TestFetchOfBrokenHosts(t *testing.T) {
	b := tools(t)
	for _, c := range []struct {
		answer string
		code   int
	}{
		{"", 52}, {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", 18}, {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", 18},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			fmt.Fprint(conn, c.answer)
			conn.Close()
		}()
		if got := b.inJail(t, t.TempDir(), "", "fetch", "-s", "http://"+l.Addr().String()); got.code != c.code {
			t.Errorf("%q: %+v", c.answer, got)
		}
		l.Close()
	}
}
