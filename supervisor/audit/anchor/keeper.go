package anchor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// Status is the state of one target. A file holds it for other processes.
type Status struct {
	Name string `json:"name"`
	To   string `json:"to"`
	// Size is the number of records of the last head that the target accepted.
	Size uint64 `json:"size"`
	// Chain is the hash of that head's last record. It tells logs of equal size apart.
	Chain string `json:"chain,omitempty"`
	// Time is when the target accepted that head.
	Time  time.Time `json:"time"`
	Error string    `json:"error,omitempty"`
	// Since is the time of the first failed try since then.
	Since  time.Time `json:"since,omitzero"`
	Failed int       `json:"failed,omitempty"`
}

// Keeper sends the heads of one log to its targets.
type Keeper struct {
	Log string // directory
	// State is the directory of the status files; created with mode 0700.
	State   string
	Targets []Target
	// Record appends a record that a target started to fail, or accepts heads again. It may be nil.
	Record func(audit.Anchored) error
}

// Run sends each target the newest head every Target.Every, if there are new records, until ctx
// ends, and then a last time.
func (k Keeper) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, t := range k.Targets {
		all.Go(func() {
			tick := time.NewTicker(t.Every.Value)
			defer tick.Stop()
			for {
				// The status file and the log have the error.
				_, _ = k.one(ctx, t)
				select {
				case <-tick.C:
				case <-ctx.Done():
					last, stop := context.WithTimeout(context.WithoutCancel(ctx), lastTry)
					defer stop()
					_, _ = k.one(last, t)
					return
				}
			}
		})
	}
	all.Wait()
}

// lastTry bounds how long the daemon's shutdown waits for its targets.
const lastTry = 3 * time.Second

// Once sends the current head to every target and returns their status. The error joins the errors
// of all targets.
func (k Keeper) Once(ctx context.Context) ([]Status, error) {
	all, errs := make([]Status, len(k.Targets)), make([]error, len(k.Targets))
	var wait sync.WaitGroup
	for i, t := range k.Targets {
		wait.Go(func() { all[i], errs[i] = k.one(ctx, t) })
	}
	wait.Wait()
	return all, errors.Join(errs...)
}

// one sends the newest head to a target, unless the target has it, and writes the target's status.
func (k Keeper) one(ctx context.Context, t Target) (Status, error) {
	s, err := ReadStatus(k.State, t)
	if err != nil {
		return s, err
	}
	h, err := audit.ReadHead(k.Log)
	if errors.Is(err, fs.ErrNotExist) {
		// No record exists yet.
		return s, nil
	}
	if err == nil && h.Size == s.Size && h.Chain == s.Chain && s.Error == "" {
		return s, nil
	}
	var send sender
	if err == nil {
		send, err = open(t, k)
	}
	if err == nil {
		ctx, stop := context.WithTimeout(ctx, sendWithin)
		err = send(ctx, h)
		stop()
	}
	was := s
	if err == nil {
		s = Status{Name: t.Name, To: t.To, Size: h.Size, Chain: h.Chain, Time: time.Now().UTC()}
	} else {
		err = fmt.Errorf("anchor %s: %w", t.Name, err)
		s.Error, s.Failed = err.Error(), s.Failed+1
		if s.Since.IsZero() {
			s.Since = time.Now().UTC()
		}
	}
	if saveErr := k.save(s); saveErr != nil {
		return s, errors.Join(err, saveErr)
	}
	if k.Record != nil && (was.Error == "") != (s.Error == "") {
		err = errors.Join(err, k.Record(audit.Anchored{Name: t.Name, To: t.To, Size: s.Size,
			Error: s.Error, Failed: int64(was.Failed)}))
	}
	return s, err
}

// ReadStatus reads the status of a target from the directory dir. If the target was never tried, or
// its address has changed, only Name and To are set.
func ReadStatus(dir string, t Target) (Status, error) {
	fresh := Status{Name: t.Name, To: t.To}
	text, err := os.ReadFile(filepath.Join(dir, t.Name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, nil
	}
	if err != nil {
		return fresh, err
	}
	var s Status
	if json.Unmarshal(text, &s) != nil || s.To != t.To {
		return fresh, nil
	}
	return s, nil
}

func (k Keeper) save(s Status) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(k.State, s.Name+".json"), append(text, '\n'))
}

// writeFile replaces a file atomically. It creates the directory with mode 0700.
func writeFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, text, 0o600, atomicfile.Volatile)
}
