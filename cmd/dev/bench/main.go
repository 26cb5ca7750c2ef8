// Command bench measures jail beside the programs that people compare it with, all in one run on
// one machine, so that a promise about speed is something that anybody can check. It prints
// Markdown.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
)

const help = `bench measures jail beside bubblewrap, runc and the bare process. It needs root, and writes Markdown.

usage: bench [PART] [-bin DIR] [-n ROUNDS] [-only ROWS] [-files N] [-records N] [-agents N] [-guest LANGUAGE]

  reach      measure what jail is to reach, each row beside its peer, and print one table of goals
  warm       measure jails that wait for runs beside jails that are made for them
  outer      measure runs inside each outer layer beside runs without one, and the runtimes by themselves
  shared     measure session calls in a shared engine beside those in jails of their own
  versus     measure two builds of jail in turn: that of -against, and that of -bin
  kernel     measure what the kernel alone takes for the parts of a jail: namespaces, mounts, control groups
  many       start -n jails at once (default 500) and measure their memory, and that of as many that wait
  lasting    do -n runs (default 5000) and measure how the daemon's memory grows
  soak       do -n rounds (default 1000) of calls of each kind, and count failures, hangs and what is left behind
  fetch      measure fetches alone
  workspace  measure shadows alone, beside cp, git and rsync
  tools      measure the shipped tools alone: starts, and work beside the host's programs
  audit      measure the audit log alone: append, verify, search, pack, and what opens on record cost a run
  approvals  measure approvals alone: propose, resume what waits, and the memory of 10,000 that wait
  mcp        measure jail mcp alone: what its tool bash adds to an invocation of the session, and its memory
  loop       measure the tool loop alone: what a call of its tool Bash adds to an invocation of the session
  worker     measure jail worker alone: whole tasks beside plain git, and 20 of them at one time
  agents     measure agents alone: events of dormant and awake ones, events a second, and many that are registered

  -bin DIR   where make build left the programs (default bin)
  -against DIR  where another build of the programs is
  -n ROUNDS  how often each thing is measured (default 50, of fetches 200, of tasks of a worker 20);
             one round of all things after the other, so that load hits all alike
  -only ROWS measure only these: of fetches added, load, memory or flood,
             of agents events, rates, beside, children or asleep
  -files N   how many files the largest directory of the parts workspace and agents has (default 100000)
  -records N how many records the long log of the audit part has (default 200000)
  -agents N  how many agents are registered at the end of the agents part (default 100000)
  -guest L   the language of the agent that is measured: go, or c, which needs clang and wasi-libc
             (default go)

example: bench -bin bin -n 200
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && (args[0] == fetchClientPart || args[0] == fetchUpstreamPart) {
		return fetchHelper(args, stdout, stderr)
	}
	part := ""
	parts := []string{reachPart, warmPart, outerPart, sharedPart, versusPart, kernelPart, manyPart, lastingPart,
		soakPart, fetchPart, shadowPart, toolsPart, auditPart, approvalsPart, mcpPart, loopPart, workerPart,
		agentsPart}
	if len(args) > 0 && slices.Contains(parts, args[0]) {
		part, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, help) }
	bin := flags.String("bin", "bin", "")
	against := flags.String("against", "", "")
	rounds := flags.Int("n", 0, "")
	only := flags.String("only", "", "")
	files := flags.Int("files", 100_000, "")
	records := flags.Int("records", 200_000, "")
	registered := flags.Int("agents", registeredAgents, "")
	guest := flags.String("guest", guestGo, "")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil || flags.NArg() > 0 || *rounds < 0 || *files < 1000 || *records < 1000 ||
		*registered < 1 || *guest != guestGo && *guest != guestC ||
		(*against != "") != (part == versusPart) {
		fmt.Fprint(stderr, help)
		return 2
	}
	if *rounds == 0 {
		*rounds = map[string]int{fetchPart: 200, manyPart: 500, lastingPart: 5000,
			soakPart: 1000, workerPart: 20}[part]
	}
	if *rounds == 0 {
		*rounds = 50
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch part {
	case reachPart:
		err = reach(ctx, *bin, *rounds, stdout, stderr)
	case warmPart:
		err = warms(ctx, *bin, *rounds, stdout, stderr)
	case outerPart:
		err = outers(ctx, *bin, *rounds, stdout, stderr)
	case sharedPart:
		err = shareds(ctx, *bin, *rounds, stdout, stderr)
	case versusPart:
		err = versus(ctx, *bin, *against, *rounds, stdout, stderr)
	case kernelPart:
		err = kernel(ctx, *rounds, stdout, stderr)
	case manyPart:
		err = many(ctx, *bin, *rounds, stdout, stderr)
	case lastingPart:
		err = lasting(ctx, *bin, *rounds, stdout, stderr)
	case soakPart:
		err = soak(ctx, *bin, *rounds, stdout, stderr)
	case fetchPart:
		err = fetches(ctx, *bin, *only, *rounds, stdout, stderr)
	case shadowPart:
		err = shadows(ctx, *bin, *files, stdout, stderr)
	case auditPart:
		err = audits(ctx, *bin, *records, stdout, stderr)
	case approvalsPart:
		err = asks(ctx, *rounds, stdout, stderr)
	case mcpPart:
		err = mcps(ctx, *bin, *rounds, stdout, stderr)
	case loopPart:
		err = loops(ctx, *bin, *rounds, stdout, stderr)
	case workerPart:
		err = workers(ctx, *bin, *rounds, stdout, stderr)
	case agentsPart:
		err = agentFigures(ctx, *bin, *guest, *only, *rounds, *registered, *files, stdout, stderr)
	case toolsPart:
		err = tools(ctx, *bin, *rounds, stdout, stderr)
	default:
		if err = reach(ctx, *bin, *rounds, stdout, stderr); err == nil {
			fmt.Fprintln(stdout)
			err = bench(ctx, *bin, *rounds, stdout, stderr)
		}
		if err == nil {
			err = shadows(ctx, *bin, *files, stdout, stderr)
		}
		if err == nil {
			err = tools(ctx, *bin, *rounds, stdout, stderr)
		}
		if err == nil {
			err = asks(ctx, *rounds, stdout, stderr)
		}
		if err == nil {
			err = mcps(ctx, *bin, *rounds, stdout, stderr)
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench: error:", err)
		return 1
	}
	return 0
}

// settle says where the programs are and what host this is, to who may start jails.
func settle(bin string) (path, host string, err error) {
	if os.Geteuid() != 0 {
		return "", "", errors.New("only root can start jails")
	}
	if path, err = filepath.Abs(bin); err != nil {
		return "", "", err
	}
	host, err = describeHost()
	return path, host, err
}

// fetches measures the fetch proxy, in a network of its own.
func fetches(ctx context.Context, bin, only string, rounds int, stdout, stderr io.Writer) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	return fetchInside(ctx, bin, only, rounds, stdout, stderr)
}

func bench(ctx context.Context, bin string, rounds int, stdout, stderr io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	b, err := newBed(ctx, bin, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	subjects, err := allSubjects(ctx, b)
	if err != nil {
		return err
	}
	if err := measure(ctx, subjects, rounds, stderr); err != nil {
		return err
	}
	verified, err := verifiedRate(ctx, b, stderr)
	if err != nil {
		return err
	}
	load, err := loadAverage()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\nLoad average at the end: %s.\n\n", host, load)
	fmt.Fprintf(stdout,
		"Medians of %d, in milliseconds; the 99th percentile is by nearest rank. Each round measures every row once, one after the other.\n\n", rounds)
	if err := results(subjects).write(stdout); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nBudgets:\n\n")
	if err := budgetTable(budgets(subjects, verified)).write(stdout); err != nil {
		return err
	}
	return fetches(ctx, bin, "", rounds, stdout, stderr)
}
