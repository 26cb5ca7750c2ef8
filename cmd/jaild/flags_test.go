package main_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// The daemons refuse a wrong command line in one sentence, with what to do about it.
func TestFlags(t *testing.T) {
	h := cmdtest.New(t)
	for _, name := range []string{"jaild", "jail-agentd"} {
		path := filepath.Join(h.Bin, name)
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"--nosuch"}, "flag provided but not defined: -nosuch"},
			{[]string{"extra"}, `argument "extra": there are only flags`},
			{[]string{"--state"}, "flag needs an argument: -state"},
			{[]string{"--state", ""}, "--state: the value is empty"},
			{[]string{"--socket="}, "--socket: the value is empty"},
			{[]string{"--until-idle", "soon"}, `invalid value "soon" for flag -until-idle`},
		} {
			o := h.Run(h.Program(path, c.args...))
			if o.Code != 2 || o.Out != "" || !strings.HasPrefix(o.Err, name+": error: "+c.want) ||
				!strings.HasSuffix(o.Err, "\n"+name+": hint: "+name+" --help\n") ||
				strings.Count(o.Err, "\n") != 2 {
				t.Errorf("%s %q: %+v", name, c.args, o)
			}
		}
		if o := h.Run(h.Program(path, "--help")); o.Code != 0 || o.Err != "" ||
			!strings.Contains(o.Out, "\nusage: "+name+" ") {
			t.Errorf("%s --help: %+v", name, o)
		}
	}
	o := h.Run(h.Program(filepath.Join(h.Bin, "jaild"), "--config", "nosuch.toml"))
	if o.Code != 127 || o.Err != "jaild: error: --config nosuch.toml: no such file\n" {
		t.Errorf("a file of settings that is missing: %+v", o)
	}
}

// The socket is that of --socket, else that of JAIL_SOCKET, also where --state says where the rest
// is.
func TestSocketOfTheEnvironment(t *testing.T) {
	h := cmdtest.New(t)
	for _, flag := range []bool{false, true} {
		state, want := filepath.Join(h.Root, "own"), filepath.Join(h.Root, "env.sock")
		args := []string{"--state", state}
		if flag {
			want = filepath.Join(h.Root, "flag.sock")
			args = append(args, "--socket", want)
		}
		cmd := h.Program(filepath.Join(h.Bin, "jaild"), args...)
		cmd.Env = append(cmd.Env, "JAIL_SOCKET="+filepath.Join(h.Root, "env.sock"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmdtest.Eventually(t, "the daemon answers on "+want, func() bool {
			c, err := net.Dial("unix", want)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(state, "jail.sock")); err == nil {
			t.Error("it listens below --state, too")
		}
	}
}
