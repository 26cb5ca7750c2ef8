package cmd_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// listens has the host's daemon answer on its socket, for programs of any user.
func (h *policyHost) listens() *api.Server {
	h.t.Helper()
	socket := filepath.Join(h.state, "jail.sock")
	l, err := net.Listen("unix", socket)
	if err == nil {
		err = os.Chmod(socket, 0o666)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	srv, done := api.NewServer(h.s, api.Version{Version: config.Version, API: api.Number}, nil),
		make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	h.t.Cleanup(func() {
		if err := errors.Join(srv.Shutdown(context.Background()), <-done); err != nil {
			h.t.Error(err)
		}
	})
	return srv
}

// runsOf are the runs whose records a caller is given; "-" is of none.
func (h *policyHost) runsOf(c caller.Caller, req message.RecordsRequest) string {
	h.t.Helper()
	all, err := h.s.Records().Read(context.Background(), c, req)
	if err != nil {
		h.t.Fatal(err)
	}
	runs := map[string]bool{}
	for r, err := range all {
		if err != nil {
			h.t.Fatal(err)
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
	h := newPolicyHost(t, map[string]string{"ceiling": "policy = 1\n"})
	for _, run := range []struct {
		id  string
		uid uint32
	}{{"roots", 0}, {"strangers", stranger}} {
		c := h.caller(run.uid)
		r := h.s.Run(t.Context(), c, message.Request{ID: run.id, NoWorkspace: true,
			Tool: "true"}, stdio.Streams{In: strings.NewReader("")})
		if r.ExitCode != 0 {
			t.Fatalf("%+v %+v", r, r.Error)
		}
	}
	h.listens()
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
		"a user":              {"", stranger, nil, "strangers", true},
		"a user without runs": {"", friend, nil, "", true},
		"named by number":     {"[permissions.read]\nusers = [\"12346\"]\n", friend, nil, all, false},
		"another is named": {"[permissions.read]\nusers = [\"12346\"]\n", stranger, nil,
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
			h.write("ceiling", "policy = 1\n"+c.ceiling)
			caller := caller.Caller{Caller: asuser.Caller{UID: c.uid, GID: c.uid, Groups: c.groups},
				PID: os.Getpid(), Exe: "test"}
			if got := h.runsOf(caller, message.RecordsRequest{}); got != c.want {
				t.Errorf("the API gives records of %q, want %q", got, c.want)
			}
			if got := h.runsOf(caller,
				message.RecordsRequest{Run: "roots"}); (got == "") != c.notOthers {
				t.Errorf("asked for root's run the API gives %q", got)
			}
			if !slices.Contains([]string{"root", "a user", "named by number", "by group",
				"who may use a profile"}, name) {
				// What the commands show is what the daemon gives.
				return
			}
			command := func(args ...string) outcome {
				return h.run(asMember(h.command(args...), c.uid, c.groups))
			}
			o := command("audit", "query", "--json")
			runs := map[string]bool{}
			for line := range strings.Lines(o.out) {
				var r record
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatalf("%v: %+v", err, o)
				}
				runs[r.Run] = true
			}
			if got := spelt(runs); got != c.want || o.code != 0 {
				t.Errorf("jail audit query gives records of %q, want %q: %d %s", got, c.want,
					o.code, o.err)
			}
			if c.notOthers {
				h.wants(command("audit", "report", "roots"), 127, `no record is of "roots"`)
				return
			}
			h.says(command("audit", "report", "roots"), 0, "roots")
		})
	}
	// A ceiling that cannot be understood does not count: the last one that could does.
	h.write("ceiling", "policy = 1\n")
	if got := h.runsOf(h.caller(friend), message.RecordsRequest{}); got != "" {
		t.Errorf("a ceiling without names lets read %q", got)
	}
	h.write("ceiling", "policy = 1\n[permissions.read]\nusers = [\"12346\"]\nadminister = 1\n")
	if got := h.runsOf(h.caller(friend), message.RecordsRequest{}); got != "" {
		t.Errorf("a broken ceiling lets read %q", got)
	}
}

// asMember makes a command that user's, of these groups.
func asMember(cmd *exec.Cmd, uid uint32, groups []uint32) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid,
		Groups: groups}}
	return cmd
}

// TestOneReadAtATime: the daemon reads the log only once at a time for each user but root, so that no
// user keeps the daemon busy. Another user is not affected, and after the first reading has ended in
// any way, the next may begin.
func TestOneReadAtATime(t *testing.T) {
	h := newPolicyHost(t,
		map[string]string{
			"ceiling": "policy = 1\n[permissions.read]\nusers = [\"12345\", \"12347\"]\n"})
	const friend = 12347
	for range 2 {
		if r := h.s.Run(t.Context(), h.caller(stranger), message.Request{NoWorkspace: true,
			Tool: "true"}, stdio.Streams{In: strings.NewReader("")}); r.ExitCode != 0 {
			t.Fatalf("%+v %+v", r, r.Error)
		}
	}
	busy := func(uid uint32) bool {
		t.Helper()
		all, err := h.s.Records().Read(t.Context(), h.caller(uid), message.RecordsRequest{})
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
		all, err := h.s.Records().Read(t.Context(), h.caller(uid), message.RecordsRequest{})
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
	inside(stranger, func() {
		if !busy(stranger) || busy(friend) || busy(0) {
			t.Error("while one user reads, that one may read again, or another may not")
		}
		inside(friend, func() {
			if !busy(stranger) || !busy(friend) || busy(0) {
				t.Error("two users read, and either may again")
			}
		})
	})
	inside(0, func() {
		if busy(0) || busy(stranger) {
			t.Error("root is in the way")
		}
	})
	if busy(stranger) || busy(friend) {
		t.Error("a reading that has ended is in the way")
	}
}
