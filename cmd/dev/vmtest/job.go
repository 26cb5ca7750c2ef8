package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const tags = "seccomp,runc_nocriu,netgo,osusergo"

// A job is what the machines are given: the tree, the programs, and a test binary for each package.
type job struct {
	disk     string
	packages []pkg
}

// A pkg is one package with tests.
type pkg struct {
	// Name is the directory's, without slashes.
	dir, name string
	bound     time.Duration
	// skip and run are regular expressions, without blanks, of the tests that are left out, and of those
	// that are run.
	skip, run string
}

// line is that of a package in the files of the job.
func (p pkg) line() string {
	return fmt.Sprintf("%s %s %.0f %s %s\n", p.name, p.dir, p.bound.Seconds(), p.skip,
		cmp.Or(p.run, "."))
}

// Left out: these compile C or Go, or look at the source, and a kernel has no say in that.
var notHere = []string{"runners/tools", "runners/tools/mkbundle", "cmd/dev/bench", "cmd/dev/vmtest",
	"cmd/dev/league"}

// installedDir has the test of the Debian package.
const installedDir = "cmd/dev/vmtest/installed"

// sourceTests ask Go about the source, or build programs from it that only they know, TestFetchGuests
// compiles C, Rust and CPython, and those of cmd/agent agents in Go, Rust and C, TestConsole and those
// of Chromium drive a browser, and TestEveryByteFlipped computes for an hour there: a kernel has no say
// in it.
var sourceTests = map[string]string{
	"cmd": "^TestNotLinked$",
	"cmd/agent": "^(TestTypedStorage|TestTicks|TestLibraries|TestCapabilityOff|TestTemplates|" +
		"TestFacets|TestMembers)$/^(add_)?(go|rust|c)$",
	"cmd/fetch":          "^TestFetchGuests$",
	"cmd/jail/run":       "^TestEmbedding$",
	"cmd/jail/service":   "^TestConsole$",
	"supervisor/audit":   "^TestEveryByteFlipped$",
	"supervisor/console": "^(TestForeignPagesInChromium|TestHostileTextInChromium)$"}

// bound is after what time a test binary hangs; emulated, things take ten to thirty times as long.
const bound = 30 * time.Minute

// slower are those that take longer.
var slower = map[string]time.Duration{"cmd": time.Hour, "cmd/fetch": time.Hour,
	"cmd/jail/policy": time.Hour, "cmd/jail/run": time.Hour, "cmd/jail/session": time.Hour,
	"cmd/jaild": time.Hour, "jail/launch": time.Hour, "jail/workspace": time.Hour}

func newJob(ctx context.Context, c config, log io.Writer) (job, error) {
	dir := filepath.Join(c.dir, "job")
	j := job{disk: filepath.Join(c.dir, "job.ext4")}
	if err := os.RemoveAll(dir); err != nil {
		return j, err
	}
	for _, d := range []string{"t", "built", "src"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return j, err
		}
	}
	var err error
	if j.packages, err = packagesWithTests(ctx, c); err != nil {
		return j, err
	}
	fmt.Fprintf(log, "vmtest: building %d test binaries\n", len(j.packages))
	var lines strings.Builder
	for _, p := range j.packages {
		if _, err := output(ctx, c.tree, nil, "go", "test", "-c", "-vet=off", "-trimpath", "-tags",
			tags, "-ldflags", "-s -w", "-o", filepath.Join(dir, "t", p.name),
			"./"+p.dir); err != nil {
			return j, err
		}
		p.skip = cmp.Or(sourceTests[p.dir], "^$")
		lines.WriteString(p.line())
	}
	if err := os.WriteFile(filepath.Join(dir, "packages"), []byte(lines.String()),
		0o644); err != nil {
		return j, err
	}
	// The rest is copying, which the shell says best.
	script := `set -eu
cp -a "$TREE/.ci/vm/guest" "$TREE/.ci/vm/bin" "$JOB/"
(cd "$TREE" && { git ls-files -co --exclude-standard -z | xargs -0 ls -d 2>/dev/null | tar -cf - -T - ; }) | tar -xf - -C "$JOB/src"
mkdir -p "$JOB/src/bin"
cp "$TREE"/bin/dist/*.deb "$JOB/jail.deb" || { echo "there is no package to install: make deb" >&2; exit 1; }
for program in jail jail-full jaild jail-agentd jail-shim jail-oci jail-init jail-init-agent bundles; do
	cp -a "$TREE/bin/$program" "$JOB/src/bin/"
done
export JAIL_VM_PATH="$PATH" JAIL_VM_BUILT="$JOB/built" JAIL_VM_TREE="$TREE" out="$JOB/program"
cd "$TREE" && PATH="$JOB/bin:$PATH" && . .ci/vm/programs
rm -f "$out"
chown -R 0:0 "$JOB" && chmod -R go-w,a+rX "$JOB"`
	if _, err = output(ctx, c.tree, []string{"TREE=" + c.tree, "JOB=" + dir}, "sh", "-c",
		script); err != nil {
		return j, err
	}
	return lastJob(ctx, c, log)
}

// lastJob makes the disk of what was built last.
func lastJob(ctx context.Context, c config, _ io.Writer) (job, error) {
	dir := filepath.Join(c.dir, "job")
	j := job{disk: filepath.Join(c.dir, "job.ext4")}
	all, err := os.ReadFile(filepath.Join(dir, "packages"))
	if err != nil {
		return j, err
	}
	for line := range strings.Lines(string(all)) {
		var p pkg
		var seconds int
		if _, err := fmt.Sscan(line, &p.name, &p.dir, &seconds, &p.skip, &p.run); err != nil {
			return j, fmt.Errorf("%s: %q: %w", filepath.Join(dir, "packages"), line, err)
		}
		if len(c.packages) > 0 && !slices.Contains(c.packages, p.dir) {
			continue
		}
		p.bound = time.Duration(seconds) * time.Second
		p.run = cmp.Or(c.only[p.dir], c.tests)
		if c.each > 0 {
			p.bound = min(p.bound, c.each)
		}
		j.packages = append(j.packages, p)
	}
	slices.SortStableFunc(j.packages, func(a, b pkg) int {
		return slices.Index(c.packages, a.dir) - slices.Index(c.packages, b.dir)
	})
	var lines strings.Builder
	for _, p := range j.packages {
		lines.WriteString(p.line())
	}
	testFlags := ""
	if c.short {
		testFlags = "-test.short"
	}
	for name, text := range map[string]string{"chosen": lines.String(), "flags": testFlags + "\n",
		"who": strings.Join(c.as, " ") + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return j, err
		}
	}
	const script = `set -eu
rm -f "$DISK"
truncate -s "$(($(du -sm "$JOB" | cut -f1) * 12 / 10 + 1024))M" "$DISK"
PATH="$PATH:/usr/sbin:/sbin" mkfs.ext4 -q -F -O '^has_journal' -m 0 -E root_owner=0:0 -d "$JOB" "$DISK"`
	_, err = output(ctx, c.tree, []string{"DISK=" + j.disk, "JOB=" + dir}, "sh", "-c", script)
	return j, err
}

func packagesWithTests(ctx context.Context, c config) ([]pkg, error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}`
	out, err := output(ctx, c.tree, nil, "go", "list", "-tags", tags, "-f", format, "./...")
	if err != nil {
		return nil, err
	}
	var all []pkg
	for line := range strings.Lines(out) {
		dir, err := filepath.Rel(c.tree, strings.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		if len(c.packages) > 0 && !slices.Contains(c.packages, dir) || len(c.packages) == 0 &&
			slices.Contains(notHere, dir) {
			continue
		}
		p := pkg{dir: dir, name: strings.ReplaceAll(dir, "/", "-"), bound: bound}
		if b, ok := slower[dir]; ok {
			p.bound = b
		}
		all = append(all, p)
	}
	// The package is installed on a machine on which nothing was done yet. What takes long comes
	// last, so that the rest is known before.
	slices.SortStableFunc(all, func(a, b pkg) int {
		switch installedDir {
		case a.dir:
			return -1
		case b.dir:
			return 1
		}
		return cmp.Compare(a.bound, b.bound)
	})
	for _, want := range c.packages {
		if !slices.ContainsFunc(all, func(p pkg) bool { return p.dir == want }) {
			return nil, fmt.Errorf("package %s has no tests, or there is none", want)
		}
	}
	return all, nil
}

// output runs a program that must not fail.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string,
	error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Join(fmt.Errorf("%s %s: %w", name, args[0], err),
			errors.New(strings.TrimSpace(said.String())))
	}
	return string(out), nil
}
