package fetch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// vectors says to the proxy what no client would, from inside real jails and by each way in: every
// address of the floor, every URL that is none, and every trick of framing. What the hosts were
// sent is the judge: nothing that was refused, and what was granted to the byte.
// Addresses: T-201 to T-203, T-235; URLs: T-206, T-214, T-220 to T-225, T-228; framing: T-237,
// T-239, T-245, T-246.
func vectors(t *testing.T, in *insideWorld) {
	w := newVectorWorld(t, in)
	for _, way := range []vectorWay{
		{"listener", "stream", w.guest},
		{"functions", "function", w.guest},
		{"loopback", "stream", "./rawfetch"},
		{"interception", "tunnel", "./rawfetch"},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Run("addresses", func(t *testing.T) { w.addresses(t, way) })
			t.Run("targets", func(t *testing.T) { w.targets(t, way) })
			t.Run("framing", func(t *testing.T) { w.framing(t, way) })
		})
	}
}

// A vectorWay is one way in.
type vectorWay struct {
	name string
	way  string // as rawfetch has it
	tool string
}

// A rawSay and a rawHeard are the lines of testdata/rawfetch.
type rawSay struct {
	Name, Way            string
	Raw                  []byte
	Host                 string
	Method, URL, Headers string
	Body                 []byte
	Length               int64
}

type rawHeard struct {
	Name, First     string
	Statuses, Errno int
}

// refused reports whether the proxy, or the way itself, said no.
func (r rawHeard) refused() bool {
	return r.Errno == 28 || r.Errno == 0 && (strings.HasPrefix(r.First, "HTTP/1.1 400 ") ||
		strings.HasPrefix(r.First, "HTTP/1.1 403 "))
}

const vectorPolicy = `policy = 1
name = "vectors"
include = [%q]
[tools]
modules = ["**"]
[limits]
wall = "4m"
cpu_time = "3m"
memory = "1GiB"
output = "8MiB"
[[fetch.allow]]
host = "*"
ports = [80, 443]
methods = ["*"]
paths = ["/**"]
tls = "intercept"
[[fetch.deny]]
host = "*"
paths = ["%s"]
[fetch.limits]
requests = 100000
`

type vectorWorld struct {
	*insideWorld
	up, secure *fetchtest.Host
	private    []*fetchtest.Host
}

func newVectorWorld(t *testing.T, in *insideWorld) *vectorWorld {
	w := &vectorWorld{insideWorld: in}
	for _, base := range []string{"base", "build"} {
		w.write("vectors-"+base+".toml",
			fmt.Sprintf(vectorPolicy, base, strings.Join(fetchtest.DenyPaths, `", "`)))
	}
	w.names.Set("up.example.com", []string{"93.184.216.34"})
	answer := func(c net.Conn) {
		_ = serveOK(c) // until the proxy goes
	}
	w.up = fetchtest.StartHost(t, "93.184.216.34:80", nil, answer)
	w.secure = fetchtest.StartHost(t, "93.184.216.34:443",
		w.ca.Config(t, time.Now().Add(time.Hour), "up.example.com"), answer)
	for _, a := range []string{"10.1.2.3", "169.254.169.254", "168.63.129.16", "127.0.0.1",
		"127.0.0.2", fetchtest.Own, "100.100.100.200", "[::1]"} {
		for _, port := range []string{":80", ":443"} {
			w.private = append(w.private, fetchtest.StartHost(t, a+port, nil, func(c net.Conn) {
				_,
					_ = io.ReadAll(c)
			}))
		}
	}
	return w
}

// hear says it all in one run and returns the answers, and the hosts that nobody may have reached
// are asked.
func (w *vectorWorld) hear(t *testing.T, tool string, all []rawSay) []rawHeard {
	t.Helper()
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	policy := "vectors-build"
	if tool == w.guest {
		policy = "vectors-base"
	}
	cmd := exec.CommandContext(ctx, filepath.Join(w.h.Bin, "jail"), "run", "--json", "--discard",
		"--policy", filepath.Join(w.h.Root, policy+".toml"), "--", tool)
	cmd.Dir, cmd.Env, cmd.Stdin = w.h.Work, w.h.Env, bytes.NewReader(text)
	w.h.T = t
	o := w.h.Run(cmd)
	var r fetchResult
	if err := json.Unmarshal([]byte(o.Out), &r); err != nil || r.ExitCode != 0 || r.Error != nil {
		t.Fatalf("%v: %.2000s%s", err, o.Out, o.Err)
	}
	var heard []rawHeard
	for d := json.NewDecoder(strings.NewReader(r.Stdout)); d.More(); {
		var h rawHeard
		if err := d.Decode(&h); err != nil {
			t.Fatal(err)
		}
		heard = append(heard, h)
	}
	if len(heard) != len(all) {
		t.Fatalf("%d answers to %d", len(heard), len(all))
	}
	for _, p := range w.private {
		if got, _, n := p.Took(); n > 0 {
			t.Errorf("%s was dialled and sent %q", p.Addr, got)
		}
	}
	return heard
}

// quiet says that the granted host heard nothing.
func (w *vectorWorld) quiet(t *testing.T) {
	t.Helper()
	for _, h := range []*fetchtest.Host{w.up, w.secure} {
		if got, _, n := h.Took(); n > 0 {
			t.Errorf("%s was dialled and sent %q", h.Addr, got)
		}
	}
}

func (w *vectorWorld) addresses(t *testing.T, way vectorWay) {
	var all []rawSay
	floor := fetchtest.Floor()
	for i, a := range floor {
		name := fmt.Sprintf("n%d.example.com", i)
		answers := []string{a}
		// Beside one that is public.
		if i%3 == 0 {
			answers = []string{"93.184.216.34", a}
		}
		w.names.Set(name, answers)
		for _, scheme := range []string{"http", "https"} {
			s := rawSay{Name: a + " by " + scheme, Way: way.way, Host: name, Method: "GET",
				URL: scheme + "://" + name + "/"}
			switch {
			case way.way == "tunnel" && scheme == "http":
				continue
			case way.way == "tunnel":
				s.Raw = []byte("GET / HTTP/1.1\r\nHost: " + name + "\r\n\r\n")
			default:
				s.Raw = []byte("GET " + s.URL + " HTTP/1.1\r\nHost: " + name + "\r\n\r\n")
			}
			all = append(all, s)
		}
	}
	for _, r := range w.hear(t, way.tool, all) {
		if !strings.HasPrefix(r.First, "HTTP/1.1 403 ") || !strings.Contains(r.First,
			"address_denied") {
			t.Errorf("%+v", r)
		}
	}
	w.quiet(t)
	if len(floor) < 120 {
		t.Errorf("only %d addresses", len(floor))
	}
}

func (w *vectorWorld) targets(t *testing.T, way vectorWay) {
	var all []rawSay
	raw := func(name, text string) {
		all = append(all,
			rawSay{Name: name, Way: way.way, Host: "up.example.com", Raw: []byte(text)})
	}
	for _, text := range slices.Concat(fetchtest.BadTargets, fetchtest.DeniedForms) {
		// A host that would answer.
		text = strings.ReplaceAll(text, "a.example/", "up.example.com/")
		authority, _, _ := strings.Cut(strings.TrimPrefix(text, "http://"), "/")
		path, onPath := strings.CutPrefix(text, "http://up.example.com/")
		switch way.way {
		case "function":
			all = append(all, rawSay{Name: text, Way: way.way, Method: "GET", URL: text})
		case "tunnel":
			if onPath {
				raw(text, "GET /"+path+" HTTP/1.1\r\nHost: up.example.com\r\n\r\n")
			} else if authority != "" {
				raw(text, "GET "+text+" HTTP/1.1\r\nHost: up.example.com\r\n\r\n")
				raw("Host of "+text, "GET / HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
			}
		default:
			raw(text, "GET "+text+" HTTP/1.1\r\nHost: up.example.com\r\n\r\n")
			if !onPath && strings.HasPrefix(text, "http://") && authority != "" {
				raw("CONNECT "+text, "CONNECT "+authority+
					":443 HTTP/1.1\r\nHost: up.example.com:443\r\n\r\n")
				raw("Host of "+text, "GET http://up.example.com/ HTTP/1.1\r\nHost: "+authority+
					"\r\n\r\n")
			}
		}
	}
	for _, r := range w.hear(t, way.tool, all) {
		if strings.HasPrefix(r.Name, "/relative") && way.way == "tunnel" {
			// It is what belongs there, and the next line says that it is refused.
			continue
		}
		if !r.refused() {
			t.Errorf("%+v", r)
		}
	}
	w.quiet(t)
	if len(all) < 150 {
		t.Errorf("only %d vectors", len(all))
	}
}

// framing says every trick. After each that has an end comes a second request, which must never be
// taken for one.
func (w *vectorWorld) framing(t *testing.T, way vectorWay) {
	if way.way == "function" {
		w.functionFraming(t, way)
		return
	}
	var all []rawSay
	for _, name := range slices.Sorted(maps.Keys(fetchtest.Smuggled)) {
		raw := fetchtest.Smuggled[name]
		if way.way == "tunnel" {
			raw = strings.ReplaceAll(raw, "http://up.example.com/", "/")
		}
		switch {
		case way.way == "tunnel" && name == "an origin-form target", way.tool != w.guest &&
			name == "CONNECT without a grant":
			// What belongs there, and a grant that it has.
			continue
		case !strings.HasPrefix(name, "an unfinished"):
			raw += strings.NewReplacer("http://",
				map[bool]string{true: "", false: "http://"}[way.way == "tunnel"]).Replace(
				"GET http://up.example.com/second HTTP/1.1\r\nHost: up.example.com\r\n\r\n")
		}
		all = append(all,
			rawSay{Name: name, Way: way.way, Host: "up.example.com", Raw: []byte(raw)})
	}
	for _, r := range w.hear(t, way.tool, all) {
		if !strings.HasPrefix(r.First, "HTTP/1.1 4") || r.Statuses != 1 {
			t.Errorf("%+v", r)
		}
	}
	w.quiet(t)
	if len(all) < 60 {
		t.Errorf("only %d payloads", len(all))
	}
	// The control: without the trick it arrives, once, in the form that was decided.
	url := "http://up.example.com/ok"
	if way.way == "tunnel" {
		url = "/ok"
	}
	heard := w.hear(t, way.tool, []rawSay{{Name: "control", Way: way.way, Host: "up.example.com",
		Raw: []byte("GET " + url + " HTTP/1.1\r\nHost: up.example.com\r\n\r\n")}})
	if !strings.HasPrefix(heard[0].First, "HTTP/1.1 200") {
		t.Errorf("the control: %+v", heard[0])
	}
	got, _, _ := w.up.Took()
	_, _, secure := w.secure.Took()
	if way.way == "tunnel" && secure != 1 || way.way != "tunnel" &&
		string(got) != "GET /ok HTTP/1.1\r\nHost: up.example.com\r\n\r\n" {
		t.Errorf("the control: %d connections, %q", secure, got)
	}
}
