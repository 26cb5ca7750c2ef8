package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/runners"
	wasiguest "github.com/jail-sandbox/jail/runners/wasi/guest"
)

// refusedCode is the exit code of a container's process whose module is refused.
const refusedCode = 126

// containerModule runs a WebAssembly module as a process of a container. The module sees the root
// of the container with its mounts, without the kernel's own file systems.
func containerModule(fd string, env []string) int {
	endBySignal()
	m, err := guest.EnterModule(fd, env)
	if err != nil {
		return fail(err)
	}
	module, err := readModule(m.File)
	m.File.Close()
	if err != nil {
		return fail(err)
	}
	// Go's standard library starts in the directory that PWD names.
	vars := slices.DeleteFunc(m.Env, func(v string) bool { return strings.HasPrefix(v, "PWD=") })
	inv := runners.Invocation{Args: m.Args, Env: append(vars, "PWD="+m.Cwd), Cwd: m.Cwd,
		MemoryLimit: m.Memory,
		// The kernel refuses to write what is read-only.
		Mounts: []runners.Mount{{Path: "/", Write: true, Whole: true,
			Hide: []string{"/dev", "/proc", "/sys"}}}}
	report, err := wasiguest.Run(context.Background(), inv, module, os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "jail-init: %s: %v\n", runners.Printable(m.Args[0], 200), err)
		return refusedCode
	}
	if report.Trap != nil {
		fmt.Fprintf(os.Stderr, "jail-init: %s: %s\n", runners.Printable(m.Args[0], 200),
			report.Trap.Sentence)
	}
	return report.ExitCode
}

// endBySignal installs handlers with which the usual signals end this process. Modules have no
// handlers, and the kernel ignores signals without a handler for process 1 (pid_namespaces(7)).
func endBySignal() {
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	go func() { os.Exit(128 + int((<-ends).(syscall.Signal))) }()
}
