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

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

const approvalsPart = "approvals"

// manyPending is how many actions a queue holds at most.
const manyPending = 10_000

// queued is the queue of approvals beside a log of its own.
type queued struct {
	queue *approvals.Queue
	log   *audit.Log
}

func openQueue(dir string) (queued, error) {
	l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "log"),
		KeyDir: filepath.Join(dir, "keys")})
	return queued{approvals.New(approvals.Options{Dir: filepath.Join(dir, "queue"), Log: l,
		Permissions: func(c caller.Caller) caller.Permissions {
			return caller.PermissionsOf(syntax.Host{}, c)
		}}), l}, err
}

// propose adds the start of a tool in a run, which waits. A run and a user may have few that wait.
func (q queued) propose(n int) error {
	c := caller.Caller{Connection: "proposes"}
	c.UID = uint32(1000 + n/500)
	err := q.queue.Tools().Ask(context.Background(), c, fmt.Sprintf("run-%d", n/100), "policy",
		approvals.Tool{Name: "core-utils/wc", Digest: "sha256:" + fmt.Sprintf("%064x", n),
			Input: fmt.Sprintf("%064x", n), Args: []string{"-w", "a"}, Directory: "/home/u/project"})
	if problem.From(err).Code == problem.ApprovalPending {
		return nil
	}
	return fmt.Errorf("it does not wait: %w", err)
}

// asks measures approvals: proposing one with others that wait, a decision until the request that
// waits for it may go on, and the memory of as many as may wait.
func asks(ctx context.Context, rounds int, stdout, progress io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "jail-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	q, err := openQueue(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.log.Close()) }()
	fmt.Fprintln(progress, "bench: approvals")
	var proposed, resumed sample
	for n := range rounds {
		start := time.Now()
		if err := q.propose(n); err != nil {
			return err
		}
		proposed = append(proposed, time.Since(start))
		took, err := q.resume(ctx, n)
		if err != nil {
			return err
		}
		resumed = append(resumed, took)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := rounds; n < manyPending; n++ {
		if err := q.propose(n); err != nil {
			return err
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	pending := manyPending - rounds
	t := table{head: []string{"approvals", "median", "p99"}}
	t.add("propose, durable and on record", millis(proposed.median())+" ms",
		millis(proposed.percentile(99))+" ms")
	t.add("decision to the request that waits", millis(resumed.median())+" ms",
		millis(resumed.percentile(99))+" ms")
	t.add(fmt.Sprintf("memory of %d pending", pending),
		fmt.Sprintf("%.1f MiB", float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/(1<<20)), none)
	runtime.KeepAlive(q)
	if err := t.write(stdout); err != nil {
		return err
	}
	load, err := loadAverage()
	fmt.Fprintf(stdout, "\nLoad average at the end: %s.\n", load)
	return err
}

// resume lets a request wait, approves it, and returns how long it took to go on after the decision
// was asked for.
func (q queued) resume(ctx context.Context, n int) (time.Duration, error) {
	url := fmt.Sprintf("https://api.example.com/%d", n)
	type ended struct {
		at  time.Time
		err error
	}
	done := make(chan ended, 1)
	go func() {
		a, err := q.queue.Fetches().Ask(ctx, caller.Caller{Connection: "waits"}, approvals.FetchRequest{
			Run: "waits", Policy: "policy",
			Fetch: approvals.Fetch{Kind: "request", Method: "POST", URL: url}}, time.Minute)
		if err == nil && a.State != approvals.Applied {
			err = fmt.Errorf("action %s is %s", a.ID, a.State)
		}
		done <- ended{time.Now(), err}
	}()
	me := caller.Caller{PID: os.Getpid(), Connection: "decides"}
	for {
		all, err := q.queue.List(me, false)
		if err != nil {
			return 0, err
		}
		for _, a := range all {
			if a.Type != policy.ActionFetch || a.Fetch.URL != url {
				continue
			}
			start := time.Now()
			_, err := q.queue.Decide(ctx, me, a.ID, approvals.DecideRequest{Decision: "approve",
				SHA256: a.SHA256})
			if err != nil {
				return 0, err
			}
			e := <-done
			return e.at.Sub(start), e.err
		}
		select {
		case e := <-done:
			return 0, errors.Join(errors.New("nothing waits"), e.err)
		default:
		}
	}
}
