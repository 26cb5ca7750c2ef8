package console

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/audit/index"
)

// Dir is the Log in a directory, read with the rights of this process, through its index if there
// is one or one is worth making.
type Dir string

func (d Dir) Page(ctx context.Context, f audit.Filter, before uint64, n int) (audit.Page, error) {
	return index.Search{Dir: string(d)}.Newest(ctx, f, before, n)
}

func (d Dir) Run(ctx context.Context, id string) iter.Seq2[audit.Record, error] {
	return func(yield func(audit.Record, error) bool) {
		for r, err := range (index.Search{Dir: string(d)}).Scan(ctx, audit.Filter{Run: id}) {
			if ctx.Err() != nil {
				yield(audit.Record{}, ctx.Err())
				return
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

func (d Dir) Verify() (audit.Report, error) {
	pub, err := audit.PublicKey(string(d))
	if err != nil {
		return audit.Report{}, fmt.Errorf("no public key can be read beside the log: %w", err)
	}
	return audit.Verify(string(d), pub)
}

func (d Dir) Where() string { return string(d) }

// verifier verifies the log in the background, one check at a time, since a check takes long for a
// long log.
type verifier struct {
	log   Log
	now   func() time.Time
	mu    sync.Mutex
	state verified
}

// verified is the state of the verification.
type verified struct {
	Running bool
	Known   bool      // there is a verdict
	At      time.Time // when its check ended
	Report  audit.Report
	Fault   *audit.Fault // what is wrong
	// why the log could not be checked
	Error string
}

// OK reports whether the last check was complete and found nothing wrong.
func (v verified) OK() bool { return v.Known && v.Fault == nil && v.Error == "" }

func (v *verifier) start() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.state.Running {
		return
	}
	v.state.Running = true
	go func() {
		report, err := v.log.Verify()
		v.mu.Lock()
		defer v.mu.Unlock()
		v.state = verified{Known: true, At: v.now(), Report: report}
		if fault, ok := errors.AsType[*audit.Fault](err); ok {
			v.state.Fault = fault
		} else if err != nil {
			v.state.Error = err.Error()
		}
	}()
}

func (v *verifier) known() verified {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state
}
