package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
)

// Parts of the bench that are processes of their own, as they are in earnest: clients are in jails,
// and hosts are elsewhere.
const (
	fetchClientPart   = "fetch-client"
	fetchUpstreamPart = "fetch-upstream"
)

// An order is what a client is told to do, in JSON on its standard input. One without a number of
// requests is done until the next one comes.
type order struct {
	Clients, Requests int
	// Asks for what the policy denies.
	Refused bool
	// Asks for nothing, and keeps so many processors busy.
	Computes bool
}

// A report is what it did.
type report struct {
	Took  sample
	Error string
}

// deniedHost is what no layer of the bench's policy grants.
const deniedHost = "denied.bench.example"

// fetchClient executes orders until its standard input ends. With proxied, its descriptor 3 is the
// socket of a fetch proxy; else it sends its requests to the host itself.
func fetchClient(stdin io.Reader, stdout io.Writer, proxied bool) error {
	w := &way{host: upstreamIP, dial: dialUpstream}
	if proxied {
		w = &way{host: upstreamName, proxy: true, dial: streams(os.NewFile(3, "fetch socket"))}
	}
	clients := map[int]*http.Client{} // their connections are kept
	orders := make(chan order)
	go func() {
		defer close(orders)
		for in := json.NewDecoder(stdin); ; {
			var o order
			if in.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	for o := range orders {
		if clients[o.Clients] == nil {
			clients[o.Clients] = w.client(o.Clients)
		}
		var stopped atomic.Bool
		done := make(chan report, 1)
		go func() { done <- w.carryOut(clients[o.Clients], o, &stopped) }()
		if o.Requests == 0 {
			<-orders // whatever it says
			stopped.Store(true)
		}
		if err := json.NewEncoder(stdout).Encode(<-done); err != nil {
			return err
		}
	}
	return nil
}

// carryOut does what an order says, without a pause.
func (w *way) carryOut(c *http.Client, o order, stopped *atomic.Bool) (r report) {
	asks := *w
	wants := http.StatusOK
	if o.Refused {
		asks.host, wants = deniedHost, http.StatusForbidden
	}
	var left atomic.Int64
	left.Store(int64(o.Requests))
	var mu sync.Mutex
	var all sync.WaitGroup
	for range o.Clients {
		all.Go(func() {
			for o.Computes && !stopped.Load() {
			}
			for !stopped.Load() && (o.Requests == 0 || left.Add(-1) >= 0) {
				start := time.Now()
				err := asks.getStatus(c, wants)
				took := time.Since(start)
				mu.Lock()
				if err != nil {
					r.Error = err.Error()
					stopped.Store(true)
				}
				if o.Requests > 0 {
					r.Took = append(r.Took, took)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return r
}

func (w *way) getStatus(c *http.Client, wants int) error {
	if wants == http.StatusOK {
		return w.get(context.Background(), c, "/small", int64(len(smallAnswer)))
	}
	resp, err := c.Get("http://" + w.host + "/small")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != wants {
		return fmt.Errorf("status %d, not %d: %w", resp.StatusCode, wants, err)
	}
	return nil
}

func dialUpstream(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", upstreamIP+":80")
}

// fetchUpstream is the host, until its standard input ends.
func fetchUpstream(stdin io.Reader, stdout io.Writer) error {
	if err := more(syscall.RLIMIT_NOFILE, 16<<10); err != nil {
		return err
	}
	stop, err := startUpstream()
	if err != nil {
		return err
	}
	defer stop()
	if _, err := fmt.Fprintln(stdout, "{}"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// A helper is a process of the bench's own program.
type helper struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
	end func() error
}

// startHelper starts a part of the bench; group is the control group that it is alone in, if any.
func startHelper(group string, socket *os.File, args ...string) (*helper, error) {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if socket != nil {
		cmd.ExtraFiles = []*os.File{socket}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &helper{cmd: cmd, in: json.NewEncoder(in), out: json.NewDecoder(out)}
	h.end = func() error {
		err := errors.Join(in.Close(), cmd.Wait())
		if group != "" {
			err = errors.Join(err, cgroup.Remove(path.Join(group, "tool")), cgroup.Remove(group))
		}
		return err
	}
	if group != "" {
		if err := encloseAsJail(group, cmd.Process.Pid); err != nil {
			return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
	}
	return h, nil
}

// encloseAsJail bounds what a client takes of memory and processors as the shipped profiles do a
// jail: memory = "256MiB", cpus = 1.0.
func encloseAsJail(group string, pid int) error {
	c := cgroup.Ceiling{Memory: 256 << 20, PIDs: 64, CPUQuota: 100_000, CPUPeriod: 100_000}
	if err := cgroup.MakeBounded(group, c); err != nil {
		return err
	}
	c.CPUQuota = 0
	return cgroup.Enclose(path.Join(group, "tool"), c, pid)
}

// do gives an order and waits for what came of it.
func (h *helper) do(o order) (sample, error) {
	if err := h.in.Encode(o); err != nil {
		return nil, err
	}
	return h.report()
}

func (h *helper) report() (sample, error) {
	var r report
	if err := h.out.Decode(&r); err != nil {
		return nil, err
	}
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	return slices.Clip(r.Took), nil
}

// fetchHelper is main of such a process.
func fetchHelper(args []string, stdout, stderr io.Writer) int {
	var err error
	if args[0] == fetchUpstreamPart {
		err = fetchUpstream(os.Stdin, stdout)
	} else {
		err = fetchClient(os.Stdin, stdout, len(args) == 1)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}
