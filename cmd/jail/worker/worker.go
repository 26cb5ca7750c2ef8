// Package worker implements the command jail worker, which does tasks in git repositories.
package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/client"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/fetchrun"
	"github.com/jail-sandbox/jail/supervisor/models"
	"github.com/jail-sandbox/jail/supervisor/worker"
)

const about = `Do a task in a git repository: clone it, let a model work on it with five tools, commit, push a branch and ask for a pull request. Every step is an invocation of
one session of jail under the profile worker; the push is a run of its own.

TASK.toml says what to do. Without one the environment does: TASK_ID, REPO_URL, BRANCH, PROMPT, MODEL, CLAUDE_API_KEY, COORDINATOR_URL, WORKER_SECRET and TIMEOUT_MS. The
key, the secret and the user of the URL are names of credentials: the secrets themselves are with the fetch proxy.

Several tasks are done one after the other, or --parallel N at one time, each in a session of its own. The command ends with 1 if a task failed.`

// maxParallel bounds the flag --parallel.
const maxParallel = 64

// modelsHint is the hint of errors about models.toml.
const modelsHint = "docs/agents/chat.md says how models.toml names models"

// New returns the command jail worker.
func New(env *cli.Env) *cobra.Command {
	return command.Group("worker", "do tasks in git repositories", newRun(env))
}

type options struct {
	parallel int
	json     bool
}

func newRun(env *cli.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "run [flags] [TASK.toml...]",
		Short: "do tasks, each on a branch with a pull request",
		Long:  about,
		Example: "  jail worker run task.toml\n  jail worker run --parallel 4 tasks/*.toml\n" +
			"  TASK_ID=t1 REPO_URL=https://forge@github.com/acme/web.git BRANCH=agent/t1 \\\n" +
			"    PROMPT='mend the failing test' jail worker run --json",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.parallel < 1 || o.parallel > maxParallel {
				return exit.Usage("", "--parallel %d: want a number from 1 to %d", o.parallel,
					maxParallel)
			}
			tasks, err := tasksOf(env, args)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			// After the first signal the tasks save their work; a second one ends the process.
			context.AfterFunc(ctx, stop)
			return doAll(ctx, env, o, tasks)
		},
	}
	cmd.Flags().IntVar(&o.parallel, "parallel", 1, "do at most `N` tasks at one time")
	command.JSON(cmd, &o.json, "print how each task ended as a line of JSON")
	return cmd
}

// tasksOf reads tasks from files, or one from the environment, and resolves their models.
func tasksOf(env *cli.Env, files []string) (tasks []manifest.Task, err error) {
	places := agentapi.PlacesOf(env.Getenv)
	known, err := manifest.LoadModels(places.Models)
	if err != nil {
		return nil, readable(err, "models", modelsHint)
	}
	if len(files) == 0 {
		const hint = "jail worker run TASK.toml, or set the variables of jail worker run --help"
		if env.Getenv("TASK_ID") == "" {
			return nil, exit.Usage(hint, "no TASK.toml is given, and the environment has no TASK_ID")
		}
		task, err := manifest.TaskOf(env.Getenv)
		if err != nil {
			return nil, exit.Usage(hint, "%v", err)
		}
		tasks = append(tasks, task)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, exit.About(err, "task %s", file)
		}
		task, err := manifest.ParseTask(file, text)
		if err != nil {
			return nil, readable(err, "task", "docs/worker.md says what a task holds")
		}
		tasks = append(tasks, task)
	}
	ids := map[string]bool{}
	for i := range tasks {
		t := &tasks[i]
		if ids[t.ID] {
			return nil, exit.Usage("", "two tasks have the id %s", t.ID)
		}
		ids[t.ID] = true
		if t.Model.Role.URL == "" {
			t.Model.Name = cmp.Or(t.Model.Name, known.Default)
			role, ok := known.Roles[t.Model.Name]
			if !ok {
				return nil, noModel(*t, known, places.Models)
			}
			t.Model.Role = role
		}
		t.Model.Role.Credential = cmp.Or(t.Model.Key, t.Model.Role.Credential)
	}
	return tasks, nil
}

// noModel returns the error for a task without a model, or with a model that the file lacks.
func noModel(t manifest.Task, known manifest.Models, file string) error {
	names := strings.Join(slices.Sorted(maps.Keys(known.Roles)), ", ")
	switch {
	case names == "":
		return exit.NotFound(modelsHint, "task %s: %s names no models", t.ID, file)
	case t.Model.Name == "":
		return exit.Usage("name one in the task, as model = \"NAME\", or as the default of models.toml",
			"task %s names no model, and of those of %s, %s, none is the default", t.ID, file, names)
	}
	return exit.NotFound(modelsHint, "task %s: %s has no model %q, but %s", t.ID, file, t.Model.Name, names)
}

// readable converts an error about a file to one for users. Syntax errors keep their positions.
func readable(err error, what, hint string) error {
	if wrong, ok := errors.AsType[syntax.Errors](err); ok {
		return exit.Usage(hint, "%v", wrong)
	}
	return exit.About(err, "%s", what)
}

// doAll does the tasks, o.parallel at a time. It returns exit.No if one of them fails.
func doAll(ctx context.Context, env *cli.Env, o options, tasks []manifest.Task) error {
	keep := agentapi.Options{Places: agentapi.PlacesOf(env.Getenv),
		Program: agentapi.Program(env.Exe), State: env.Getenv("JAIL_STATE")}
	// Start jail-agentd once for all tasks: several cannot start at the same time.
	c, _, err := agentapi.Connect(ctx, keep)
	if err != nil {
		return err
	}
	defer c.Close()
	return env.WithLastingDaemon(ctx, func(*api.Client) error {
		var all sync.WaitGroup
		var printing sync.Mutex
		failed := false
		places := make(chan struct{}, o.parallel)
		for _, t := range tasks {
			places <- struct{}{}
			all.Go(func() {
				defer func() { <-places }()
				p := &printer{env: env, mu: &printing, json: o.json, several: len(tasks) > 1}
				out, err := do(ctx, env, keep, t, p)
				printing.Lock()
				defer printing.Unlock()
				if err != nil {
					env.Complain(exit.Describe(fmt.Errorf("task %s: %w", t.ID, err)))
					failed = true
					return
				}
				failed = failed || !out.Success
				if err := p.outcome(out); err != nil {
					env.Complain(exit.Describe(err))
					failed = true
				}
			})
		}
		all.Wait()
		if failed {
			return exit.No
		}
		return nil
	})
}

// do does one task, with its own connections to the daemons.
func do(ctx context.Context, env *cli.Env, keep agentapi.Options, t manifest.Task,
	p *printer) (out worker.Outcome, err error) {
	// The directory is never removed, since a kept session needs it.
	dir := filepath.Join(keep.Places.State, "worker")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return out, err
	}
	connect := func(ctx context.Context) (*client.Client, error) {
		return client.Connect(ctx, client.Options{Socket: env.Config.Socket,
			State: env.Getenv("JAIL_STATE"), Jaild: config.Jaild(env.Exe), Lasting: true})
	}
	c, err := connect(ctx)
	if err != nil {
		return out, err
	}
	defer c.Close()
	keeper := &agentapi.Keeper{Options: keep}
	defer keeper.Close()
	sender := fetchrun.Sender{Client: connect}
	return worker.Run(ctx, worker.Options{Task: t, Client: c.Client, Sender: sender,
		Asker: models.Jail{Sender: sender}, Log: keeper, Session: strings.ToLower(rand.Text()[:16]),
		Dir: dir, Environ: env.Environ, Say: p.progress}), nil
}

// A printer prints the progress and the outcome of a task.
type printer struct {
	env     *cli.Env
	mu      *sync.Mutex
	json    bool
	several bool
}

func (p *printer) progress(s worker.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what := s.Message
	if s.ToolCall != nil {
		what = s.ToolCall.Name
	}
	line := s.Status
	if p.several {
		line = s.TaskID + ": " + line
	}
	if what != "" {
		line += ": " + what
	}
	fmt.Fprintln(p.env.Stderr, "jail: "+output.Printable(line))
}

// outcome prints the outcome of a task.
func (p *printer) outcome(out worker.Outcome) error {
	if out.Kept != "" {
		fmt.Fprintf(p.env.Stderr, "jail: task %s: its work is in the session %[2]s: jail session exec "+
			"%[2]s -- git show; jail session stop --discard %[2]s throws it away\n", out.TaskID, out.Kept)
	}
	if p.json {
		return p.env.PrintLine(out)
	}
	if out.Error != nil {
		p.env.Complain(exit.Describe(exit.Failed(out.Error, "jail agent transcript "+out.Session,
			"task %s: %v", out.TaskID, out.Error)))
	}
	return p.env.Print(func(w io.Writer) {
		if out.Summary != "" {
			fmt.Fprintln(w, output.PrintableText(out.Summary))
		}
		for _, f := range out.FilesChanged {
			fmt.Fprintln(w, "changed: "+output.Printable(f))
		}
		if out.Commit != "" {
			fmt.Fprintf(w, "pushed: %s to %s\n", out.Commit, output.Printable(out.Branch))
		}
		if out.PRURL != "" {
			fmt.Fprintln(w, "pull request: "+output.Printable(out.PRURL))
		}
	})
}
