package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/jail/runc"
)

// most is for commands with any number of arguments.
const most = math.MaxInt

// execute runs one more process in a container, as jaild grants it.
func execute(g global, args []string) (int, error) {
	code, err := execIn(g, args)
	if err != nil && !errors.As(err, &usageError{}) {
		code, err = exitNotExec, fmt.Errorf("exec failed: %w", err)
	}
	return code, err
}

func execIn(g global, args []string) (int, error) {
	var f ioFlags
	var env words
	flags := flag.NewFlagSet("exec", flag.ContinueOnError)
	f.add(flags)
	f.addDetach(flags)
	file := flags.String("process", "", "")
	flags.StringVar(file, "p", "", "")
	cwd := flags.String("cwd", "", "")
	user := flags.String("user", "", "")
	flags.StringVar(user, "u", "", "")
	flags.Var(&env, "env", "")
	flags.Var(&env, "e", "")
	tty := flags.Bool("tty", false, "")
	flags.BoolVar(tty, "t", false, "")
	rest, err := parse(flags, args, most)
	if err != nil {
		return 0, err
	}
	c, err := g.containers.Load(rest[0])
	if err != nil {
		return 0, err
	}
	if err := c.CanExec(); err != nil {
		return 0, err
	}
	var process specs.Process
	if *file != "" {
		if process, err = readProcess(*file); err != nil {
			return 0, err
		}
	} else {
		if len(rest) < 2 {
			return 0, misused("exec: no command: give one, or --process FILE")
		}
		if process, err = overridden(c.Plan, rest[1:], *cwd, *user, env, *tty); err != nil {
			return 0, err
		}
	}
	if process, err = askExec(c.Plan, process); err != nil {
		return 0, err
	}
	return begin(c, f, process)
}

func begin(c *runc.Container, f ioFlags, process specs.Process) (int, error) {
	if f.pidFile != "" {
		path, err := filepath.Abs(f.pidFile)
		if err != nil {
			return 0, err
		}
		f.pidFile = path
	}
	if pid := c.Pid(); pid > 0 {
		if err := c.CheckProgram(pid, process); err != nil {
			return 0, err
		}
	}
	p, done, err := f.process(process, false)
	if err != nil {
		return 0, err
	}
	defer done()
	started, err := c.Begin(p)
	if err != nil {
		return 0, err
	}
	pid, err := started.Pid()
	if err == nil {
		err = f.writePid(pid)
	}
	if err != nil {
		return 0, errors.Join(err, started.Signal(os.Kill))
	}
	if f.detach {
		return 0, nil
	}
	state, err := started.Wait()
	if state == nil {
		return 0, err
	}
	return exitCode(state), nil
}

func readProcess(path string) (p specs.Process, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, fmt.Errorf("--process: %w", err)
	}
	return p, nil
}

// overridden returns the container's process with the overrides of the command line.
func overridden(plan oci.Plan, args []string, cwd, user string, env []string, tty bool) (specs.Process,
	error) {
	p := *plan.Spec.Process
	p.Args, p.Terminal = args, tty
	if cwd != "" {
		p.Cwd = cwd
	}
	p.Env = slices.DeleteFunc(slices.Clone(p.Env), func(v string) bool {
		// A C library takes the first of two.
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	})
	p.Env = append(p.Env, env...)
	if user == "" {
		return p, nil
	}
	uid, gid, both := strings.Cut(user, ":")
	n, err := strconv.ParseUint(uid, 10, 32)
	if err != nil {
		return p, misused("exec: --user %q: want UID or UID:GID, in numbers", user)
	}
	p.User.UID = uint32(n)
	if both {
		if n, err = strconv.ParseUint(gid, 10, 32); err != nil {
			return p, misused("exec: --user %q: want UID or UID:GID, in numbers", user)
		}
		p.User.GID = uint32(n)
	}
	return p, nil
}
