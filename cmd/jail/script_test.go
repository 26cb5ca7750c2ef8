package main

import (
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/jail-sandbox/jail/supervisor/audit"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	// What is ignored at the start, as nohup has it, jail leaves ignored; the tests are about what
	// is not.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
		syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	testscript.Main(m, map[string]func(){"jail": main})
}

// The scripts are what a user could have typed. None needs a daemon.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("JAIL_STATE", filepath.Join(env.WorkDir, "state"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"makelog": makeLog, "replace": replaceText, "exits": exits, "fill": fill,
			"freeport": freePort, "awaitport": awaitPort,
		},
	})
}

// makelog DIR makes a log with two runs in it, one of which has a name that a terminal would obey.
func makeLog(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	log, err := audit.Open(audit.Options{Dir: dir, KeyDir: dir + ".keys"})
	ts.Check(err)
	for _, run := range []string{"r1", "r2"} {
		for _, e := range []audit.Event{
			audit.RunStarted{Tool: "core-utils/grep", Argv: []string{"grep", "\x1b[2J\u202e"},
				Workspace: "/home/me/work"},
			audit.Denied{Layer: "wasi", What: "read /etc/shadow", Rule: "not in the tool's view",
				Count: 2},
			audit.RunFinished{ExitCode: 1},
		} {
			_, err := log.Append(context.Background(), audit.Entry{Run: run,
				Actor: audit.Actor{UID: 1000, PID: 7, Exe: "/usr/bin/jail"}, Event: e})
			ts.Check(err)
		}
	}
	ts.Check(log.Close())
}

// replace FILE OLD NEW changes a text in a file once; the file must have it.
func replaceText(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	text := ts.ReadFile(path)
	if !strings.Contains(text, args[1]) {
		ts.Fatalf("%s has no %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(path, []byte(strings.Replace(text, args[1], args[2], 1)), 0o600))
}

// fill FILE makes a file of 2 MiB, more than any policy has.
func fill(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Repeat("# x\n", 1<<19)), 0o600))
}

// exits CODE COMMAND... runs a command that must end with the code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// freePort NAME puts a port of the loopback interface that nobody has into a variable.
func freePort(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(errors.Join(err, l.Close()))
	ts.Setenv(args[0], port)
}

// awaitPort PORT waits until a program of the script accepts connections.
func awaitPort(ts *testscript.TestScript, _ bool, args []string) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if c, err := net.Dial("tcp", "127.0.0.1:"+args[0]); err == nil {
			ts.Check(c.Close())
			return
		}
	}
	ts.Fatalf("no program accepts connections on port %s", args[0])
}
