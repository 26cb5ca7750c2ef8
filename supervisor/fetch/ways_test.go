package fetch

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// everyHost grants all that a host can be asked for, by every way in.
const everyHost = "[[fetch.allow]]\nhost = \"**.example.com\"\nports = [80, 443]\n" +
	"methods = [\"*\"]\npaths = [\"/**\"]\ntls = \"intercept\"\n" +
	"[[fetch.allow]]\nhost = \"**.opaque.example.org\"\nports = [443]\nmethods = [\"*\"]\n" +
	"paths = [\"/**\"]\ntls = \"opaque\"\n"

// TestFloorByEveryWay: whatever way the name comes in, none of the addresses of the floor is
// dialled (T-201 to T-203, T-235).
func TestFloorByEveryWay(t *testing.T) {
	w := newWorld(t, everyHost+strings.Replace(limits, "requests = 1000", "requests = 100000", 1),
		intercepts)
	addrs := fetchtest.Floor()
	if len(addrs) < 120 {
		t.Errorf("only %d addresses", len(addrs))
	}
	var judges []*fetchtest.Host
	for _, a := range []string{"10.1.2.3", "169.254.169.254", "168.63.129.16", "127.0.0.1",
		"127.0.0.2", fetchtest.Own, "100.100.100.200", "[::1]"} {
		for _, port := range []string{":80", ":443"} {
			judges = append(judges, fetchtest.StartHost(t, a+port, nil, says("secret")))
		}
	}
	ways := map[string]func(name string) string{
		"absolute http": func(n string) string {
			return w.send("GET http://" + n + "/ HTTP/1.1\r\nHost: " + n + "\r\n\r\n")
		},
		"absolute https": func(n string) string {
			return w.send("GET https://" + n + "/ HTTP/1.1\r\nHost: " + n + "\r\n\r\n")
		},
		"intercepted": func(n string) string {
			return w.sendInside(n, 443, "GET / HTTP/1.1\r\nHost: "+n+"\r\n\r\n")
		},
		"opaque": func(n string) string {
			n = strings.TrimSuffix(n, "example.com") + "opaque.example.org"
			return w.send("CONNECT " + n + ":443 HTTP/1.1\r\nHost: " + n + ":443\r\n\r\n")
		},
	}
	for i, a := range addrs {
		base := fmt.Sprintf("n%d.", i)
		answers := []string{a}
		// Beside one that is public.
		if i%3 == 0 {
			answers = []string{upIP, a}
		}
		w.names.Set(base+"example.com", answers)
		w.names.Set(base+"opaque.example.org", answers)
		for way, ask := range ways {
			if out := ask(base + "example.com"); !strings.HasPrefix(out, "HTTP/1.1 403") ||
				!strings.Contains(out, codeFloor) {
				t.Errorf("%s, %s: %.300q", a, way, out)
			}
		}
	}
	for _, j := range judges {
		if got, _, n := j.Took(); n > 0 {
			t.Errorf("%s was dialled and sent %q", j.Addr, got)
		}
	}
	// The host's own addresses are known to the daemon alone, which is asked last.
	intents, _, _ := w.notes.take()
	for _, i := range intents {
		for _, a := range i.Addresses {
			if a != netip.MustParseAddr(fetchtest.Own) && a != netip.MustParseAddr(upIP) {
				t.Errorf("an intent to dial %s", a)
			}
		}
	}
}

// TestBadTargetsByEveryWay: what is no URL, or is denied in any form, is so inside a tunnel or in a
// Host too, and no host hears of it (T-206, T-214, T-220 to T-225, T-228, T-231, T-237).
func TestBadTargetsByEveryWay(t *testing.T) {
	w := newWorld(t,
		"[[fetch.allow]]\nhost = \"*\"\nports = [80, 443]\nmethods = [\"*\"]\npaths = [\"/**\"]\n"+
			"tls = \"intercept\"\n"+
			fmt.Sprintf("[[fetch.deny]]\nhost = \"*\"\npaths = [\"%s\"]\n",
				strings.Join(fetchtest.DenyPaths, `", "`)), intercepts)
	w.names.Set("a.example", []string{upIP})
	config := w.ca.Config(t, time.Now().Add(time.Hour), "a.example")
	plainHost, secure := fetchtest.StartHost(t, upIP+":80", nil, says("hi")), fetchtest.StartHost(t,
		upIP+":443", config, says("hi"))
	refused := func(way, raw, out string) {
		t.Helper()
		if !strings.HasPrefix(out, "HTTP/1.1 400") && !strings.HasPrefix(out, "HTTP/1.1 403") {
			t.Errorf("%s, %q: %.300q", way, raw, out)
		}
	}
	vectors := 0
	for _, text := range slices.Concat(fetchtest.BadTargets, fetchtest.DeniedForms) {
		refused("request line", text, w.send("GET "+text+" HTTP/1.1\r\nHost: a.example\r\n\r\n"))
		vectors++
		if path, ok := strings.CutPrefix(text, "http://a.example/"); ok {
			vectors++
			refused("inside", text,
				w.sendInside("a.example", 443, "GET /"+path+" HTTP/1.1\r\nHost: a.example\r\n\r\n"))
			refused("https", text, w.send("GET https://a.example/"+path+
				" HTTP/1.1\r\nHost: a.example\r\n\r\n"))
			continue
		}
		authority, ok := strings.CutPrefix(text, "http://")
		if !ok || strings.HasPrefix(authority, "/") || authority == "" {
			continue
		}
		authority, _, _ = strings.Cut(authority, "/")
		vectors++
		refused("CONNECT", text, w.send("CONNECT "+authority+
			" HTTP/1.1\r\nHost: a.example\r\n\r\n"))
		refused("CONNECT with a port", text, w.send("CONNECT "+authority+
			":443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n"))
		refused("Host", text, w.send("GET http://a.example/ HTTP/1.1\r\nHost: "+authority+
			"\r\n\r\n"))
		refused("Host inside", text, w.sendInside("a.example", 443, "GET / HTTP/1.1\r\nHost: "+
			authority+"\r\n\r\n"))
	}
	if vectors < 150 {
		t.Errorf("only %d vectors", vectors)
	}
	if asked := w.names.Asked(); len(asked) > 0 {
		t.Errorf("asked for %v", asked)
	}
	for _, h := range []*fetchtest.Host{plainHost, secure} {
		if got, _, n := h.Took(); n > 0 {
			t.Errorf("%s was dialled and sent %q", h.Addr, got)
		}
	}
	// The control.
	if out := w.sendInside("a.example", 443,
		"GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n"); !strings.HasPrefix(out, "HTTP/1.1 200") {
		t.Errorf("%q", out)
	}
	w.forget()
}

// TestSmugglingInside: the same payloads inside a tunnel that the proxy opens (T-239).
func TestSmugglingInside(t *testing.T) {
	w := newWorld(t, anyTo, intercepts)
	w.names.Set(upName, []string{upIP})
	up := fetchtest.StartHost(t, upIP+":443", w.ca.Config(t, time.Now().Add(time.Hour), upName),
		says("hi"))
	tried := 0
	for name, raw := range fetchtest.Smuggled {
		raw = strings.ReplaceAll(raw, "http://up.example.com/", "/")
		if name == "an origin-form target" {
			// It is what belongs here.
			continue
		}
		if !strings.HasPrefix(name, "an unfinished") {
			raw += "GET /second HTTP/1.1\r\nHost: up.example.com\r\n\r\n"
		}
		tried++
		out := w.sendInside(upName, 443, raw)
		if !strings.HasPrefix(out, "HTTP/1.1 4") || len(statusLine.FindAllString(out, -1)) != 1 {
			t.Errorf("%s: answered %q", name, out)
		}
	}
	if _, _, n := up.Took(); n > 0 || tried < 60 {
		t.Errorf("after %d payloads the host has %d connections", tried, n)
	}
	if intents, _, _ := w.notes.take(); len(intents) > 0 {
		t.Errorf("intents: %+v", intents)
	}
	if out := w.sendInside(upName, 443,
		"GET /ok HTTP/1.1\r\nHost: up.example.com\r\n\r\n"); !strings.HasPrefix(out,
		"HTTP/1.1 200") {
		t.Errorf("the control: %q", out)
	}
	w.forget()
}
