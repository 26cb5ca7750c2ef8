package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/confine"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/profiles"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/fetch"
	"github.com/jail-sandbox/jail/supervisor/idrange"
)

// Names of ways to the host.
const (
	wayDirect    = "direct"
	wayJail      = "jail's proxy, every request twice in a durable log"
	wayMemory    = "the same, its log in memory"
	wayTinyproxy = "tinyproxy"
	// These are of the jails that flood.
	wayLoud    = "the proxy of another jail"
	wayBounded = "the proxy of another jail, with the shipped bounds"
)

// A way is how clients reach the host.
type way struct {
	name string
	// As the URL names it.
	host   string
	proxy  bool
	dial   func(context.Context) (net.Conn, error)
	pid    int // of the proxy
	socket *os.File
	group  string // of the proxy
}

// floods reports whether the way is for the flood alone, and in none of the other tables.
func (w *way) floods() bool { return w.name == wayLoud || w.name == wayBounded }

// fetchWays starts all of them. undo is never nil.
func fetchWays(ctx context.Context, bin, dir string) (ways []*way, undo func() error, err error) {
	var undone []func() error
	undo = func() error {
		var err error
		for i := len(undone) - 1; i >= 0; i-- {
			err = errors.Join(err, undone[i]())
		}
		return err
	}
	ways = append(ways, &way{name: wayDirect, host: upstreamIP, dial: dialUpstream})
	disk, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "audit"),
		KeyDir: filepath.Join(dir, "key")})
	if err != nil {
		return nil, undo, err
	}
	undone = append(undone, disk.Close)
	volatile, err := os.MkdirTemp("/dev/shm", "jail-bench-")
	if err != nil {
		return nil, undo, err
	}
	undone = append(undone, func() error { return os.RemoveAll(volatile) })
	memory, err := audit.Open(audit.Options{Dir: filepath.Join(volatile, "audit"),
		KeyDir: filepath.Join(volatile, "key")})
	if err != nil {
		return nil, undo, err
	}
	undone = append(undone, memory.Close)
	slice := fmt.Sprintf("/jail-bench-fetch-%d", os.Getpid())
	if err := cgroup.MakeSlice(slice, cgroup.Ceiling{}); err != nil {
		return nil, undo, err
	}
	undone = append(undone, func() error { return removeSlice(slice) })
	names, err := startResolver()
	if err != nil {
		return nil, undo, err
	}
	bounded, err := shippedBounds()
	if err != nil {
		return nil, undo, err
	}
	for i, v := range []struct {
		name   string
		log    *audit.Log
		policy policy.Fetch
	}{{wayJail, disk, policy.TopFetch()}, {wayMemory, memory, policy.TopFetch()}, {wayLoud, disk,
		policy.TopFetch()}, {wayBounded, disk, bounded}} {
		w, end, err := startJailProxy(ctx, bin, fmt.Sprintf("%s/%d.fetch", slice, i), names,
			v.policy, &recorder{log: v.log, begun: map[uint64]uint64{}})
		if err != nil {
			return nil, undo, err
		}
		w.name = v.name
		undone = append(undone, end)
		ways = append(ways, w)
	}
	tiny, err := startTinyproxy(ctx, dir)
	if tiny != nil {
		undone = append(undone, func() error { return endOf(tiny) })
		ways = append(ways, &way{name: wayTinyproxy, host: upstreamIP, proxy: true,
			pid: tiny.Process.Pid, dial: func(ctx context.Context) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:8888")
			}})
	}
	return ways, undo, err
}

// removeSlice removes an empty control group of the bench's own from every hierarchy.
func removeSlice(path string) (err error) {
	for _, pattern := range []string{path, "/*" + path} {
		dirs, _ := filepath.Glob(cgroup.Root + pattern) // the pattern is well-formed
		for _, dir := range dirs {
			err = errors.Join(err, os.Remove(dir))
		}
	}
	return err
}

func endOf(cmd *exec.Cmd) error {
	err := cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	return err
}

// shippedBounds grants everything, as fast as the shipped profiles let a run go.
func shippedBounds() (policy.Fetch, error) {
	f := policy.TopFetch()
	shipped, err := profiles.Load("")
	if err != nil {
		return f, err
	}
	p, err := shipped.Get("fetch")
	if err != nil {
		return f, err
	}
	f.Rate, f.Limits.Concurrent = p.File.Policy.Fetch.Rate, p.File.Policy.Fetch.Limits.Concurrent
	return f, nil
}

// startJailProxy starts a proxy as the daemon does for a run.
func startJailProxy(ctx context.Context, bin, group string, names netip.AddrPort, all policy.Fetch,
	r fetch.Log) (*way, func() error, error) {
	filter, err := launch.Launcher{Shim: filepath.Join(bin, "jail-shim")}.CompileFilter(ctx,
		confine.Filter())
	if err != nil {
		return nil, nil, err
	}
	ids, err := idrange.Take()
	if err != nil {
		return nil, nil, err
	}
	all.Mode = policy.FetchEnforce
	denied, err := policy.ParseHost(deniedHost)
	if err != nil {
		ids.Release()
		return nil, nil, err
	}
	all.Deny = append(all.Deny, policy.DenyHost(denied))
	p, err := fetch.Start(ctx, fetch.Spec{Exe: filepath.Join(bin, "jaild"), Cgroup: group,
		Record: r, Setup: fetch.Setup{UID: ids.Base, Filter: filter,
			Layers:  []fetch.SetupLayer{{Name: "bench", Source: "built in", Fetch: all}},
			Ceiling: "bench", Servers: []netip.AddrPort{names}}})
	if err != nil {
		ids.Release()
		return nil, nil, err
	}
	w := &way{host: upstreamName, proxy: true, pid: p.PID, dial: streams(p.Door),
		socket: p.Door, group: group}
	return w, func() error {
		err := errors.Join(p.Close(), p.Door.Close())
		ids.Release()
		return err
	}, nil
}

// streams returns a dialler that opens streams on the socket f of a fetch proxy.
func streams(f *os.File) func(context.Context) (net.Conn, error) {
	socket := control.New(f)
	var mu sync.Mutex
	return func(context.Context) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if err := socket.Send(control.OpenStream{}); err != nil {
			return nil, err
		}
		var opened control.Opened
		files, err := socket.Receive(&opened)
		if err != nil || len(files) != 1 {
			return nil, fmt.Errorf("the fetch proxy: %d descriptors, %w", len(files), err)
		}
		defer files[0].Close()
		return net.FileConn(files[0])
	}
}

// A recorder puts on record what the daemon would.
type recorder struct {
	log   *audit.Log
	mu    sync.Mutex
	begun map[uint64]uint64
}

func (r *recorder) IntendAfter(ended []fetch.Outcome, i fetch.Intent) (string, error) {
	var entries []audit.Entry
	for _, o := range ended {
		entries = append(entries, r.ended(o))
	}
	entries = append(entries, audit.Entry{Run: "bench", Event: audit.Fetch{Begun: true,
		Kind: i.Kind, Decision: i.Decision, Layer: i.Layer, Rule: i.Rule,
		Method: i.Method, Scheme: i.Scheme, Host: i.Host, Port: i.Port, Path: i.Path,
		Resolve: i.Resolve}})
	_, seq, err := r.log.AppendAll(entries)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun[i.ID] = seq
	return "", err
}

func (r *recorder) Ended(o fetch.Outcome) {
	// A log that cannot be written fails the next intent.
	_, _ = r.log.Append(context.Background(), r.ended(o))
}

func (r *recorder) ended(o fetch.Outcome) audit.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	seq := r.begun[o.ID]
	delete(r.begun, o.ID)
	return audit.Entry{Run: "bench", Cause: seq, Event: audit.Fetch{Kind: "request",
		Decision: fetch.Allowed, Status: o.Status, In: o.BytesIn, Out: o.BytesOut,
		Address: o.Address, Connect: o.Connect, First: o.First, Total: o.Total, Reused: o.Reused,
		Error: o.Error}}
}

func (r *recorder) Refused(fetch.Refused) {}

// client returns a client that goes this way.
func (w *way) client(clients int) *http.Client {
	t := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return w.dial(ctx)
		}}
	if w.proxy {
		t.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy:80"})
	}
	return &http.Client{Transport: t, Timeout: time.Minute}
}

func (w *way) get(ctx context.Context, c *http.Client, path string, size int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.host+path, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || n != size) {
		err = fmt.Errorf("status %d, %d bytes", resp.StatusCode, n)
	}
	return err
}

// small measures requests for small answers.
func (w *way) small(ctx context.Context, clients, requests int) (s sample, perSecond float64,
	err error) {
	c := w.client(clients)
	defer c.CloseIdleConnections()
	var mu sync.Mutex
	perSecond, err = rate(clients, requests, func() error {
		start := time.Now()
		err := w.get(ctx, c, "/small", int64(len(smallAnswer)))
		took := time.Since(start)
		mu.Lock()
		s = append(s, took)
		mu.Unlock()
		return err
	})
	return s, perSecond, err
}

// big measures large answers, in MiB a second.
func (w *way) big(ctx context.Context, clients int) (float64, error) {
	c := w.client(clients)
	defer c.CloseIdleConnections()
	perSecond, err := rate(clients, fetchBigs, func() error {
		return w.get(ctx, c, "/big", fetchBig)
	})
	return perSecond * fetchBig / (1 << 20), err
}

// tunnels measures what open tunnels cost the proxy.
func (w *way) tunnels(ctx context.Context, t *table) error {
	hello, err := greeting()
	if err != nil {
		return err
	}
	before, err := resident(w.pid)
	if err != nil {
		return err
	}
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range fetchTunnels {
		conn, err := w.dial(ctx)
		if err != nil {
			return err
		}
		open = append(open, conn)
		fmt.Fprintf(conn, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", w.host, w.host)
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("CONNECT: %v, %w", resp, err)
		}
		if _, err := conn.Write(hello); err != nil {
			return err
		}
		// It is open from end to end.
		if _, err := r.ReadByte(); err != nil {
			return err
		}
	}
	with, err := resident(w.pid)
	if err != nil {
		return err
	}
	t.add(w.name, fmt.Sprintf("%d MiB", before>>10), fmt.Sprintf("%d MiB", with>>10),
		fmt.Sprint((with-before)/fetchTunnels))
	return nil
}

// resident is the memory of a process, in KiB.
func resident(pid int) (int64, error) {
	text, err := field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS")
	if err != nil {
		return 0, err
	}
	var n int64
	_, err = fmt.Sscan(text, &n)
	return n, err
}

// greeting is the first record of a client's TLS to the host.
func greeting() ([]byte, error) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	// It gets no answer.
	go func() { _ = tls.Client(client, &tls.Config{ServerName: upstreamName}).Handshake() }()
	head := make([]byte, 5)
	if _, err := io.ReadFull(server, head); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	_, err := io.ReadFull(server, body)
	return append(head, body...), err
}

// startResolver answers every question for an IPv4 address with the host's, and every other with
// nothing.
func startResolver() (netip.AddrPort, error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, err
	}
	address := netip.MustParseAddr(upstreamIP).As4()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := answerTo(buf[:n], address); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return netip.ParseAddrPort("127.0.0.1:" + strconv.Itoa(conn.LocalAddr().(*net.UDPAddr).Port))
}

// answerTo makes an answer (RFC 1035, section 4) of the head and the question of a query.
func answerTo(query []byte, address [4]byte) []byte {
	end := 12
	for end < len(query) && query[end] != 0 {
		end += int(query[end]) + 1
	}
	if end += 5; end > len(query) {
		return nil
	}
	out := append([]byte(nil), query[:end]...)
	copy(out[2:12], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
	if query[end-3] != 1 { // the type
		return out
	}
	out[7] = 1
	return append(append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4), address[:]...)
}
