package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// An addedRow is one way of a request, or the flush of a record alone.
type addedRow struct {
	name string
	once func() (sample, error)
	sample
}

// addedRows measures what a way adds to a request: one client in a process of its own for each,
// some requests of each in turn, so that load hits all alike.
func addedRows(ways []*way, dir string, rounds int, progress io.Writer) (rows []*addedRow,
	err error) {
	fmt.Fprintf(progress, "bench: fetch: %d rounds of %d requests each way\n", rounds, burst)
	for _, w := range ways {
		if w.floods() || w.name == wayTinyproxy {
			continue
		}
		h, err := w.ownClient("")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, h.end()) }()
		rows = append(rows, &addedRow{name: w.name, once: func() (sample, error) {
			return h.do(order{Clients: 1, Requests: burst})
		}})
	}
	disk, err := os.Create(filepath.Join(dir, "durable"))
	if err != nil {
		return nil, err
	}
	defer disk.Close()
	line := make([]byte, 400)
	rows = append(rows, &addedRow{name: "400 bytes made durable on the log's disk, no fetch",
		once: func() (s sample, err error) {
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
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			if i >= warmUp {
				r.sample = append(r.sample, took...)
			}
		}
	}
	return rows, nil
}

// figures writes the medians as JSON.
func figures(ways []*way, dir string, rounds int, stdout, progress io.Writer) error {
	rows, err := addedRows(ways, dir, rounds, progress)
	if err != nil {
		return err
	}
	var f fetchFigures
	for _, r := range rows {
		switch r.name {
		case wayDirect:
			f.Direct = r.median()
		case wayJail:
			f.Durable = r.median()
		case wayMemory:
			f.Memory = r.median()
		}
	}
	return json.NewEncoder(stdout).Encode(f)
}

// added prints what each way adds to a request.
func added(ways []*way, dir string, rounds int, stdout, progress io.Writer) error {
	rows, err := addedRows(ways, dir, rounds, progress)
	if err != nil {
		return err
	}
	t := &table{head: []string{"one client, one request after the other", "median", "p99",
		"added to direct"}}
	for _, r := range rows {
		more := none
		if r.name != wayDirect && r.name != rows[len(rows)-1].name {
			more = millis(r.median() - rows[0].median())
		}
		t.add(r.name, millis(r.median()), millis(r.percentile(99)), more)
	}
	fmt.Fprintf(stdout,
		"\nWhat a small fetch takes, in milliseconds, over %d rounds of %d requests by each row in turn:\n\n", rounds, burst)
	return t.write(stdout)
}

// warmUp are rounds that are not counted: connections are made in them.
const warmUp = 5

// burst is how many requests a row makes before the next row's turn.
const burst = 5
