package audit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// writer is another program that writes to the host's log, in segments of few records.
func writer(h *cmdtest.PolicyHost) *audit.Log {
	h.T.Helper()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(h.State, "audit"),
		KeyDir: filepath.Join(h.State, "state", "keys"), SegmentBytes: 3000})
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() {
		if err := l.Close(); err != nil {
			h.T.Error(err)
		}
	})
	return l
}

func put(t *testing.T, l *audit.Log, uid uint32, run string, e audit.Event) uint64 {
	t.Helper()
	seq, err := l.Append(context.Background(),
		audit.Entry{Run: run, Actor: audit.Actor{UID: uid}, Event: e})
	if err != nil {
		t.Error(err)
	}
	return seq
}

var someDenial = audit.Denied{Layer: "wasi", What: "read /etc/shadow"}

var errEnough = errors.New("enough was seen")

// stream follows the log for a caller until each has enough; without after from now on.
func stream(h *cmdtest.PolicyHost, uid uint32, after *uint64, filter message.RecordsRequest,
	begun func(uint64), each func(audit.Record) bool) error {
	ctx, cancel := context.WithTimeout(h.T.Context(), cmdtest.Bound)
	defer cancel()
	return h.S.Records().Follow(ctx, h.Caller(uid), message.EventsRequest{After: after,
		RecordsRequest: filter}, func(after uint64) error {
		begun(after)
		return nil
	}, func(r audit.Record) error {
		if !each(r) {
			return errEnough
		}
		return nil
	})
}

func ignore(uint64) {}

// TestEventsResumed: a reader who is cut off again and again sees each record that it may see once
// and in order, while several programs write and the log goes on from segment to segment; and of
// others' runs nothing.
func TestEventsResumed(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, nil)
	const friend, each = 12346, 80
	var writers, readers sync.WaitGroup
	for _, uid := range []uint32{0, cmdtest.Stranger, friend} {
		l := writer(h)
		writers.Go(func() {
			put(t, l, uid, fmt.Sprint("run-", uid), audit.RunStarted{Tool: "true"})
			for i := range each {
				by := uid
				if i%3 == 0 {
					// Root, with a user's run.
					by = 0
				}
				put(t, l, by, fmt.Sprint("run-", uid), someDenial)
			}
		})
	}
	seen := map[uint32]*[]uint64{0: {}, cmdtest.Stranger: {}, friend: {}}
	for uid, got := range seen {
		readers.Go(func() {
			var last uint64
			for ended := false; !ended; {
				n := 0
				err := stream(h, uid, &last, message.RecordsRequest{}, ignore,
					func(r audit.Record) bool {
						if r.Line == nil {
							return true
						}
						last = r.Seq
						*got = append(*got, last)
						n++
						ended = ended || r.Run == "end" && (uid == 0 || r.Actor.UID == uid)
						return n < 7 && !ended
					})
				if !errors.Is(err, errEnough) {
					t.Errorf("uid %d: %v", uid, err)
					return
				}
			}
		})
	}
	writers.Wait()
	l := writer(h)
	for _, uid := range []uint32{cmdtest.Stranger, friend, 0} {
		put(t, l, uid, "end", someDenial)
	}
	readers.Wait()
	if segments, err := filepath.Glob(filepath.Join(h.State, "audit", "0*.jsonl")); err != nil ||
		len(segments) < 5 {
		t.Errorf("the log has %d segments: %v", len(segments), err)
	}
	for uid, got := range seen {
		var want []uint64
		for r, err := range cmdtest.Must(h.S.Records().Read(t.Context(), h.Caller(uid),
			message.RecordsRequest{}))(t) {
			if err != nil {
				t.Fatal(err)
			}
			if uid != 0 && r.Run != fmt.Sprint("run-", uid) && r.Run != "end" {
				t.Errorf("uid %d reads %s", uid, r.Line)
			}
			want = append(want, r.Seq)
		}
		if n := len(*got); uid == 0 {
			// Root reads what came behind "end", too.
			want = want[:min(n, len(want))]
		}
		if !slices.Equal(*got, want) || len(want) < each {
			t.Errorf("uid %d: the streams gave %d records %v, the log has %v", uid, len(*got), *got,
				want)
		}
	}
}

// TestEventsBegin: without a number a stream has what comes from now on, with one what is behind
// it; it says when all is given that was there, and refuses what it cannot keep.
func TestEventsBegin(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, nil)
	l := writer(h)
	var last uint64
	for range 40 {
		last = put(t, l, cmdtest.Stranger, "old", someDenial)
	}
	for _, uid := range []uint32{0, cmdtest.Stranger} {
		var from uint64
		var got []string
		err := stream(h, uid, nil, message.RecordsRequest{Types: []string{"denied"}},
			func(after uint64) { from = after }, func(r audit.Record) bool {
				if r.Line == nil {
					got = append(got, "all so far")
					put(t, l, cmdtest.Stranger, "new", audit.RunStarted{Tool: "true"})
					put(t, l, cmdtest.Stranger, "new", someDenial)
					return true
				}
				got = append(got, r.Run)
				return false
			})
		if want := []string{"all so far", "new"}; !errors.Is(err, errEnough) || !slices.Equal(got,
			want) || from < last {
			t.Errorf("uid %d, from now on: %v behind %d, want %v: %v", uid, got, from, want, err)
		}
		got = nil
		after := last - 2
		err = stream(h, uid, &after, message.RecordsRequest{Run: "old"}, ignore,
			func(r audit.Record) bool {
				got = append(got, r.Run)
				return r.Line != nil
			})
		if want := []string{"old", "old", ""}; !errors.Is(err, errEnough) || !slices.Equal(got,
			want) {
			t.Errorf("uid %d, behind a record: %q: %v", uid, got, err)
		}
	}
	refused := func(after uint64, code, says string) {
		t.Helper()
		for _, uid := range []uint32{0, cmdtest.Stranger} {
			err := stream(h, uid, &after, message.RecordsRequest{}, ignore,
				func(audit.Record) bool { return false })
			var e *problem.Error
			if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Message, says) {
				t.Errorf("after %d: %v, want %s %q", after, err, code, says)
			}
		}
	}
	refused(100000, problem.Usage, "the log ends with record ")
	pruned, err := l.Prune(audit.Keep{Bytes: 1})
	if err != nil || pruned.Last < 20 {
		t.Fatalf("%+v %v", pruned, err)
	}
	refused(5, problem.NotFound, fmt.Sprintf("records 6 to %d were taken away", pruned.Last))
	// 0 is what there is
	for _, after := range []uint64{0, pruned.Last} {
		var got []uint64
		err = stream(h, 0, &after, message.RecordsRequest{}, ignore, func(r audit.Record) bool {
			got = append(got, r.Seq)
			return false
		})
		if !errors.Is(err, errEnough) || got[0] != pruned.Last+1 {
			t.Errorf("after %d: %v %v", after, got, err)
		}
	}
}

// TestEventsOvertaken: where records are taken away before a slow reader has them, the stream ends
// and says so.
func TestEventsOvertaken(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, nil)
	l := writer(h)
	for range 40 {
		put(t, l, 0, "", someDenial)
	}
	var after, last uint64 = 2, 0
	err := stream(h, 0, &after, message.RecordsRequest{}, ignore, func(r audit.Record) bool {
		if r.Seq == 3 {
			if _, err := l.Prune(audit.Keep{Bytes: 1}); err != nil {
				t.Error(err)
			}
		}
		last = r.Seq
		return true
	})
	var e *problem.Error
	if !errors.As(err, &e) || e.Code != problem.NotFound || !strings.Contains(e.Message,
		fmt.Sprintf("records %d to ", last+1)) {
		t.Errorf("behind record %d: %v", last, err)
	}
}

// TestEventsOfWhom: a stream that reads all for the ceiling's sake ends when the ceiling says so no
// more.
func TestEventsOfWhom(t *testing.T) {
	h := cmdtest.NewPolicyHost(t,
		map[string]string{"ceiling": "policy = 1\n[permissions.read]\nusers = [\"12346\"]\n"})
	l := writer(h)
	const reader = 12346
	var after uint64
	runs, withdrawn := map[string]bool{}, false
	err := stream(h, reader, &after, message.RecordsRequest{}, ignore, func(r audit.Record) bool {
		runs[r.Run] = true
		if r.Line == nil {
			h.Write("ceiling", "policy = 1\n")
			withdrawn = true
		}
		if withdrawn {
			put(t, l, 0, "roots", someDenial)
		}
		return true
	})
	var e *problem.Error
	if !errors.As(err, &e) || e.Code != problem.Refused || !runs["roots"] {
		t.Errorf("%v %v", runs, err)
	}
}

// TestEventsBound: a user has so many streams and no more, which is in nobody else's way.
func TestEventsBound(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, nil)
	var inside func(n int)
	most := 0
	inside = func(n int) {
		err := stream(h, cmdtest.Stranger, nil, message.RecordsRequest{}, ignore,
			func(r audit.Record) bool {
				most = n
				inside(n + 1)
				return false
			})
		var e *problem.Error
		if n > 4 && (!errors.As(err, &e) || e.Code != problem.Busy) || n <= 4 && !errors.Is(err,
			errEnough) {
			t.Errorf("stream %d of a user: %v", n, err)
		}
		for _, uid := range []uint32{0, 12346} {
			if err := stream(h, uid, nil, message.RecordsRequest{}, ignore,
				func(audit.Record) bool { return false }); !errors.Is(err, errEnough) {
				t.Errorf("another's: %v", err)
			}
		}
	}
	inside(1)
	// Runs that have ended do not count.
	inside(1)
	if most != 4 {
		t.Errorf("a user had %d streams", most)
	}
}

// TestEventsCommand: an ordinary user follows the log by the daemon, sees a record when it is
// written, as it stands in the log, and is told when the daemon ends.
func TestEventsCommand(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, nil)
	l := writer(h)
	put(t, l, 0, "roots", audit.RunStarted{Tool: "true"})
	for i := range 12 {
		put(t, l, cmdtest.Stranger, fmt.Sprint("own-", i), someDenial)
	}
	srv := h.Listens()
	by := func(uid uint32, args string) cmdtest.Outcome {
		return h.Run(cmdtest.AsMember(h.Command(append([]string{"audit", "tail"},
			strings.Fields(args)...)...), uid, nil))
	}
	for _, args := range []string{"", "--json", "-n 3", "-n 0", "--after 0", "--after 7 --json",
		"--type run.started", "--run own-3 --layer wasi"} {
		users, roots := by(cmdtest.Stranger, args), by(0, args+" --user 12345")
		if users != roots || users.Code != 0 || strings.Contains(users.Out, "roots") ||
			strings.Contains(users.Out, "own") != (args != "-n 0" && args != "--type run.started") {
			t.Errorf("tail %s shows a user %+v, and root of that user %+v", args, users, roots)
		}
	}
	h.Wants(by(cmdtest.Stranger, "--after 100000"), 2, "the log ends with record")
	cmd := cmdtest.AsMember(h.Command("audit", "tail", "-f", "-n", "1", "--json"), cmdtest.Stranger, nil)
	var errOut strings.Builder
	out, err := cmd.StdoutPipe()
	if cmd.Stderr = &errOut; err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	next := func(run string) {
		t.Helper()
		line, err := lines.ReadString('\n')
		if r, parseErr := audit.ParseRecord([]byte(strings.TrimSuffix(line, "\n"))); err != nil ||
			parseErr != nil || r.Run != run {
			t.Fatalf("%q, want a record of %s: %v %v %s", line, run, err, parseErr, errOut.String())
		}
	}
	next("own-11")
	for i := range 3 {
		put(t, l, 0, "roots", someDenial)
		put(t, l, cmdtest.Stranger, fmt.Sprint("new-", i), someDenial)
		next(fmt.Sprint("new-", i))
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	h.Wants(cmdtest.Outcome{Code: h.ExitCode(cmd, cmd.Wait()), Out: "", Err: errOut.String()}, 125,
		"being ended(.|\n)*after record ")
}

// TestEventsClient: who asks wrongly is told what is wrong; who asks rightly by the client sees
// what the log has.
func TestEventsClient(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, nil)
	h.Listens()
	c, err := api.Dial(t.Context(), filepath.Join(h.State, "jail.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var after uint64
	var want, got []string
	for r, err := range audit.Scan(filepath.Join(h.State, "audit"), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, string(r.Line))
	}
	for r, err := range c.Events(t.Context(), message.EventsRequest{After: &after}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Line == nil {
			break
		}
		got = append(got, string(r.Line))
	}
	if !slices.Equal(got, want) || len(got) == 0 {
		t.Errorf("%q, the log has %q", got, want)
	}
	for _, err := range c.Events(t.Context(),
		message.EventsRequest{RecordsRequest: message.RecordsRequest{Path: "[["}}) {
		var e *problem.Error
		if !errors.As(err, &e) || e.Code != problem.Usage || !strings.HasPrefix(e.Message,
			"path: ") {
			t.Errorf("%v", err)
		}
	}
}
