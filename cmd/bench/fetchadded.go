package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// added measures what a way adds to a request: one client in a process of its own for each, some requests of each in turn, so that load hits all alike.
func added(ways []*way, dir string, rounds int, stdout, progress io.Writer) (err error) {
	fmt.Fprintf(progress, "bench: fetch: %d rounds of %d requests each way\n", rounds, burst)
	type row struct {
		name string
		once func() (sample, error)
		sample
	}
	var rows []*row
	for _, w := range ways {
		if w.name == wayOther || w.name == wayTinyproxy {
			continue
		}
		h, err := w.ownClient("")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, h.end()) }()
		rows = append(rows, &row{name: w.name, once: func() (sample, error) {
			return h.do(order{Clients: 1, Requests: burst})
		}})
	}
	disk, err := os.Create(filepath.Join(dir, "durable"))
	if err != nil {
		return err
	}
	defer disk.Close()
	line := make([]byte, 400)
	rows = append(rows, &row{name: "400 bytes made durable on the log's disk, no fetch", once: func() (s sample, err error) {
		for range burst {
			start := time.Now()
			_, err = disk.Write(line)
			err = errors.Join(err, disk.Sync())
			s = append(s, time.Since(start))
		}
		return s, err
	}})
	for i := range rounds + warmUp {
		for _, r := range rows {
			took, err := r.once()
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			if i >= warmUp {
				r.sample = append(r.sample, took...)
			}
		}
	}
	t := &table{head: []string{"one client, one request after the other", "median", "p99", "added to direct"}}
	for _, r := range rows {
		more := none
		if r.name != wayDirect && r.name != rows[len(rows)-1].name {
			more = millis(r.median() - rows[0].median())
		}
		t.add(r.name, millis(r.median()), millis(r.percentile(99)), more)
	}
	fmt.Fprintf(stdout, "\nWhat a small fetch takes, in milliseconds, over %d rounds of %d requests by each row in turn:\n\n", rounds, burst)
	return t.write(stdout)
}

// warmUp are rounds that are not counted: connections are made in them.
const warmUp = 5

// burst is how many requests a row makes before the next row's turn.
const burst = 5

// How long each half of a round of the flood is, in requests of the quiet jail.
const quietRequests = 25

// flood measures one jail's fetches while the clients of another, in a process and a control group of their own as a jail's are, ask without a pause: what
// is granted, and what is refused. Rounds with and without take turns.
func flood(ctx context.Context, ways []*way, rounds int, stdout, progress io.Writer) (err error) {
	fmt.Fprintf(progress, "bench: fetch: a flood, %d rounds of %d requests\n", rounds, quietRequests)
	var quiet, loud *helper
	for _, w := range ways {
		var to **helper
		switch w.name {
		case wayJail:
			to = &quiet
		case wayOther:
			to = &loud
		default:
			continue
		}
		if *to, err = w.ownClient(w.group + ".client"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, (*to).end()) }()
	}
	var alone, granted, refused, computing sample
	for range rounds {
		for _, f := range []struct {
			to *sample
			order
		}{{&alone, order{}}, {&granted, order{Clients: floodClients}}, {&alone, order{}}, {&refused, order{Clients: floodClients, Refused: true}},
			{&computing, order{Clients: runtime.NumCPU(), Computes: true}}} {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if f.Clients > 0 {
				if err := loud.in.Encode(f.order); err != nil {
					return err
				}
				time.Sleep(20 * time.Millisecond) // it is at full speed
			}
			s, err := quiet.do(order{Clients: 1, Requests: quietRequests})
			if err != nil {
				return err
			}
			*f.to = append(*f.to, s...)
			if f.Clients > 0 {
				if _, err := loud.do(order{}); err != nil { // ends the flood
					return fmt.Errorf("the flood: %w", err)
				}
			}
		}
	}
	t := &table{head: []string{"one jail's fetches, one client", "requests", "median", "p99", "p99 to alone"}}
	for _, r := range []struct {
		name string
		sample
	}{{"alone", alone}, {fmt.Sprintf("while %d clients of another jail fetch without a pause", floodClients), granted},
		{fmt.Sprintf("while %d clients of another jail ask for what is refused", floodClients), refused},
		{fmt.Sprintf("while %d threads of another jail compute, and fetch nothing", runtime.NumCPU()), computing}} {
		ratio := float64(r.percentile(99)) / float64(alone.percentile(99))
		t.add(r.name, fmt.Sprint(len(r.sample)), millis(r.median()), millis(r.percentile(99)), fmt.Sprintf("%.2f", ratio))
	}
	fmt.Fprintf(stdout, "\nA flood, in milliseconds:\n\n")
	return t.write(stdout)
}

const floodClients = 32

// ownClient starts a process whose requests go this way.
func (w *way) ownClient(group string) (*helper, error) {
	if w.door == nil {
		return startHelper(group, nil, fetchClientPart, wayDirect)
	}
	return startHelper(group, w.door, fetchClientPart)
}
