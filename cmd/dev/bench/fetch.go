package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// fetchPart is the first argument of a bench in a network of its own, which measures fetches and
// nothing else.
const fetchPart = "fetch"

// How much is asked for by each number of clients.
var fetchLoads = []struct{ clients, requests int }{{1, 1500}, {16, 4000}, {256, 6000}}

const (
	// Bytes of a large answer.
	fetchBig     = 4 << 20
	fetchBigs    = 48 // how many of them
	fetchTunnels = 1000
)

// fetchInside measures fetches in a network namespace, in which public addresses are answered for
// by the bench itself.
func fetchInside(ctx context.Context, bin, only string, rounds int, stdout,
	progress io.Writer) error {
	if fetchtest.Inside() {
		return measureFetch(ctx, bin, only, rounds, stdout, progress)
	}
	cmd := fetchtest.Command(fetchPart, "-bin", bin, "-only", only, "-n", fmt.Sprint(rounds))
	cmd.Stdout, cmd.Stderr = stdout, progress
	return cmd.Run()
}

func measureFetch(ctx context.Context, bin, only string, rounds int, stdout,
	progress io.Writer) (err error) {
	if err := fetchtest.Enter(); err != nil {
		return err
	}
	if err := more(syscall.RLIMIT_NOFILE, 16<<10); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "jail-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	host, err := startHelper("", nil, fetchUpstreamPart)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.end()) }()
	if _, err := host.report(); err != nil { // it is there
		return err
	}
	ways, undo, err := fetchWays(ctx, bin, dir)
	defer func() { err = errors.Join(err, undo()) }()
	if err != nil {
		return err
	}
	if only == figuresOnly {
		return figures(ways, dir, rounds, stdout, progress)
	}
	parts := []struct {
		name string
		do   func() error
	}{
		{"added", func() error { return added(ways, dir, rounds, stdout, progress) }},
		{"load", func() error { return underLoad(ctx, ways, stdout, progress) }},
		{"memory", func() error { return tunnelMemory(ctx, ways, stdout) }},
		{"flood", func() error {
			return flood(ctx, ways, max(rounds/floodParts, 1), stdout, progress)
		}},
	}
	for _, p := range parts {
		if only != "" && only != p.name {
			continue
		}
		if err := p.do(); err != nil {
			return err
		}
	}
	return nil
}

// floodParts: a round of the flood is many requests.
const floodParts = 5

// underLoad measures several clients at once.
func underLoad(ctx context.Context, ways []*way, stdout, progress io.Writer) error {
	results := &table{head: []string{"way to the same host", "clients", "median", "p99",
		"added to direct", "requests/s", "MiB/s"}}
	for _, load := range fetchLoads {
		var direct sample
		for _, w := range ways {
			if w.floods() {
				continue
			}
			fmt.Fprintf(progress, "bench: fetch: %d clients, %s\n", load.clients, w.name)
			s, rate, err := w.small(ctx, load.clients, load.requests)
			if err != nil {
				return fmt.Errorf("%s, %d clients: %w", w.name, load.clients, err)
			}
			speed, err := w.big(ctx, min(load.clients, fetchBigs))
			if err != nil {
				return fmt.Errorf("%s, %d clients: %w", w.name, load.clients, err)
			}
			added := none
			if w.name == wayDirect {
				direct = s
			} else {
				added = millis(s.median() - direct.median())
			}
			results.add(w.name, fmt.Sprint(load.clients), millis(s.median()),
				millis(s.percentile(99)), added, fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.0f",
					speed))
		}
	}
	fmt.Fprintf(stdout,
		"\nFetches, in milliseconds. Small answers of %d bytes over plain HTTP, large ones of %d MiB:\n\n", len(smallAnswer), fetchBig>>20)
	return results.write(stdout)
}

// tunnelMemory measures what open tunnels cost.
func tunnelMemory(ctx context.Context, ways []*way, stdout io.Writer) error {
	memory := &table{head: []string{fmt.Sprintf("%d open tunnels", fetchTunnels), "before",
		"with them", "KiB each"}}
	for _, w := range ways {
		if w.pid == 0 || w.floods() || w.name == wayMemory {
			continue
		}
		if err := w.tunnels(ctx, memory); err != nil {
			return fmt.Errorf("%s, tunnels: %w", w.name, err)
		}
	}
	fmt.Fprintf(stdout, "\nMemory of the proxy's process:\n\n")
	return memory.write(stdout)
}

// more raises a limit of this process.
func more(resource int, n uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(resource, &limit); err != nil {
		return err
	}
	limit.Cur, limit.Max = max(limit.Cur, n), max(limit.Max, n)
	return syscall.Setrlimit(resource, &limit)
}

const (
	upstreamIP   = "93.184.216.34"
	upstreamName = "up.bench.example"
	smallAnswer  = "one line of an answer, as long as many are, so that the head is not all there is of it.\n"
)

// startUpstream answers HTTP at port 80, and holds whatever comes at port 443, after one byte.
func startUpstream() (stop func(), err error) {
	plain, err := net.Listen("tcp", upstreamIP+":80")
	if err != nil {
		return nil, err
	}
	held, err := net.Listen("tcp", upstreamIP+":443")
	if err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	large := make([]byte, fetchBig)
	server := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := []byte(smallAnswer)
			if r.URL.Path == "/big" {
				body = large
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			// A client that goes away is no matter.
			_, _ = w.Write(body)
		})}
	go func() { _ = server.Serve(plain) }() // until it is closed
	go func() {
		for {
			conn, err := held.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := conn.Read(make([]byte, 4096)); err == nil {
					_, _ = conn.Write([]byte("x"))
					_, _ = io.Copy(io.Discard, conn) // until the client goes
				}
			}()
		}
	}()
	return func() { _ = server.Close(); _ = held.Close() }, nil
}

// startTinyproxy starts Debian's tinyproxy, if there is one.
func startTinyproxy(ctx context.Context, dir string) (*exec.Cmd, error) {
	path := find("tinyproxy")
	if path == "" {
		return nil, nil
	}
	conf := filepath.Join(dir, "tinyproxy.conf")
	const text = "Port 8888\nListen 127.0.0.1\nMaxClients 2000\nTimeout 600\nAllow 127.0.0.1\nConnectPort 443\nLogLevel Critical\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, "-d", "-c", conf)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for range 200 {
		if conn, err := net.Dial("tcp", "127.0.0.1:8888"); err == nil {
			return cmd, conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return cmd, errors.New("tinyproxy does not answer")
}
