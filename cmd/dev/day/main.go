// Command day replays a recorded working day of a coding agent: the calls of four real
// repositories, each inside a session and outside in a copy of the same repository. It prints each
// difference, and how much time the session adds.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/supervisor/client"
)

const help = `day replays recorded calls on four repositories inside a session and outside. It needs root, and writes Markdown.

usage: day [-bin DIR] [-dir DIR] [-only DAY] [-calls N] [-pause TIME] [-passes N] [-keep]

  -bin DIR     where make build left the programs (default bin)
  -dir DIR     where to keep the repositories and caches (default: a directory of its own, removed afterwards)
  -only DAY    replay only this day: go, node, python or c
  -calls N     replay only the first N calls of each day
  -pause TIME  how long the session rests before each call of the first pass (default 1s)
  -passes N    1 for the pass with pauses alone (default 2: another with the calls back to back)
  -keep        keep the directory
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("day", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, help) }
	w := world{log: stderr}
	flags.StringVar(&w.bin, "bin", "bin", "")
	flags.StringVar(&w.root, "dir", "", "")
	only := flags.String("only", "", "")
	calls := flags.Int("calls", 0, "")
	flags.DurationVar(&w.pause, "pause", time.Second, "")
	passes := flags.Int("passes", 2, "")
	keep := flags.Bool("keep", false, "")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	all, err := readDays(*only, *calls)
	if err == nil {
		err = w.open(ctx)
	}
	if err != nil {
		fmt.Fprintln(stderr, "day:", err)
		return 1
	}
	defer w.close(*keep)
	var report report
	for _, d := range all {
		if err := w.prepare(ctx, d); err != nil {
			fmt.Fprintf(stderr, "day: prepare %s: %v\n", d.name, err)
			return 1
		}
		for pass := range *passes {
			if err := w.replay(ctx, d, pass, &report); err != nil {
				fmt.Fprintf(stderr, "day: replay %s: %v\n", d.name, err)
				return 1
			}
		}
	}
	report.print(stdout)
	if report.unknown() > 0 {
		return 1
	}
	return 0
}

// A world has a daemon of its own, the repositories and their caches.
type world struct {
	bin, root string
	pause     time.Duration
	log       io.Writer

	env    []string
	daemon *exec.Cmd
	api    *client.Client
}

// user owns the workspaces: a tool has this user's id inside and outside.
const user = 12000

func (w *world) open(ctx context.Context) (err error) {
	if w.bin, err = filepath.Abs(w.bin); err != nil {
		return err
	}
	if w.root == "" {
		// Not below /tmp, which is another directory inside.
		w.root, err = os.MkdirTemp("/var/tmp", "jail-day-")
	} else {
		w.root, err = filepath.Abs(w.root)
	}
	for _, dir := range []string{"state", "cache", "copies", "run"} {
		if err == nil {
			err = os.MkdirAll(filepath.Join(w.root, dir), 0o755)
		}
	}
	if err == nil {
		err = os.Chmod(w.root, 0o755)
	}
	if err != nil {
		return err
	}
	state := filepath.Join(w.root, "state")
	// The caller's name for git, which the session passes on, is that of the repositories.
	w.env = append(os.Environ(), "JAIL_STATE="+state, "LANG=C.UTF-8", "TERM=dumb",
		"GIT_AUTHOR_NAME=Agent", "GIT_AUTHOR_EMAIL=agent@example.org", "GIT_COMMITTER_NAME=Agent",
		"GIT_COMMITTER_EMAIL=agent@example.org")
	w.daemon = exec.Command(filepath.Join(w.bin, "jaild"))
	w.daemon.Env, w.daemon.Stderr = w.env, w.log
	if err := w.daemon.Start(); err != nil {
		return err
	}
	socket := filepath.Join(state, "jail.sock")
	for range 600 {
		if w.api, err = client.Connect(ctx, client.Options{Socket: socket,
			Jaild: "/dev/null"}); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("jaild does not answer: %w", err)
}

func (w *world) close(keep bool) {
	w.api.Close()
	w.daemon.Process.Signal(syscall.SIGTERM)
	w.daemon.Wait()
	if !keep {
		exec.Command("chmod", "-R", "u+w", w.root).Run()
		os.RemoveAll(w.root)
	}
}

// prepare makes the repository of a day, with one commit, and its caches.
func (w *world) prepare(ctx context.Context, d day) error {
	pristine := filepath.Join(w.root, "copies", d.name)
	if _, err := os.Lstat(filepath.Join(pristine, ".git")); err == nil {
		return nil
	}
	if err := os.MkdirAll(pristine, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sh", "-euc", prepareScript, "prepare", d.name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(d.prepare), w.log, w.log
	cmd.Dir = pristine
	cmd.Env = append(os.Environ(), "CACHE="+filepath.Join(w.root, "cache"), fmt.Sprint("OWNER=",
		user))
	return cmd.Run()
}
