package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/runners/wasi/wasitest"
	"github.com/jail-sandbox/jail/supervisor/api"
)

// A bed is what all measurements stand on: a temporary directory and a daemon whose state is in it.
type bed struct {
	bin, dir string
	// What a program says on standard error, for the message if it fails.
	errors *os.File
	daemon *exec.Cmd
	client *api.Client
	undo   []func() error
	state  string // the daemon's, below dir
	// how many of its jails may wait for runs
	pool int
	// Containers that were made of bundles.
	containers int
	// How many it has at one time; 0: as it has by default.
	runs int
}

// daemonPatience is how long a daemon may take to answer.
const daemonPatience = 10 * time.Second

func newBed(ctx context.Context, bin string, progress io.Writer) (b *bed, err error) {
	// Every jail of its tables is a cold one.
	b = &bed{bin: bin, state: "daemon"}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if err := b.makeDir(); err != nil {
		return b, err
	}
	if err := b.write(progress); err != nil {
		return b, err
	}
	return b, b.startDaemon(ctx)
}

// twoBeds returns a bed, and one over the same files whose daemon has prewarmed jails. end closes
// both.
func twoBeds(ctx context.Context, bin, state string, progress io.Writer) (cold, warm *bed,
	end func() error, err error) {
	if cold, err = newBed(ctx, bin, progress); err != nil {
		return nil, nil, nil, err
	}
	warm = &bed{bin: bin, dir: cold.dir, errors: cold.errors, state: state, pool: 8}
	end = func() error { return errors.Join(warm.close(), cold.close()) }
	if err := warm.startDaemon(ctx); err != nil {
		return nil, nil, nil, errors.Join(err, end())
	}
	return cold, warm, end, nil
}

func (b *bed) makeDir() (err error) {
	if b.dir, err = os.MkdirTemp("", "jail-bench-"); err != nil {
		return err
	}
	b.undo = append(b.undo, func() error { return os.RemoveAll(b.dir) })
	// runc's own user namespace has no rights to what is root's alone.
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return err
	}
	if b.errors, err = os.Create(b.path("errors")); err != nil {
		return err
	}
	b.undo = append(b.undo, b.errors.Close)
	return nil
}

func (b *bed) path(name ...string) string {
	return filepath.Join(append([]string{b.dir}, name...)...)
}

// close takes everything away again, the last first.
func (b *bed) close() error {
	var err error
	for i := len(b.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, b.undo[i]())
	}
	b.undo = nil
	return err
}

// trees are the directories that have shadows: flat means that the second costs what the first
// does.
var trees = []struct {
	name  string
	files int
}{{"few", 1000}, {"many", 100_000}}

// write makes the files that are worked on.
func (b *bed) write(progress io.Writer) error {
	if err := b.plant(); err != nil {
		return err
	}
	for _, t := range trees {
		fmt.Fprintf(progress, "bench: making a tree of %d files\n", t.files)
		for i := range t.files {
			dir := b.path(t.name, fmt.Sprintf("d%03d", i/1000))
			if i%1000 == 0 {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%03d", i%1000)),
				[]byte("a line\n"), 0o644); err != nil {
				return err
			}
		}
	}
	// Else the disk is still busy with them while the first rounds run, and a change as old as a
	// run counts as a conflict.
	syscall.Sync()
	return nil
}

// plant writes the modules and the small directory.
func (b *bed) plant() error {
	const spin = "\x03\x40\x0c\x00\x0b" // loop, br 0, end
	for name, code := range map[string]string{"trivial.wasm": "", "spin.wasm": spin} {
		if err := os.WriteFile(b.path(name), wasitest.Command([]byte(code)).Encode(),
			0o644); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(b.path("small"), 0o755); err != nil {
		return err
	}
	line := "func name(argument int) string\n\treturn text[argument]\n\n// what it says\n"
	if err := os.WriteFile(b.path("small", "FILE"), []byte(strings.Repeat(line, 1000)),
		0o644); err != nil {
		return err
	}
	return nil
}

// environment is what the programs see: nothing of the caller's that could change what they do.
func (b *bed) environment(state string) []string {
	return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "JAIL_STATE=" + b.path(state)}
}

func (b *bed) startDaemon(ctx context.Context) error {
	settings := fmt.Appendf(nil, "[pool]\nsize = %d\n", b.pool)
	if b.runs > 0 {
		settings = fmt.Appendf(settings, "[admission]\nruns = %d\nmemory = \"%dGiB\"\n",
			b.runs+b.runs, b.runs)
	}
	if err := errors.Join(os.MkdirAll(b.path(b.state), 0o755),
		os.WriteFile(b.path(b.state, "jaild.toml"), settings, 0o600)); err != nil {
		return err
	}
	b.daemon = exec.Command(filepath.Join(b.bin, "jaild"))
	b.daemon.Env = b.environment(b.state)
	b.daemon.Stderr = b.errors
	// An interrupt is for the measurement, which then ends it.
	b.daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.daemon.Start(); err != nil {
		return fmt.Errorf("%w: run make build first", err)
	}
	b.undo = append(b.undo, func() error {
		if err := b.daemon.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		return b.daemon.Wait()
	})
	deadline := time.Now().Add(daemonPatience)
	for {
		c, err := api.Dial(ctx, b.path(b.state, "jail.sock"))
		if err == nil {
			b.client = c
			b.undo = append(b.undo, c.Close)
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("jaild does not answer: %w%s", err, b.said())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// said returns what the last program wrote to its standard error, for a message.
func (b *bed) said() string {
	text, err := os.ReadFile(b.errors.Name())
	if text = bytes.TrimSpace(text); err != nil || len(text) == 0 {
		return ""
	}
	return ": " + string(text)
}

// forget clears what the last program wrote.
func (b *bed) forget() error {
	if err := b.errors.Truncate(0); err != nil {
		return err
	}
	_, err := b.errors.Seek(0, io.SeekStart)
	return err
}
