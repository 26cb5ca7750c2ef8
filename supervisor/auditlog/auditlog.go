// Package auditlog manages a daemon's audit log: it opens the log with the operator's settings,
// adds the names of runs to records, and prunes, compresses and anchors the log.
package auditlog

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/anchor"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/daemonlog"
	"github.com/jail-sandbox/jail/supervisor/metrics"
	"github.com/jail-sandbox/jail/supervisor/names"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// tidyEvery is how often the daemon checks whether to prune the log or compress segments.
const tidyEvery = 10 * time.Minute

// A Log is the audit log. Its methods may be called from several goroutines.
type Log struct {
	log *audit.Log
	// names has the users' names of runs and sessions.
	names *names.Store
	// appended measures how long a record takes to be on disk.
	appended *metrics.Histogram

	waiting  atomic.Int64
	settings anchor.Settings

	// stop ends the goroutines of Keep; done waits for them.
	stop context.CancelFunc
	done sync.WaitGroup
}

// Append appends an entry, with the name of its run, and returns its sequence number once it is on
// disk.
func (l *Log) Append(ctx context.Context, e audit.Entry) (uint64, error) {
	begun := time.Now()
	l.waiting.Add(1)
	l.named(&e)
	seq, err := l.log.Append(ctx, e)
	l.waiting.Add(-1)
	l.appended.Observe(time.Since(begun))
	return seq, err
}

// AppendAll appends several entries and returns the sequence numbers of the first and the last.
func (l *Log) AppendAll(entries []audit.Entry) (first, last uint64, err error) {
	for i := range entries {
		l.named(&entries[i])
	}
	return l.log.AppendAll(entries)
}

// named replaces the ids of run and session in an entry by the users' names, if any, and keeps the
// ids beside them.
func (l *Log) named(e *audit.Entry) {
	if u := l.names.NameOf(e.Run); u.Name != "" {
		e.RunID, e.Run = e.Run, u.Name
	}
	if u := l.names.NameOf(e.Session); u.Name != "" {
		e.SessionID, e.Session = e.Session, u.Name
	}
}

// Extent returns the sequence numbers of the first record that is kept and of the last one on disk.
// In an empty log first is larger.
func (l *Log) Extent() (first, last uint64, err error) { return l.log.Extent() }

// Waiting returns how many calls of Append are under way.
func (l *Log) Waiting() int { return int(l.waiting.Load()) }

// Open opens the log with the operator's settings. It fails if they cannot be read, so that no
// setting is silently ignored.
func Open(c config.Config, names *names.Store, appended *metrics.Histogram) (*Log, error) {
	settings, err := anchor.Read(c.Audit)
	if err != nil {
		return nil, problem.New(problem.Failed, "%w", err).
			WithHint("correct it, or take it away to have the defaults")
	}
	log, err := audit.Open(audit.Options{Dir: c.LogDir, KeyDir: filepath.Join(c.StateDir, "keys"),
		SegmentBytes:    settings.Log.SegmentSize.Value,
		SegmentTime:     settings.Log.SegmentTime.Value,
		CheckpointEvery: settings.Log.Checkpoint.Value})
	if err != nil {
		hint := "without a log nothing runs; make room, or see `jail audit verify`"
		switch {
		case errors.Is(err, audit.ErrKey):
			hint = "without its key nothing can be added to a log, and nothing runs; put the key " +
				"back, or move the log away to begin another"
		case errors.Is(err, syscall.EROFS):
			hint = "without a log nothing runs; its file system has to be writable"
		}
		return nil, problem.New(problem.Failed, "audit log: %w", err).WithHint(hint)
	}
	return &Log{log: log, names: names, appended: appended, settings: settings}, nil
}

// Keep starts the background work on the log as the settings say: it sends the log's heads off the
// host, prunes the log and compresses old segments. A daemon for one client does not call it, since
// that would delay the client.
func (l *Log) Keep(c config.Config) {
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	settings := l.settings
	if len(settings.Anchors) > 0 {
		record := func(e audit.Anchored) error {
			_, err := l.Append(context.Background(), audit.Entry{Event: e})
			return err
		}
		k := anchor.Keeper{Log: c.LogDir, State: c.Anchors(), Targets: settings.Anchors,
			Record: record}
		l.done.Go(func() { k.Run(ctx) })
	}
	if keep := settings.Keep.Keep(); keep != (audit.Keep{}) || settings.Log.Compress {
		l.done.Go(func() { l.tidy(ctx, keep, c.Log) })
	}
}

// tidy prunes and compresses the log every tidyEvery until ctx ends. Errors are logged, and the
// work is tried again.
func (l *Log) tidy(ctx context.Context, keep audit.Keep, log *daemonlog.Log) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		if keep != (audit.Keep{}) {
			_, err := l.log.Prune(keep)
			if errors.Is(err, audit.ErrClosed) {
				return
			}
			log.Check("prune the audit log", err)
		}
		if l.settings.Log.Compress {
			_, err := l.log.Compress(func() bool { return ctx.Err() != nil })
			if errors.Is(err, audit.ErrClosed) {
				return
			}
			log.Check("compress the audit log", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close closes the log and waits until sending the last head is done or has failed.
func (l *Log) Close() error {
	err := l.log.Close()
	if l.stop != nil {
		l.stop()
	}
	l.done.Wait()
	return err
}
