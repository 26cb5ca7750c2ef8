package supervisor

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/anchor"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// tidyEvery is how often the daemon looks whether the log is older or larger than it is to be, and
// whether a segment can be packed.
const tidyEvery = 10 * time.Minute

// A logKeeper does for the log what no run waits for: it sends its heads off the host, prunes it
// and packs its old segments, as the operator says.
type logKeeper struct {
	stop context.CancelFunc
	done sync.WaitGroup
}

// openLog opens the log as the operator wants it. Settings that cannot be read stop the daemon:
// what they ask for would silently not be done.
func openLog(c config.Config) (*audit.Log, anchor.Settings, error) {
	settings, err := anchor.Read(c.Audit)
	if err != nil {
		return nil, settings, problem.New(problem.Failed, "%w", err).
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
			hint = "without its key nothing can be added to a log, and nothing runs; put the key back, or move the log away to begin another"
		case errors.Is(err, syscall.EROFS):
			hint = "without a log nothing runs; its file system has to be writable"
		}
		return nil, settings, problem.New(problem.Failed, "audit log: %w", err).WithHint(hint)
	}
	return log, settings, nil
}

// keepLog begins to. A daemon of one client leaves it to others: it would hold that client up.
func (s *Supervisor) keepLog(settings anchor.Settings) {
	if s.config.Private {
		return
	}
	var ctx context.Context
	ctx, s.keeper.stop = context.WithCancel(context.Background())
	if len(settings.Anchors) > 0 {
		record := func(e audit.Anchored) error {
			_, err := s.log.Append(context.Background(), audit.Entry{Event: e})
			return err
		}
		k := anchor.Keeper{Log: s.config.LogDir, State: s.config.Anchors(),
			Targets: settings.Anchors, Record: record}
		s.keeper.done.Go(func() { k.Run(ctx) })
	}
	if keep := settings.Keep.Keep(); keep != (audit.Keep{}) || settings.Log.Compress {
		s.keeper.done.Go(func() { s.tidyLog(ctx, keep, settings.Log.Compress) })
	}
}

// tidyLog prunes and packs again and again. What cannot be done now is tried later; a log that is
// damaged is met by the next record, too.
func (s *Supervisor) tidyLog(ctx context.Context, keep audit.Keep, compress bool) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		if keep != (audit.Keep{}) {
			_, err := s.log.Prune(keep)
			if errors.Is(err, audit.ErrClosed) {
				return
			}
			s.config.Log.Check("prune the audit log", err)
		}
		if compress {
			_, err := s.log.Compress(func() bool { return ctx.Err() != nil })
			if errors.Is(err, audit.ErrClosed) {
				return
			}
			s.config.Log.Check("compress the audit log", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// end waits until the last head was sent, or could not be.
func (k *logKeeper) end() {
	if k.stop != nil {
		k.stop()
	}
	k.done.Wait()
}
