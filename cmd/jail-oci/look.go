package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/jail-sandbox/jail/jail/runc"
	"github.com/jail-sandbox/jail/supervisor/wire"
)

func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// load finds the container of a command that has no other argument.
func load(g global, name string, args []string) (*runc.Container, error) {
	rest, err := parse(flag.NewFlagSet(name, flag.ContinueOnError), args, 1)
	if err != nil {
		return nil, err
	}
	return g.containers.Load(rest[0])
}

func state(g global, args []string) (int, error) {
	c, err := load(g, "state", args)
	if err != nil {
		return 0, err
	}
	s, err := c.State()
	if err != nil {
		return 0, err
	}
	return 0, printJSON(g.stdout, s)
}

// acting returns the command name, which calls do with the container.
func acting(name string, do func(*runc.Container) error) func(global, []string) (int, error) {
	return func(g global, args []string) (int, error) {
		c, err := load(g, name, args)
		if err != nil {
			return 0, err
		}
		return 0, do(c)
	}
}

func kill(g global, args []string) (int, error) {
	flags := flag.NewFlagSet("kill", flag.ContinueOnError)
	all := flags.Bool("all", false, "")
	flags.BoolVar(all, "a", false, "")
	rest, err := parse(flags, args, 2)
	if err != nil {
		return 0, err
	}
	name := "TERM"
	if len(rest) == 2 {
		name = rest[1]
	}
	signal, err := runc.ParseSignal(name)
	if err != nil {
		return 0, usageError{err}
	}
	c, err := g.containers.Load(rest[0])
	if err != nil {
		return 0, err
	}
	err = c.Signal(signal)
	if *all && errors.Is(err, runc.ErrNotRunning) {
		err = nil
	}
	return 0, err
}

func remove(g global, args []string) (int, error) {
	flags := flag.NewFlagSet("delete", flag.ContinueOnError)
	force := flags.Bool("force", false, "")
	flags.BoolVar(force, "f", false, "")
	rest, err := parse(flags, args, 1)
	if err != nil {
		return 0, err
	}
	c, err := g.containers.Load(rest[0])
	if errors.Is(err, runc.ErrNoContainer) && *force {
		return 0, g.containers.RemoveRest(rest[0])
	}
	if err != nil {
		return 0, err
	}
	return 0, c.Delete(*force, func() { reportDeleted(c.Plan) })
}

func ps(g global, args []string) (int, error) {
	flags := flag.NewFlagSet("ps", flag.ContinueOnError)
	format := formatFlag(flags)
	rest, err := parse(flags, args, most)
	if err != nil {
		return 0, err
	}
	c, err := g.containers.Load(rest[0])
	if err != nil {
		return 0, err
	}
	pids, err := c.Processes()
	if err != nil {
		return 0, err
	}
	if *format == "json" {
		return 0, json.NewEncoder(g.stdout).Encode(pids)
	}
	w := tabwriter.NewWriter(g.stdout, 4, 1, 3, ' ', 0)
	fmt.Fprintln(w, "PID\tCMD")
	for _, pid := range pids {
		// It may have ended.
		text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		words := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
		fmt.Fprintf(w, "%d\t%s\n", pid, shown(strings.Join(words, " ")))
	}
	return 0, w.Flush()
}

// shown escapes unprintable characters in text that a process chose.
func shown(text string) string {
	q := strconv.QuoteToGraphic(text)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

func formatFlag(flags *flag.FlagSet) *string {
	format := "table"
	set := func(value string) error {
		if value != "table" && value != "json" {
			return errors.New("want table or json")
		}
		format = value
		return nil
	}
	flags.Func("format", "", set)
	flags.Func("f", "", set)
	return &format
}

func list(g global, args []string) (int, error) {
	flags := flag.NewFlagSet("list", flag.ContinueOnError)
	format := formatFlag(flags)
	quiet := flags.Bool("quiet", false, "")
	flags.BoolVar(quiet, "q", false, "")
	if _, err := parse(flags, args, 0); err != nil {
		return 0, err
	}
	ids, err := g.containers.IDs()
	if err != nil {
		return 0, err
	}
	all := []runc.State{}
	for _, id := range ids {
		c, err := g.containers.Load(id)
		if err != nil {
			// It is being made or removed.
			continue
		}
		s, err := c.State()
		if err != nil {
			return 0, err
		}
		all = append(all, s)
	}
	switch {
	case *quiet:
		for _, s := range all {
			fmt.Fprintln(g.stdout, s.ID)
		}
		return 0, nil
	case *format == "json":
		return 0, json.NewEncoder(g.stdout).Encode(all)
	}
	w := tabwriter.NewWriter(g.stdout, 12, 1, 3, ' ', 0)
	fmt.Fprintln(w, "ID\tPID\tSTATUS\tBUNDLE\tCREATED")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", s.ID, s.Pid, s.Status, s.Bundle,
			s.Created.UTC().Format("2006-01-02T15:04:05Z"))
	}
	return 0, w.Flush()
}

func features(g global, args []string) (int, error) {
	if _, err := parse(flag.NewFlagSet("features", flag.ContinueOnError), args, 0); err != nil {
		return 0, err
	}
	return 0, printJSON(g.stdout, runc.Features(wire.Version))
}
