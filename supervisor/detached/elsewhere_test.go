package detached

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// The runs of a daemon that has a successor are no dead ones to that: they run until it has kept
// their results, and can be followed until then.
func TestOutputsElsewhere(t *testing.T) {
	before := newOutputs(t)
	d := before.mustAdd(t, "run", 7, time.Now().Add(-maxKeptAge))
	after, err := openStore(before.dir)
	if err != nil {
		t.Fatal(err)
	}
	s, caller := &Runs{after, Options{Permissions: everyone}}, caller.Caller{}
	caller.UID = 7
	if _, err := (writer{d, streamOut}).Write([]byte("one ")); err != nil {
		t.Fatal(err)
	}
	half := []byte("1\x00\x00\x00\x04tw")
	if _, err := d.out.Write(half); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if res, err := s.Follow(t.Context(), caller, "run", false, &out, io.Discard); res != nil ||
		err != nil || out.String() != "one " {
		t.Errorf("so far: %q, %+v, %v", &out, res, err)
	}
	if info := after.info("run", nil); !info.Running {
		t.Errorf("%+v", info)
	}
	if res := s.Attach(t.Context(), caller, "run", stdio.Streams{Out: io.Discard,
		Err: io.Discard}); res.Error == nil || res.Error.Code != problem.Busy {
		t.Errorf("attached: %+v, %v", res, res.Error)
	}
	if err := after.prune(7); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Wait(ctx, caller, "run"); !errors.Is(err, context.Canceled) {
		t.Errorf("waited: %v", err)
	}
	followed := make(chan string)
	go func() {
		var all bytes.Buffer
		res, err := s.Follow(t.Context(), caller, "run", true, &all, io.Discard)
		if err != nil || res == nil || res.ExitCode != 3 {
			t.Errorf("%+v, %v", res, err)
		}
		followed <- all.String()
	}()
	if _, err := d.out.Write([]byte("o\n")); err != nil {
		t.Fatal(err)
	}
	before.finish(d, message.Result{ID: "run", ExitCode: 3})
	if got := <-followed; got != "one two\n" {
		t.Errorf("followed %q", got)
	}
	if info := after.info("run", nil); info.Running {
		t.Errorf("after its end: %+v", info)
	}
	if err := after.prune(7); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(after.path("run")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("kept after its end: %v", err)
	}
}

// Who asks again for a run that has not begun is told what becomes of it, as who asked first.
func TestDetachAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, req := &Runs{newOutputs(t), Options{Life: lifetime.New()}},
			message.DetachRequest{Request: message.Request{ID: "run", Tool: "true"}}
		for _, refused := range []*problem.Error{nil, {Code: problem.Busy, Message: "no room"}} {
			d, _, err := s.outputs.add(about{ID: "run", Digest: req.Digest(),
				Started: time.Now()}, false)
			if err != nil {
				t.Fatal(err)
			}
			answered := false
			var info message.DetachedInfo
			go func() {
				info, err = s.Start(t.Context(), caller.Caller{}, req)
				answered = true
			}()
			if synctest.Wait(); answered {
				t.Fatalf("%+v, %v while it waits", info, err)
			}
			if refused == nil {
				close(d.started)
			} else {
				d.refused = refused
				s.outputs.forget(d)
			}
			if synctest.Wait(); !answered || (err != nil) != (refused != nil) ||
				info.Running != (refused == nil) {
				t.Errorf("%v, %+v, %v", answered, info, err)
			}
			if refused == nil {
				s.outputs.forget(d)
			}
		}
	})
}

// everyone has the rights that no ceiling gives.
func everyone(c caller.Caller) caller.Permissions {
	return caller.PermissionsOf(syntax.Host{}, c)
}
