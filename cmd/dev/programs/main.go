// Command programs runs everyday programs of the host plainly and in a jail under the profile
// build, and prints what differs: exit codes, output, files, and system calls that were refused.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/jail-sandbox/jail/policy"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("programs", flag.ContinueOnError)
	flags.SetOutput(stderr)
	bin := flags.String("bin", "bin", "the `DIRECTORY` of jail")
	only := flags.String("run", "", "run only the programs whose names match `REGEXP`")
	bound := flags.Duration("bound", 10*time.Minute, "take a program that runs for `TIME` to hang")
	outer := flags.String("outer", "none", "run the jails inside an outer `LAYER` (docs/outer.md)")
	packages := flags.Bool("packages", false, "print the packages of Debian that are missing")
	if flags.Parse(args) != nil {
		return 2
	}
	if *packages {
		fmt.Fprintln(stdout, strings.Join(missing(), " "))
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	differ, err := report(ctx, *bin, *outer, *only, *bound, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "programs:", err)
		return 2
	}
	if differ {
		return 1
	}
	return 0
}

// missing returns the packages of the programs that are not here.
func missing() (all []string) {
	for _, p := range programs {
		if !here(p) {
			all = append(all, strings.Fields(p.packages)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// report prints the table and reports whether a program differs that must not, or does not although
// the table says so.
func report(ctx context.Context, bin, outer, only string, bound time.Duration, stdout io.Writer) (bool, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return false, err
	}
	names, err := regexp.Compile("^(" + only + ")$")
	if err != nil {
		return false, err
	}
	state, err := os.MkdirTemp("", "jail-programs-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(state)
	c := comparer{jail: filepath.Join(bin, "jail"), outer: outer, base: filepath.Join(state, "at"),
		bound: bound,
		env:   append(os.Environ(), "JAIL_STATE="+filepath.Join(state, "state"))}
	if err := os.Chmod(state, 0o755); err != nil {
		return false, err
	}
	if c.user, err = ordinaryUser(); err != nil {
		return false, err
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	ran, same, differ := 0, 0, false
	for _, p := range programs {
		if only != "" && !names.MatchString(p.name) {
			continue
		}
		if !here(p) {
			fmt.Fprintf(table, "%s\tnot here\t\n", p.name)
			continue
		}
		found, err := c.compare(ctx, p)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		ran++
		if outer == policy.OuterRunsc && p.gvisor != "" {
			p.differs = p.gvisor
		}
		switch {
		case err != nil:
			differ = true
			fmt.Fprintf(table, "%s\tfailed\t%v\n", p.name, err)
		case len(found) == 0 && p.differs == "":
			same++
			fmt.Fprintf(table, "%s\tthe same\t\n", p.name)
		case len(found) == 0:
			differ = true
			fmt.Fprintf(table, "%s\tthe same\tbut documented: %s\n", p.name, p.differs)
		case p.differs != "":
			fmt.Fprintf(table, "%s\tdocumented\t%s\n\t\t%s\n", p.name, p.differs,
				strings.Join(found, "\n\t\t"))
		default:
			differ = true
			fmt.Fprintf(table, "%s\tDIFFERS\t%s\n", p.name, strings.Join(found, "\n\t\t"))
		}
		table.Flush()
	}
	fmt.Fprintf(stdout, "%d programs, %d the same\n", ran, same)
	return differ, table.Flush()
}
