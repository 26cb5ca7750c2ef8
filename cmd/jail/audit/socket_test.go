package audit_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// The log that the commands read is that of the daemon that JAIL_SOCKET names, wherever it is, also
// for a user whom only the daemon tells of it.
func TestLogOfTheSocket(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	d.Admit()
	h.Wants(h.Jail("run", "--id", "mine", "--", "true"), 0, "")
	env := slices.DeleteFunc(slices.Clone(h.Env), func(v string) bool {
		return strings.HasPrefix(v, "JAIL_STATE=")
	})
	env = append(env, "JAIL_SOCKET="+d.Socket)
	for _, c := range []struct {
		args []string
		uid  uint32
		code int
		want string
	}{
		{[]string{"audit", "verify"}, 0, 0, "verified "},
		{[]string{"audit", "show", "--run", "mine"}, 0, 0, "run.finished"},
		{[]string{"audit", "key"}, 0, 0, "jail-audit/"},
		{[]string{"audit", "query", "--type", "run.started", "--count"}, cmdtest.Stranger, 0, ""},
		{[]string{"audit", "verify"}, cmdtest.Stranger, 126, "permission denied"},
	} {
		cmd := h.Program(filepath.Join(h.Bin, "jail"), c.args...)
		if c.uid != 0 {
			cmd = cmdtest.As(cmd, c.uid)
		}
		cmd.Env = env
		if o := h.Run(cmd); o.Code != c.code || !strings.Contains(o.Out+o.Err, c.want) ||
			strings.Contains(o.Out, "mine") != (c.want == "run.finished") {
			t.Errorf("%q as %d: %+v", c.args, c.uid, o)
		}
	}
}
