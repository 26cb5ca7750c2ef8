package agent_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// endless returns rows without an end.
const endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) "

// TestHostileSQL: whatever the guest asks of its database, the event's time, the jail's memory and
// the size of the database bound it, and what was committed before stays.
func TestHostileSQL(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, map[string]string{"agent": profile})
	dir := state(t, h, root)
	req := request(t, root, dir)
	req.Agent.DeadlineMS, req.Agent.Storage = 8000, 4<<20
	r, _ := wake(t, h, root, req)
	seq := uint64(1)
	if _, failed := r.event(seq, sql("exec", "CREATE TABLE t (a); CREATE TABLE keep (a);"+
		"INSERT INTO keep VALUES (42)")); failed != nil {
		t.Fatalf("%+v", failed)
	}
	for _, c := range []struct {
		what, statement string
		// refused is in the error of the statement, after which the event goes on; failed is in the
		// reason why the event failed; neither: the process ends.
		refused, failed string
	}{
		{"another database", "ATTACH '/tmp/x' AS x", "too many attached databases", ""},
		{"a copy", "VACUUM INTO '/tmp/x'", "cannot VACUUM", ""},
		{"a copy, outside of the transaction", "ROLLBACK; VACUUM INTO '/tmp/x'", "",
			"only a checkpoint does"},
		{"another journal", "PRAGMA journal_mode = DELETE", "cannot change out of wal mode", ""},
		{"the schema", "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = 'x'",
			"may not be modified", ""},
		{"a file function", "SELECT load_extension('/tmp/x')", "not authorized", ""},
		{"a large value", "INSERT INTO t VALUES (randomblob(900000000))", "too big", ""},
		{"without end", "INSERT INTO t " + endless + "SELECT 1 FROM c WHERE n < 0", "",
			"the time of the event is over"},
		{"a large database", "PRAGMA max_page_count = 4000000000; INSERT INTO t " + endless +
			"SELECT randomblob(100000) FROM c LIMIT 100000", "", "disk"},
		{"temporary files", "PRAGMA temp_store_directory = '/run/jail/agent';" +
			"CREATE TEMP TABLE x AS " + endless + "SELECT randomblob(100000) AS a FROM c LIMIT 100000",
			"", ""},
		{"a large cache", "PRAGMA cache_size = -4000000000; PRAGMA temp_store = MEMORY;" +
			"CREATE TEMP TABLE y AS " + endless + "SELECT randomblob(1000) AS a FROM c LIMIT 10000000",
			"", ""},
	} {
		seq++
		answers, failed := r.tryEvent(seq, sql("exec", c.statement))
		switch {
		case c.refused != "":
			if failed != nil || len(answers) == 0 || answers[0].Error == nil ||
				!strings.Contains(answers[0].Error.Message, c.refused) {
				t.Errorf("%s: %+v, %+v", c.what, answers, failed)
			}
		case c.failed != "":
			if failed == nil || !strings.Contains(failed.Message, c.failed) {
				t.Errorf("%s: %+v, %+v", c.what, answers, failed)
			}
		default:
			t.Logf("%s: %+v, %+v", c.what, answers, failed)
		}
		var size int64
		for _, info := range files(t, dir) {
			size += info.Size()
		}
		if size > 2*req.Agent.Storage+64<<10 {
			t.Errorf("%s: the files have %d bytes", c.what, size)
		}
		if failed != nil || answers == nil {
			r.kill()
			<-r.result
			r, _ = wake(t, h, root, req)
		}
		seq++
		answers, failed = r.event(seq, sql("get", "SELECT a FROM keep"))
		if failed != nil || string(answers[0].Result) != `{"a":42}` {
			t.Errorf("after %s: %+v, %+v", c.what, answers, failed)
		}
	}
	r.sleep()
}
