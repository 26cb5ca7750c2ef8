package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// wall is the time limit of what never ends.
const wall = 100 * time.Millisecond

// run returns a measurement of one run as a client of the API sees it: no process of its own is
// started for it.
func (b *bed) run(req message.Request) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		took, res, err := b.ask(ctx, req, nil)
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("exit code %d", res.ExitCode)
		}
		return took, err
	}
}

func (b *bed) ask(ctx context.Context, req message.Request, in io.Reader) (time.Duration,
	message.Result, error) {
	var out bytes.Buffer
	start := time.Now()
	res, err := b.client.Run(ctx, req, in, &out, &out)
	took := time.Since(start)
	if err == nil && res.Error != nil {
		err = res.Error
	}
	if err != nil {
		err = fmt.Errorf("%w: %.500s", err, out.Bytes())
	}
	return took, res, err
}

// late measures how long after its limit a run that never ends by itself is over, for its client.
// Its start is in it.
func (b *bed) late(req message.Request) func(context.Context) (time.Duration, error) {
	req.Limits = []string{"wall=" + wall.String()}
	return func(ctx context.Context) (time.Duration, error) {
		never, w := io.Pipe()
		defer w.Close()
		took, res, err := b.ask(ctx, req, never)
		if err == nil && res.ExitCode != problem.ExitTime {
			err = fmt.Errorf("exit code %d, want %d", res.ExitCode, problem.ExitTime)
		}
		return took - wall, err
	}
}

func clientSubjects(b *bed) []*subject {
	read := b.request(b.path("trivial.wasm"), nil, "small")
	read.Profile = "readonly"
	return []*subject{
		{name: clientRead, once: b.run(read), bare: bareTrue, bwrap: bwrapTrue, runc: runcTrue},
		{name: clientShadow, once: b.run(b.request(b.path("trivial.wasm"), nil, "small")),
			bare: bareTrue, bwrap: bwrapTrue, runc: runcTrue},
		{name: clientGrep, once: b.run(b.request("grep", []string{"-c", "func", "FILE"}, "small")),
			bare: bareGrep},
		{name: wallTrue, once: b.late(b.request(b.path("spin.wasm"), nil, "small"))},
		{name: wallRead, once: b.late(b.request("cat", nil, "small"))},
		{name: wallSleep, once: b.late(b.request("sleep", []string{"60"}, "small"))},
	}
}

// treeSubjects measure what must not depend on how large a directory is.
func treeSubjects(ctx context.Context, b *bed) ([]*subject, error) {
	store, err := workspace.Open(b.path("store"))
	if err != nil {
		return nil, err
	}
	b.undo = append(b.undo, store.Close)
	var touches, diffs, prepares []*subject
	for i, t := range trees {
		touch := b.request("touch", []string{"new"}, t.name)
		touch.Fate = message.FateDiscard
		touches = append(touches,
			&subject{name: []string{touchFew, touchMany}[i], once: b.run(touch)})

		kept := b.request("touch", nil, t.name)
		kept.ID, kept.Fate = "kept-"+t.name, message.FateKeep
		for n := range changed {
			kept.Args = append(kept.Args, "new"+strconv.Itoa(n))
		}
		if _, err := b.run(kept)(ctx); err != nil {
			return nil, err
		}
		diffs = append(diffs, &subject{name: []string{diffFew, diffMany}[i], once: b.diff(kept.ID)})
		prepares = append(prepares,
			&subject{name: []string{prepFew, prepMany}[i], once: prepare(store, b.path(t.name))})
	}
	return append(append(touches, diffs...), prepares...), nil
}

// changed is how many changes a diff is to find.
const changed = 10

func (b *bed) diff(id string) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		var end *api.ReviewSummary
		for line, err := range b.client.Changes(ctx, id, "") {
			if err != nil {
				return 0, err
			}
			end = line.Summary
		}
		took := time.Since(start)
		if end == nil || end.Total() != changed {
			return 0, fmt.Errorf("diff of %s ends with %+v, want %d changes", id, end, changed)
		}
		return took, nil
	}
}

// prepare measures what a workspace costs by itself, in this process.
func prepare(store *workspace.Store, dir string) func(context.Context) (time.Duration, error) {
	return func(context.Context) (time.Duration, error) {
		source, err := os.Open(dir)
		if err != nil {
			return 0, err
		}
		defer source.Close()
		start := time.Now()
		w, err := store.Prepare(workspace.Spec{ID: "bench", Source: source, Bytes: 512 << 20,
			Inodes: 10_000})
		if err != nil {
			return 0, err
		}
		took := time.Since(start)
		return took, w.Discard()
	}
}

func allSubjects(ctx context.Context, b *bed) ([]*subject, error) {
	all := processSubjects(b)
	runc, err := b.runc(ctx)
	if err != nil {
		return nil, err
	}
	// Behind bwrap, the other peer.
	all = append(all[:3:3], append([]*subject{runc}, all[3:]...)...)
	shadows, err := treeSubjects(ctx, b)
	if err != nil {
		return nil, err
	}
	return append(append(all, clientSubjects(b)...), shadows...), nil
}
