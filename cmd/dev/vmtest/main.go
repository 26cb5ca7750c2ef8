// Command vmtest runs the test suite on other kernels, under systemd and control groups v2, in
// emulated virtual machines that it makes: as root, and as a user to whom systemd delegates
// cgroups. The test binaries are built on the host.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const help = `vmtest runs the test suite in virtual machines with other kernels. It needs root, Debian, and the package of make deb.

usage: vmtest [-kernels LIST] [-packages LIST] [-run REGEXP] [-as LIST] [-short] [-bound TIME]
              [-each TIME] [-dir DIR] [-o FILE] [-fresh] [-again]

  -kernels LIST   of 6.1, 6.12 and newest (default all)
  -packages LIST  of directories of the tree, tested in this order (default all with tests that can
                  run without compilers); DIR=REGEXP has only the tests of DIR that match
  -run REGEXP     only the tests that match, as for go test
  -as LIST        of root and user: the users who run the tests (default both, one after the other)
  -short          pass -test.short to the tests
  -bound TIME     stop a machine after TIME, and report the tests that had not ended (default 150m)
  -each TIME      stop a package after TIME, where it may take longer
  -dir DIR        the directory of images, binaries and logs (default bin/.build/vm)
  -o FILE         write the report to FILE, too
  -fresh          make the images again, from the current archives
  -again          use the binaries of the last run

It fails if a test fails, does not end, or is skipped although the machine has what it needs.

examples: vmtest -kernels 6.12 -packages jail/launch,jail/cgroup
          vmtest -kernels 6.1 -packages cmd -run '^TestService' -as root
`

// A config is what the command line says.
type config struct {
	kernels, packages []string
	as                []string // who runs the tests
	short             bool
	fresh, again      bool
	// bound is of a machine, each of a package; 0 is none of its own.
	bound, each time.Duration
	dir, tree   string
	report      string
	// tests is a regular expression of those to run; empty: all. only has one for some directories.
	tests string
	only  map[string]string
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("vmtest", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, help) }
	kernels := flags.String("kernels", strings.Join(kernelNames(), ","), "")
	packages := flags.String("packages", "", "")
	who := flags.String("as", "root,user", "")
	var c config
	flags.BoolVar(&c.short, "short", false, "")
	flags.BoolVar(&c.fresh, "fresh", false, "")
	flags.BoolVar(&c.again, "again", false, "")
	flags.DurationVar(&c.bound, "bound", 150*time.Minute, "")
	flags.DurationVar(&c.each, "each", 0, "")
	flags.StringVar(&c.tests, "run", "", "")
	flags.StringVar(&c.dir, "dir", "bin/.build/vm", "")
	flags.StringVar(&c.report, "o", "", "")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil || flags.NArg() > 0 {
		return 2
	}
	c.kernels, c.packages, c.as = list(*kernels), list(*packages), list(*who)
	for _, k := range c.kernels {
		if !slices.Contains(kernelNames(), k) {
			fmt.Fprintf(stderr, "vmtest: error: kernel %q: there are %s\n", k,
				strings.Join(kernelNames(), ", "))
			return 2
		}
	}
	for _, w := range c.as {
		if w != "root" && w != "user" {
			fmt.Fprintf(stderr, "vmtest: error: -as %q: there are root and user\n", w)
			return 2
		}
	}
	c.only = map[string]string{}
	for i, p := range c.packages {
		dir, tests, _ := strings.Cut(p, "=")
		c.packages[i], c.only[dir] = dir, tests
	}
	for _, tests := range append(slices.Collect(maps.Values(c.only)), c.tests) {
		if _, err := regexp.Compile(tests); err != nil || strings.ContainsAny(tests, " \t\n") {
			fmt.Fprintf(stderr, "vmtest: error: tests %q: want a regular expression without blanks\n",
				tests)
			return 2
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := vmtest(ctx, c, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "vmtest: error:", err)
		return 1
	}
	if !ok {
		return 1
	}
	return 0
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// vmtest reports whether all went well.
func vmtest(ctx context.Context, c config, stdout, stderr io.Writer) (ok bool, err error) {
	if os.Geteuid() != 0 {
		return false, errors.New("only root can make the machines' file systems")
	}
	if c.tree, err = os.Getwd(); err != nil {
		return false, err
	}
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return false, err
	}
	makeJob := newJob
	if c.again {
		makeJob = lastJob
	}
	job, err := makeJob(ctx, c, stderr)
	if err != nil {
		return false, err
	}
	r := report{config: c, packages: job.packages, date: time.Now()}
	for _, name := range c.kernels {
		img, err := makeImage(ctx, c, name, stderr)
		if err != nil {
			return false, err
		}
		m := machine{kernel: img.kernel, userland: img.suite, wanted: name, instead: img.instead}
		begun := time.Now()
		if err := boot(ctx, c, img, job, stderr); err != nil {
			m.died = err
		}
		m.took = time.Since(begun)
		if err := m.read(filepath.Join(c.dir, "results", name), job.packages, c.as); err != nil {
			return false, err
		}
		r.machines = append(r.machines, m)
	}
	text := r.markdown()
	if _, err := io.WriteString(stdout, text); err != nil {
		return false, err
	}
	if c.report != "" {
		if err := os.WriteFile(c.report, []byte(text), 0o644); err != nil {
			return false, err
		}
	}
	return r.ok(), nil
}
