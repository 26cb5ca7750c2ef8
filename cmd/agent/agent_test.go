package agent_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestAgent: an agent works on events, keeps its database as files of its owner, and sleeps.
func TestAgent(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, map[string]string{"agent": profile})
	for _, o := range []owner{root, {1234, "1234"}} {
		t.Run(o.name, func(t *testing.T) {
			dir := state(t, h, o)
			r, ready := wake(t, h, o, request(t, o, dir))
			if ready.Committed != 0 || ready.Error != "" {
				t.Errorf("ready: %+v", ready)
			}
			answers, failed := r.event(1, sql("exec", "CREATE TABLE t (a)"),
				sql("run", "INSERT INTO t VALUES (?), (?)", 1, "x"),
				sql("query", "SELECT a FROM t ORDER BY rowid"), sql("get", "SELECT 1 WHERE 0"))
			if failed != nil {
				t.Fatalf("%+v\n%s", failed, r.output())
			}
			for i, want := range []string{`{}`, `{"changes":2,"lastRowId":2}`,
				`[{"a":1},{"a":"x"}]`, `null`} {
				if answers[i].Error != nil || string(answers[i].Result) != want {
					t.Errorf("call %d: %s, %+v", i, answers[i].Result, answers[i].Error)
				}
			}
			res := r.sleep()
			if res.ExitCode != 0 || res.Error != nil || len(res.Denied) > 0 {
				t.Errorf("%+v\n%s", res, r.output())
			}
			want := "awake: agent:" + o.name +
				`:test team test {"a":1} PUBSUB,STORAGE,AI,HOST`
			if !strings.Contains(r.output(), want) {
				t.Errorf("the guest wrote %q", r.output())
			}
			for name, info := range files(t, dir) {
				if st := info.Sys().(*syscall.Stat_t); st.Uid != o.uid || st.Gid != o.uid {
					t.Errorf("%s belongs to %d:%d", name, st.Uid, st.Gid)
				}
			}
			r, ready = wake(t, h, o, request(t, o, dir))
			if ready.Committed != 1 || len(ready.Left) != 1 || ready.Left[0].Seq != 1 {
				t.Errorf("ready anew: %+v", ready)
			}
			r.sleep()
		})
	}
}
