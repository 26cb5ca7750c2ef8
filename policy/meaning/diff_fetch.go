package meaning

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// fetch compares the answers to one request for each combination of rules that can match: a host,
// port, method and path.
func (d *differ) fetch() {
	hosts := d.hosts()
	seen := map[string]bool{}
	for _, host := range hosts {
		a, b := rulesFor(d.a.Fetch, host), rulesFor(d.b.Fetch, host)
		// Hosts to which the same rules apply are asked about once.
		key := fmt.Sprint(a.Allow, a.Deny, "|", b.Allow, b.Deny)
		if len(a.Allow)+len(b.Allow) == 0 || seen[key] {
			continue
		}
		seen[key] = true
		d.requests(host, a, b)
	}
}

func rulesFor(f policy.Fetch, host string) (out policy.Fetch) {
	for _, r := range f.Allow {
		if r.Host.Match(host) {
			out.Allow = append(out.Allow, r)
		}
	}
	for _, r := range f.Deny {
		if r.Host.Match(host) {
			out.Deny = append(out.Deny, r)
		}
	}
	return out
}

func (d *differ) hosts() []string {
	fresh := "other"
	var bases []string
	add := func(h policy.Host) {
		base := strings.TrimPrefix(strings.TrimPrefix(h.String(), "**."), "*.")
		for slices.Contains(strings.Split(base, "."), fresh) {
			fresh += "-1"
		}
		if !slices.Contains(bases, base) {
			bases = append(bases, base)
		}
	}
	for _, f := range []policy.Fetch{d.a.Fetch, d.b.Fetch} {
		for _, r := range f.Targets() {
			add(r.Host)
		}
	}
	var out []string
	for _, base := range bases {
		if base == "*" || base == "∅" {
			base = "example"
		}
		for _, name := range []string{base, fresh + "." + base, fresh + "." + fresh + "." + base} {
			if _, err := policy.ParseHostName(name); err == nil && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

func (d *differ) requests(host string, a, b policy.Fetch) {
	var paths, methods policy.Globs
	var ports policy.Ports
	sockets := false
	for _, f := range []policy.Fetch{a, b} {
		for _, r := range f.Targets() {
			paths, methods, ports = append(paths, r.Paths...), append(methods, r.Methods...),
				append(ports, r.Ports...)
		}
		sockets = sockets || slices.ContainsFunc(f.Allow,
			func(r policy.FetchRule) bool { return r.WebSocket })
	}
	urls := d.cells(shapeURL, globPatterns(paths))
	for _, port := range portCells(ports) {
		q := policy.Connect{Host: host, Port: port}
		d.request(q)
		tunnel := q
		tunnel.Tunnel = true
		d.request(tunnel)
		for _, method := range methodCells(methods) {
			for _, path := range urls {
				q.Method, q.Path, q.WebSocket = method, path, false
				d.request(q)
				if q.WebSocket = true; sockets {
					d.request(q)
				}
			}
		}
	}
}

// portCells returns a port for each set of ranges that has some port in common.
func portCells(ports policy.Ports) []uint16 {
	var out []uint16
	add := func(p uint16) {
		if p != 0 && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for _, r := range ports {
		add(r.Low)
		// For 65535 this is 0, which is no port.
		add(r.High + 1)
	}
	add(1)
	slices.Sort(out)
	return out
}

func methodCells(methods policy.Globs) []string {
	out := []string{"GET"}
	for _, m := range methods {
		if m.Literal() && !slices.Contains(out, m.String()) {
			out = append(out, m.String())
		}
	}
	other := "OTHER"
	for slices.Contains(out, other) {
		other += "S"
	}
	return append(out, other)
}

func (d *differ) request(q policy.Connect) {
	what := "connect to " + q.Host
	switch {
	case q.Tunnel:
		what = "pass its own TLS unseen to " + q.Host
	case q.WebSocket:
		what = "open a WebSocket to " + q.Host
	case q.Method != "":
		what = "send " + q.Method + " to " + q.Host
	}
	what += " at port " + strconv.Itoa(int(q.Port))
	x, y := d.ask("connect", what, q)
	if !x.Allowed || !y.Allowed || x.Fetch == nil || y.Fetch == nil || q.Method == "" && !q.Tunnel {
		return
	}
	if x.Credential != y.Credential {
		if y.Credential != "" {
			d.add(Wider, "credential", fmt.Sprintf("use the credential %q", y.Credential), y.Rule,
				q)
		}
		if x.Credential != "" {
			d.add(Narrower, "credential", fmt.Sprintf("use the credential %q", x.Credential),
				x.Rule, q)
		}
	}
	d.bounds(q, *x.Fetch, *y.Fetch)
}

// bounds compares the bounds of two rules that grant the same request.
func (d *differ) bounds(q policy.Connect, x, y policy.FetchRule) {
	for _, b := range policy.FetchBoundFields() {
		if m, n := unbounded(*b.At(&x.Bounds)), unbounded(*b.At(&y.Bounds)); m != n {
			d.add(way(n > m), "limit", fmt.Sprintf("use %s of %s at %s, and not %s",
				b.Unit.Format(n), b.Name, q.Host, b.Unit.Format(m)), y.String(), q)
		}
	}
	types := func(r policy.FetchRule) policy.Globs {
		return either(len(r.Types) == 0, policy.MustGlobs("*/*"), r.Types)
	}
	for _, name := range d.cells(shapePair, globPatterns(types(x), types(y))) {
		if a, b := types(x).Match(name), types(y).Match(name); a != b {
			d.add(way(b), "connect", "receive answers of type "+name+" from "+q.Host, y.String(), q)
		}
	}
}
