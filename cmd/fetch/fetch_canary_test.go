package fetch_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// canary sends credentials of every kind to a host that says them back wherever an answer has room,
// by every way in, and then looks for them: in all that the tools were told, left behind and had in
// memory, in the record, on disk, and in what every process shows of itself. T-262, T-265.
func canary(t *testing.T, in *insideWorld) {
	w := newCanaryWorld(t, in)
	var urls []string
	for _, kind := range canaryKinds {
		for _, path := range []string{"/whole", "/pieces", "/redirect", "/broken"} {
			urls = append(urls, "https://"+kind+".example.com"+path)
		}
	}
	urls = append(urls, "https://bearer.example.com/look")
	guest := func(way string) string {
		var all []rawSay
		for _, u := range urls {
			host := strings.SplitN(u, "/", 4)[2]
			all = append(all, rawSay{Name: u, Way: way, Method: "GET", URL: u,
				Raw: []byte("GET " + u + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n")})
		}
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const each = "for u in %s; do %s $u; done >> all; cat all"
	list := strings.Join(urls, " ")
	for _, c := range []struct {
		name, policy, stdin string
		args                []string
	}{
		{"listener", "canary-base", guest("stream"),
			[]string{"run", "--json", "--discard", "--policy", "$POLICY", "--", w.guest}},
		{"functions", "canary-base", guest("function"),
			[]string{"run", "--json", "--discard", "--policy", "$POLICY", "--", w.guest}},
		{"command", "canary-base", "", []string{"sh", "--keep", "--policy", "$POLICY", "-c",
			fmt.Sprintf(each, list, "fetch -si")}},
		{"loopback", "canary-build", guest("stream"),
			[]string{"run", "--json", "--discard", "--policy", "$POLICY", "--", "./rawfetch"}},
		{"interception", "canary-build", "", []string{"run", "--keep", "--policy", "$POLICY", "--",
			"sh", "-c", fmt.Sprintf(each, list, "curl -sSi") + " 2>&1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "interception" {
				cmdtest.Have(t, "/usr/bin/curl")
			}
			w.h.T = t
			w.looked.take()
			said := w.say(c.policy, c.stdin, c.args...)
			if strings.Count(said, "*****") < len(urls)/3 {
				t.Errorf("little was cut out of the answers: %.3000s", said)
			}
			if showsCanary([]byte(said)) {
				t.Errorf("the tool was told: %s", said)
			}
			if found, memories := w.looked.take(); len(found) > 0 || memories < 2 {
				t.Errorf("found in %q, of %d memories", found, memories)
			}
		})
	}
	w.h.T = t
	if found := filesWithCanary(t, w.h.Root, "secret"); len(found) > 0 {
		t.Errorf("on disk: %q", found)
	}
	shown := w.h.Jail("audit", "show", "--json").Out
	if n := strings.Count(shown, `"credential.used"`); n < 4*len(urls)-8 ||
		showsCanary([]byte(shown)) {
		t.Errorf("%d uses on record: %s", n, shown)
	}
	w.h.Discard(w.h.Kept()...)
	t.Run("control", w.control)
	w.h.T = t
}

// canaryKinds are kinds of credentials, and names of the hosts that get them.
var canaryKinds = []string{"bearer", "basic", "header", "query"}

type canaryWorld struct {
	*insideWorld
	looked hunt
}

func newCanaryWorld(t *testing.T, in *insideWorld) *canaryWorld {
	w := &canaryWorld{insideWorld: in}
	const policy = "policy = 1\nname = \"canary\"\ninclude = [%q]\n[workspace]\naccess = \"shadow\"\ncommit = \"ask\"\n[tools]\nallow = [\"**\"]\nmodules = [\"**\"]\n" +
		"[limits]\nwall = \"2m\"\noutput = \"8MiB\"\nmemory = \"1GiB\"\n"
	rules, hosts := "", []string{}
	for _, kind := range canaryKinds {
		host := kind + ".example.com"
		hosts = append(hosts, host)
		w.names.Set(host, []string{"93.184.216.40"})
		rules += fmt.Sprintf(
			"[[fetch.allow]]\nhost = %q\nports = [443]\nmethods = [\"GET\"]\npaths = [\"/**\"]\ncredential = %q\n", host, kind)
	}
	fetchtest.StartHost(t, "93.184.216.40:443", w.ca.Config(t, time.Now().Add(time.Hour), hosts...),
		w.serve)
	w.write("canary-base.toml", fmt.Sprintf(policy, "base")+rules)
	w.write("canary-build.toml", fmt.Sprintf(policy, "build")+rules)
	return w
}

// serve says the whole request back, as its path has it, and looks at every process where it is
// asked to.
func (w *canaryWorld) serve(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		dump, err := httputil.DumpRequest(req, true)
		if err != nil {
			return
		}
		secret := req.Header.Get("Authorization") + req.Header.Get("X-Key") + req.URL.RawQuery
		head := fmt.Sprintf("X-Said: %s\r\nSet-Cookie: s=%s\r\n", secret, secret)
		switch req.URL.Path {
		case "/look":
			w.looked.processes()
			fallthrough
		case "/whole":
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", head, len(dump),
				dump)
		case "/pieces":
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sTransfer-Encoding: chunked\r\n\r\n", head)
			for len(dump) > 0 {
				n := min(7, len(dump))
				fmt.Fprintf(c, "%x\r\n%s\r\n", n, dump[:n])
				dump = dump[n:]
			}
			fmt.Fprint(c, "0\r\n\r\n")
		case "/redirect":
			fmt.Fprintf(c,
				"HTTP/1.1 302 Found\r\n%sLocation: https://bearer.example.com/next?s=%s\r\nContent-Length: 0\r\n\r\n", head, strings.ReplaceAll(secret, " ", "+"))
		default:
			fmt.Fprintf(c, "HTTP/1.1 %s %s\r\n%s\r\n", secret, secret, head)
			return
		}
	}
}

// say runs jail and returns all that it says.
func (w *canaryWorld) say(policy, stdin string, args ...string) string {
	for i, a := range args {
		if a == "$POLICY" {
			args[i] = filepath.Join(w.h.Root, policy+".toml")
		}
	}
	cmd := w.h.Command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	o := w.h.Run(cmd)
	return o.Out + o.Err
}

// control: a credential that is told to the inside is found there, on disk and among the arguments,
// so that the search could have found one.
func (w *canaryWorld) control(t *testing.T) {
	w.h.T = t
	raw := base64.StdEncoding.EncodeToString(
		[]byte("GET https://bearer.example.com/look HTTP/1.1\r\nHost: bearer.example.com\r\n\r\n"))
	text := `[{"Name":"look","Way":"stream","Raw":"` + raw + `"}]`
	said := w.say("canary-base", text, "run", "--json", "--discard", "--env",
		"PLANTED="+fetchCanary, "--policy", "$POLICY", "--", w.guest)
	found, _ := w.looked.take()
	all := strings.Join(found, "\n")
	for _, want := range []string{"memory of init", "cmdline of jail"} {
		if !strings.Contains(all, want) {
			t.Errorf("a planted credential is not found in the %s, but in %q: %.1000s", want, found,
				said)
		}
	}
	planted := filepath.Join(w.h.Root, "planted")
	if err := os.WriteFile(planted, []byte("x"+fetchCanary), 0o600); err != nil {
		t.Fatal(err)
	}
	found = filesWithCanary(t, w.h.Root, "secret")
	if !strings.Contains(strings.Join(found, "\n"), planted) {
		t.Errorf("a planted credential is not found on disk, but in %q", found)
	}
}
