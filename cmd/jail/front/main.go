// Command front is what people start as jail. It carries `jail run` and `jail session exec` to a
// daemon that answers, and hands every other command line over to the whole program, jail-full: any
// flag that it does not know, a terminal, a daemon that does not answer or refuses.
//
// The whole program initialises 180 packages before its first line, which costs more than the
// daemon needs for a run of a prewarmed jail. The front imports none of them: TestFrontImports.
//
//	front ── connect, POST with Upgrade ──► jaild     anything but 101: exec jail-full
//	front ◄─ 101, then frames ──────────── jaild     now the front ends the command
//	front ── result with something to say, a failure ──► jail-full --ended, as a child
//
// Behaviour is that of the whole program: signals, exit codes, messages. cmd TestFront compares
// both.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/jail-sandbox/jail/cmd/jail/internal/ended"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

// exitFailed is the exit code for a failure of jail itself.
const exitFailed = 125

const failedCode = "failed"

func main() {
	args := os.Args[1:]
	if len(args) == 1 && (args[0] == "version" || args[0] == "--version") {
		printVersion()
	}
	if a, ok := parse(args); ok {
		a.carry()
	}
	handOver()
}

// handOver executes jail-full in place of this program.
func handOver() {
	path, err := whole()
	if err == nil {
		err = syscall.Exec(path, append([]string{"jail"}, os.Args[1:]...), os.Environ())
	}
	cannot(path, err)
}

// whole returns the path of jail-full. Without /proc it prints an error and exits.
func whole() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		fmt.Fprintf(os.Stderr, "jail: error: "+ended.NoProc+"\njail: hint: %s\n", err,
			ended.NoProcHint)
		os.Exit(ended.NoProcExit)
	}
	dir := filepath.Dir(exe)
	path := filepath.Join(dir, ended.Whole)
	if _, err = os.Stat(path); err != nil {
		path = filepath.Join(dir, "../libexec/jail", ended.Whole)
		_, err = os.Stat(path)
	}
	return path, err
}

// cannot prints that jail-full cannot be started, and exits.
func cannot(path string, err error) {
	fmt.Fprintf(os.Stderr, "jail: error: %s cannot be started: %v\n"+
		"jail: hint: build or install it beside jail\n", strconv.Quote(path), cause(err))
	os.Exit(exitFailed)
}

// printVersion prints what `jail version` prints.
func printVersion() {
	kernel := "unknown"
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = string(text)
		for len(kernel) > 0 && kernel[len(kernel)-1] == '\n' {
			kernel = kernel[:len(kernel)-1]
		}
	}
	for _, c := range []byte(kernel) {
		if c <= ' ' || c > '~' {
			return
		}
	}
	line := "jail " + wire.Version + ", " + runtime.Version() + ", linux " + kernel + " " +
		runtime.GOARCH + "\n"
	if _, err := os.Stdout.WriteString(line); err != nil {
		fail("standard output", err)
	}
	os.Exit(0)
}

// fail reports the failure of one of the caller's streams, and exits.
func fail(stream string, err error) {
	tell(outcome{Failure: &ended.Failure{Code: failedCode,
		Message: stream + ": " + cause(err).Error()}})
}

type outcome = ended.Outcome[json.RawMessage]

// tell lets jail-full print how the run ended, and exits with its exit code.
func tell(o outcome) {
	path, err := whole()
	if err != nil {
		cannot(path, err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		cannot(path, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		cannot(path, err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		cannot(path, err)
	}
	p, err := os.StartProcess(path, []string{"jail", ended.Flag},
		&os.ProcAttr{Files: []*os.File{null, os.Stdout, os.Stderr, r}})
	if err != nil {
		cannot(path, err)
	}
	r.Close()
	// If the child ends early, its exit code says so.
	_, _ = w.Write(text)
	w.Close()
	state, err := p.Wait()
	if err != nil {
		cannot(path, err)
	}
	if s := state.Sys().(syscall.WaitStatus); s.Signaled() {
		// Die from the same signal; Exit is only for a late delivery.
		_ = syscall.Kill(os.Getpid(), s.Signal())
		os.Exit(ended.ExitSignal + int(s.Signal()))
	}
	os.Exit(state.ExitCode())
}
