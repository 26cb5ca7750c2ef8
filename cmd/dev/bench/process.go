package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// process returns a measurement of a whole process, from before its start until it is gone. Each
// argv is made anew.
func (b *bed) process(state string, argv func() []string) func(context.Context) (time.Duration,
	error) {
	return func(ctx context.Context) (time.Duration, error) {
		cmd, err := b.command(ctx, state, argv())
		if err != nil {
			return 0, err
		}
		start := time.Now()
		err = cmd.Run()
		took := time.Since(start)
		if err != nil {
			return 0, fmt.Errorf("%w%s", err, b.said())
		}
		return took, nil
	}
}

// command is a process in the small directory that sees nothing of the caller's environment.
func (b *bed) command(ctx context.Context, state string, args []string) (*exec.Cmd, error) {
	if err := b.forget(); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stderr = b.path("small"), b.environment(state), b.errors
	return cmd, nil
}

func fixed(args ...string) func() []string { return func() []string { return args } }

func processSubjects(b *bed) []*subject {
	jail := filepath.Join(b.bin, "jail")
	trivial := fixed(jail, "run", "--", b.path("trivial.wasm"))
	grep := fixed(jail, "run", "--", "grep", "-c", "func", "FILE")
	return []*subject{
		{name: bareTrue, once: b.process("none", fixed("/bin/true"))},
		{name: bareGrep, once: b.process("none", fixed("/bin/grep", "-c", "func", "FILE"))},
		{name: versionRow, once: b.process("none", fixed(jail, "version")), bare: bareTrue},
		b.bubblewrap(),
		{name: aloneTrue, once: b.process("alone", trivial), bare: bareTrue, bwrap: bwrapTrue,
			runc: runcTrue},
		{name: daemonTrue, once: b.process("daemon", trivial), bare: bareTrue, bwrap: bwrapTrue,
			runc: runcTrue},
		{name: aloneGrep, once: b.process("alone", grep), bare: bareGrep},
		{name: daemonGrep, once: b.process("daemon", grep), bare: bareGrep},
	}
}

func (b *bed) bubblewrap() *subject {
	s := &subject{name: bwrapTrue, bare: bareTrue}
	bwrap := find("bwrap")
	if bwrap == "" {
		s.missing = "bwrap is not installed"
		return s
	}
	s.once = b.process("none", fixed(bwrap, "--unshare-all", "--ro-bind", "/", "/", "--proc",
		"/proc", "--dev", "/dev", "/bin/true"))
	return s
}
