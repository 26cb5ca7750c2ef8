package detached

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

func newOutputs(t *testing.T) *store {
	t.Helper()
	o, err := openStore(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *store) mustAdd(t *testing.T, id string, uid uint32, begun time.Time) *run {
	t.Helper()
	d, known, err := o.add(about{ID: id, UID: uid, Digest: "x", Started: begun}, true)
	if err != nil || known {
		t.Fatal(known, err)
	}
	return d
}

// What is kept of a run stays if its file cannot be read at a moment, and nobody gets its id.
func TestUnreadRun(t *testing.T) {
	o := newOutputs(t)
	d := o.mustAdd(t, "r1", 7, time.Now())
	if _, err := (writer{d, streamOut}).Write([]byte("one")); err != nil {
		t.Fatal(err)
	}
	s := &Runs{outputs: o}
	if owner, there := s.Owner("r1"); owner == nil || *owner != 7 || !there {
		t.Errorf("before: %v, %v", owner, there)
	}
	file := o.path("r1", "about.json")
	// A directory cannot be read as a file.
	if err := errors.Join(os.Rename(file, file+".kept"), os.Mkdir(file, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.add(about{ID: "r1", UID: 8, Digest: "y"}, false); err == nil {
		t.Error("another run got its id")
	}
	if owner, there := s.Owner("r1"); owner != nil || !there {
		t.Errorf("owner %v, %v", owner, there)
	}
	if text, err := os.ReadFile(o.path("r1", "output")); err != nil || !bytes.Contains(text, []byte("one")) {
		t.Errorf("output %q, %v", text, err)
	}
	if owner, there := s.Owner("none"); owner != nil || there {
		t.Errorf("none: %v, %v", owner, there)
	}
}

// Those who follow a run get what it writes in its order and whole, from before and from
// after.
func TestOutputsFollow(t *testing.T) {
	o := newOutputs(t)
	d := o.mustAdd(t, "r1", 7, time.Now())
	write := func(stream byte, text string) {
		t.Helper()
		if n, err := (writer{d, stream}).Write([]byte(text)); err != nil || n != len(text) {
			t.Fatal(n, err)
		}
	}
	write(streamOut, "one ")
	write(streamErr, "err ")
	var out, errOut bytes.Buffer
	if res, err := o.follow(context.Background(), d.about, d, false, &out, &errOut); res != nil ||
		err != nil || out.String() != "one " || errOut.String() != "err " {
		t.Errorf("so far: %q, %q, %v, %v", &out, &errOut, res, err)
	}
	followed := make(chan string)
	go func() {
		var all bytes.Buffer
		res, err := o.follow(context.Background(), d.about, d, true, &all, &all)
		if err != nil || res == nil || res.ExitCode != 3 {
			t.Errorf("%+v, %v", res, err)
		}
		followed <- all.String()
	}()
	write(streamOut, "two")
	o.finish(d, message.Result{ID: "r1", ExitCode: 3})
	if got := <-followed; got != "one err two" {
		t.Errorf("followed %q", got)
	}
	if _, err := (writer{d, streamOut}).Write([]byte("late")); err == nil {
		t.Error("written after the end")
	}
	if err := d.in.give(t.Context(), []byte("late")); err == nil {
		t.Error("typed after the end")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	live := o.mustAdd(t, "r2", 7, time.Now())
	if _, err := o.follow(ctx, live.about, live, true, io.Discard, io.Discard); !errors.Is(err,
		context.Canceled) {
		t.Errorf("a follower that went: %v", err)
	}
}

// Whose a run is, is kept with it; its id is taken, by whatever is not the same request of the same
// user.
func TestOutputsOwner(t *testing.T) {
	o := newOutputs(t)
	o.mustAdd(t, "r1", 7, time.Now())
	if _, about, err := o.find("r1"); err != nil || about.UID != 7 {
		t.Errorf("%+v, %v", about, err)
	}
	for _, id := range []string{"", "..", "r1/..", "../output/r1", "r2", "."} {
		if _, _, err := o.find(id); err == nil {
			t.Errorf("there is a run %q", id)
		}
	}
	if _, known, err := o.add(about{ID: "r1", UID: 7, Digest: "x"}, false); !known ||
		err != nil {
		t.Errorf("the same: %v, %v", known, err)
	}
	for _, about := range []about{{ID: "r1", UID: 7, Digest: "y"}, {ID: "r1", UID: 8,
		Digest: "x"}} {
		if _, known, err := o.add(about, false); known || err == nil {
			t.Errorf("%+v was taken", about)
		}
	}
	for n := 1; n < maxDetached; n++ {
		o.mustAdd(t, "n"+strings.Repeat("x", n), 7, time.Now())
	}
	var e *problem.Error
	if _, _, err := o.add(about{ID: "more", UID: 7}, false); !errors.As(err, &e) ||
		e.Code != problem.Busy {
		t.Errorf("beyond the bound: %v", err)
	}
	o.mustAdd(t, "others", 8, time.Now())
}

// What could not be kept is missing at the end alone, and the result says so.
func TestOutputsLost(t *testing.T) {
	o := newOutputs(t)
	d := o.mustAdd(t, "run", 7, time.Now())
	kept := d.out
	if _, err := (writer{d, streamOut}).Write([]byte("kept")); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	d.out = full
	if _, err := (writer{d, streamOut}).Write([]byte("lost")); err == nil {
		t.Error("written to a full disk")
	}
	d.out = kept
	if _, err := (writer{d, streamErr}).Write([]byte("later")); err == nil {
		t.Error("written behind what is lost")
	}
	o.finish(d, message.Result{ID: "run"})
	var out bytes.Buffer
	if res, err := o.follow(t.Context(), d.about, nil, true, &out, &out); err != nil ||
		!res.Truncated || out.String() != "kept" {
		t.Errorf("%q, %+v, %v", &out, res, err)
	}
}

// What has ended is kept for so long, and so much of it; what runs is.
func TestOutputsPrune(t *testing.T) {
	o := newOutputs(t)
	now := time.Now()
	for _, r := range []struct {
		id    string
		uid   uint32
		begun time.Time
	}{{"new", 7, now}, {"old", 7, now.Add(-maxKeptAge)}, {"others", 8, now.Add(-maxKeptAge)},
		{"large", 7, now.Add(-time.Hour)}, {"before", 7, now.Add(-2 * time.Hour)}} {
		o.finish(o.mustAdd(t, r.id, r.uid, r.begun), message.Result{ID: r.id})
	}
	o.mustAdd(t, "running", 7, now.Add(-maxKeptAge))
	if err := os.Truncate(o.path("large", "output"), maxKeptBytes); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(o.path("before", "output"), 1); err != nil {
		t.Fatal(err)
	}
	if err := o.prune(7); err != nil {
		t.Fatal(err)
	}
	for id, kept := range map[string]bool{"new": true, "old": false, "others": true, "large": true,
		"before": false, "running": true} {
		if _, err := os.Stat(o.path(id)); (err == nil) != kept {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// What a daemon that was killed left is shown as far as it goes; what is damaged is an error, and
// never more memory than there is in the file.
func TestOutputsDamaged(t *testing.T) {
	o := newOutputs(t)
	for text, want := range map[string]string{"": "", "1\x00\x00\x00\x03abc": "abc",
		"1\x00\x00\x00\x09abc": "abc", "1\x00\x00": "error", "1\xff\xff\xff\xffabc": "error",
		"x\x00\x00\x00\x01a": "error"} {
		d := o.mustAdd(t, "r", 7, time.Now())
		o.forget(d)
		d = o.mustAdd(t, "r", 7, time.Now())
		if err := errors.Join(os.WriteFile(o.path("r", "output"), []byte(text), 0o600),
			d.out.Close()); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		res, err := o.follow(context.Background(), d.about, nil, true, &out, &out)
		if want == "error" {
			if err == nil {
				t.Errorf("%q gave %q", text, &out)
			}
		} else if err != nil || out.String() != want || res.Error == nil ||
			res.ExitCode != problem.ExitFailed {
			t.Errorf("%q gave %q, %+v, %v", text, &out, res, err)
		}
		o.forget(d)
	}
}
