package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
)

// How long each half of a round of the flood is, in requests of the quiet jail.
const quietRequests = 25

const floodClients = 32

// flooders are the clients of two jails, or of none, in processes and control groups of their own
// as a jail's are.
type flooders struct{ quiet, loud *helper }

// flooded is a row: what the quiet client's requests took while the loud ones did something.
type flooded struct {
	name string
	who  *flooders
	loud order // no clients: nothing
	// how long the loud ones go on before it is measured
	first time.Duration
	sample
}

// flood measures one jail's fetches while another's clients ask without a pause, for what is
// granted and for what is refused, and beside them the same of clients that no jail is around,
// which ask the host itself: what this machine does to them is no jail's doing. The rows take
// turns.
func flood(ctx context.Context, ways []*way, rounds int, stdout, progress io.Writer) (err error) {
	fmt.Fprintf(progress, "bench: fetch: a flood, %d rounds of %d requests\n", rounds,
		quietRequests)
	start := func(w *way, group string) *helper {
		if err != nil {
			return nil
		}
		var h *helper
		if h, err = w.ownClient(group); err != nil {
			return nil
		}
		return h
	}
	var jails, bounded, bare flooders
	for _, w := range ways {
		switch w.name {
		case wayDirect:
			bare = flooders{start(w, ""), start(w, "")}
		case wayJail:
			jails.quiet = start(w, w.group+".client")
			// As of a service, whose jails are beside the daemon, which is the bench itself.
			err = errors.Join(err,
				cgroup.MakeSlice(path.Dir(w.group), cgroup.Ceiling{Weight: cgroup.BesideDaemon}))
		case wayLoud:
			jails.loud = start(w, w.group+".client")
		case wayBounded:
			bounded.loud = start(w, w.group+".client")
		}
	}
	bounded.quiet = jails.quiet
	for _, h := range []*helper{jails.quiet, jails.loud, bounded.loud, bare.quiet, bare.loud} {
		if h != nil {
			defer func() { err = errors.Join(err, h.end()) }()
		}
	}
	if err != nil {
		return err
	}
	threads := runtime.NumCPU()
	// They are at full speed.
	const soon = 20 * time.Millisecond
	everything, refused := order{Clients: floodClients}, order{Clients: floodClients, Refused: true}
	rows := []*flooded{
		{name: "alone", who: &jails},
		{fmt.Sprintf("while %d clients of another jail fetch without a pause", floodClients),
			&jails, everything, soon, nil},
		// What a rate lets through at once is through after a second.
		{"the same, with the rate and the number at one time of the shipped profiles", &bounded,
			everything, 1100 * time.Millisecond, nil},
		{fmt.Sprintf("while %d clients of another jail ask for what is refused", floodClients),
			&jails, refused, soon, nil},
		{fmt.Sprintf("while %d threads of another jail compute, and fetch nothing", threads),
			&jails, order{Clients: threads, Computes: true}, soon, nil},
		{name: "no jail anywhere: alone", who: &bare},
		{fmt.Sprintf("no jail anywhere: while %d clients of another process fetch without a pause",
			floodClients), &bare, everything, soon, nil},
	}
	for range rounds {
		for _, r := range rows {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := r.once(); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	t := &table{head: []string{"one client's fetches", "requests", "median", "p99", "p99 to alone"}}
	alone := map[*helper]time.Duration{}
	for _, r := range rows {
		p99 := r.percentile(99)
		if r.loud.Clients == 0 {
			alone[r.who.quiet] = p99
		}
		t.add(r.name, fmt.Sprint(len(r.sample)), millis(r.median()), millis(p99),
			fmt.Sprintf("%.2f", float64(p99)/float64(alone[r.who.quiet])))
	}
	fmt.Fprintf(stdout, "\nA flood, in milliseconds:\n\n")
	return t.write(stdout)
}

// once is a row's part of a round.
func (r *flooded) once() error {
	if r.loud.Clients > 0 {
		if err := r.who.loud.in.Encode(r.loud); err != nil {
			return err
		}
		time.Sleep(r.first)
	}
	took, err := r.who.quiet.do(order{Clients: 1, Requests: quietRequests})
	if err != nil {
		return err
	}
	r.sample = append(r.sample, took...)
	if r.loud.Clients > 0 {
		if _, err := r.who.loud.do(order{}); err != nil { // ends the flood
			return fmt.Errorf("the flood: %w", err)
		}
	}
	return nil
}

// ownClient starts a process whose requests go this way.
func (w *way) ownClient(group string) (*helper, error) {
	if w.socket == nil {
		return startHelper(group, nil, fetchClientPart, wayDirect)
	}
	return startHelper(group, w.socket, fetchClientPart)
}
