package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// runsOf are the runs whose records a caller is given; "-" is of none.
func runsOf(h *cmdtest.PolicyHost, c caller.Caller, req message.RecordsRequest) string {
	h.T.Helper()
	all, err := h.S.Records().Read(context.Background(), c, req)
	if err != nil {
		h.T.Fatal(err)
	}
	runs := map[string]bool{}
	for r, err := range all {
		if err != nil {
			h.T.Fatal(err)
		}
		runs[r.Run] = true
	}
	return spelt(runs)
}

func spelt(runs map[string]bool) string {
	if runs[""] {
		delete(runs, "")
		runs["-"] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(runs)), " ")
}

// TestWhoReadsRecords: root reads all, who the ceiling names reads all, everybody else what is
// their own; so it is by the API, and by the commands of a user.
func TestWhoReadsRecords(t *testing.T) {
	const friend, friends = 12346, 12399
	h := cmdtest.NewPolicyHost(t, map[string]string{"ceiling": "policy = 1\n"})
	for _, run := range []struct {
		id  string
		uid uint32
	}{{"roots", 0}, {"strangers", cmdtest.Stranger}} {
		c := h.Caller(run.uid)
		r := h.S.Run(t.Context(), c, message.Request{ID: run.id, NoWorkspace: true,
			Tool: "true"}, stdio.Streams{In: strings.NewReader("")})
		if r.ExitCode != 0 {
			t.Fatalf("%+v %+v", r, r.Error)
		}
	}
	h.Listens()
	const all = "- roots strangers"
	for name, c := range map[string]struct {
		ceiling string
		uid     uint32
		groups  []uint32
		want    string
		// Is told nothing of others' runs.
		notOthers bool
	}{
		"root":                {"", 0, nil, all, false},
		"a user":              {"", cmdtest.Stranger, nil, "strangers", true},
		"a user without runs": {"", friend, nil, "", true},
		"named by number":     {"[permissions.read]\nusers = [\"12346\"]\n", friend, nil, all, false},
		"another is named": {"[permissions.read]\nusers = [\"12346\"]\n", cmdtest.Stranger, nil,
			"strangers", true},
		"root stays": {"[permissions.read]\nusers = [\"12346\"]\n", 0, nil, all, false},
		"by group": {"[permissions.read]\ngroups = [\"12399\"]\n", friend,
			[]uint32{friends}, all, false},
		"not of the group": {"[permissions.read]\ngroups = [\"12399\"]\n", friend, nil, "", true},
		"by a name that is none": {
			"[permissions.read]\nusers = [\"nosuchuser\"]\ngroups = [\"nosuchgroup\"]\n", friend,
			nil, "", true},
		"by the name of a group": {"[permissions.read]\ngroups = [\"adm\"]\n", friend,
			[]uint32{4}, all, false},
		"nobody is named": {"[permissions.read]\nusers = []\n", friend, nil, "", true},
		"who may use a profile": {"[profiles.default]\nusers = [\"12346\"]\n", friend, nil,
			"", true},
		"a group's number as a user's": {"[permissions.read]\nusers = [\"12399\"]\n", friend,
			[]uint32{friends}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			h.Write("ceiling", "policy = 1\n"+c.ceiling)
			caller := caller.Caller{Caller: asuser.Caller{UID: c.uid, GID: c.uid, Groups: c.groups},
				PID: os.Getpid(), Exe: "test"}
			if got := runsOf(h, caller, message.RecordsRequest{}); got != c.want {
				t.Errorf("the API gives records of %q, want %q", got, c.want)
			}
			if got := runsOf(h, caller,
				message.RecordsRequest{Run: "roots"}); (got == "") != c.notOthers {
				t.Errorf("asked for root's run the API gives %q", got)
			}
			if !slices.Contains([]string{"root", "a user", "named by number", "by group",
				"who may use a profile"}, name) {
				// What the commands show is what the daemon gives.
				return
			}
			command := func(args ...string) cmdtest.Outcome {
				return h.Run(cmdtest.AsMember(h.Command(args...), c.uid, c.groups))
			}
			o := command("audit", "query", "--json")
			runs := map[string]bool{}
			for line := range strings.Lines(o.Out) {
				var r cmdtest.Record
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatalf("%v: %+v", err, o)
				}
				runs[r.Run] = true
			}
			if got := spelt(runs); got != c.want || o.Code != 0 {
				t.Errorf("jail audit query gives records of %q, want %q: %d %s", got, c.want,
					o.Code, o.Err)
			}
			if c.notOthers {
				h.Wants(command("audit", "report", "roots"), 127, `no record is of "roots"`)
				return
			}
			h.Says(command("audit", "report", "roots"), 0, "roots")
		})
	}
	// A ceiling that cannot be understood does not count: the last one that could does.
	h.Write("ceiling", "policy = 1\n")
	if got := runsOf(h, h.Caller(friend), message.RecordsRequest{}); got != "" {
		t.Errorf("a ceiling without names lets read %q", got)
	}
	h.Write("ceiling", "policy = 1\n[permissions.read]\nusers = [\"12346\"]\nadminister = 1\n")
	if got := runsOf(h, h.Caller(friend), message.RecordsRequest{}); got != "" {
		t.Errorf("a broken ceiling lets read %q", got)
	}
}

// TestOneReadAtATime: the daemon reads the log only once at a time for each user but root, so that
// no user keeps the daemon busy. Another user is not affected, and after the first reading has
// ended in any way, the next may begin.
func TestOneReadAtATime(t *testing.T) {
	h := cmdtest.NewPolicyHost(t,
		map[string]string{
			"ceiling": "policy = 1\n[permissions.read]\nusers = [\"12345\", \"12347\"]\n"})
	const friend = 12347
	for range 2 {
		if r := h.S.Run(t.Context(), h.Caller(cmdtest.Stranger), message.Request{NoWorkspace: true,
			Tool: "true"}, stdio.Streams{In: strings.NewReader("")}); r.ExitCode != 0 {
			t.Fatalf("%+v %+v", r, r.Error)
		}
	}
	busy := func(uid uint32) bool {
		t.Helper()
		all, err := h.S.Records().Read(t.Context(), h.Caller(uid), message.RecordsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range all {
			if e, ok := errors.AsType[*problem.Error](err); ok && e.Code == problem.Busy {
				return true
			}
			if err != nil {
				t.Fatal(err)
			}
			return false
		}
		t.Fatal("there are no records")
		return false
	}
	inside := func(uid uint32, do func()) {
		t.Helper()
		all, err := h.S.Records().Read(t.Context(), h.Caller(uid), message.RecordsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range all {
			if err != nil {
				t.Fatal(err)
			}
			do()
			return
		}
	}
	inside(cmdtest.Stranger, func() {
		if !busy(cmdtest.Stranger) || busy(friend) || busy(0) {
			t.Error("while one user reads, that one may read again, or another may not")
		}
		inside(friend, func() {
			if !busy(cmdtest.Stranger) || !busy(friend) || busy(0) {
				t.Error("two users read, and either may again")
			}
		})
	})
	inside(0, func() {
		if busy(0) || busy(cmdtest.Stranger) {
			t.Error("root is in the way")
		}
	})
	if busy(cmdtest.Stranger) || busy(friend) {
		t.Error("a reading that has ended is in the way")
	}
}
