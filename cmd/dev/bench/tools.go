package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const toolsPart = "tools"

// toolsPolicy lets the jobs have what they take: it is their speed that is measured, not their
// limits.
const toolsPolicy = `policy = 1
name = "bench"
about = "What bench measures."
include = ["base"]
[workspace]
access = "shadow"
[tools]
allow = ["*/*"]
[limits]
wall = "10m"
cpu_time = "10m"
cpus = 2.0
memory = "2GiB"
output = "256MiB"
file_size = "512MiB"
workspace = "1GiB"
`

// starts are the shipped tools, each asked for next to nothing, with the host's program of the same
// kind.
var starts = []struct {
	argv []string
	host []string
}{
	{[]string{"true"}, []string{"true"}},
	{[]string{"awk", "BEGIN { print 1 }"}, []string{"awk", "BEGIN { print 1 }"}},
	{[]string{"jq", "-n", "1"}, []string{"jq", "-n", "1"}},
	{[]string{"yq", "-n", "1"}, []string{"yq", "-n", "1"}},
	{[]string{"mlr", "-n", "put", "end { print 1 }"},
		[]string{"mlr", "-n", "put", "end { print 1 }"}},
	{[]string{"sqlite3", ":memory:", "select 1"}, []string{"sqlite3", ":memory:", "select 1"}},
	{[]string{"rg", "-c", "a", "lines"}, []string{"rg", "-c", "a", "lines"}},
	{[]string{"js", "-e", "print(1)"}, []string{"node", "-e", "console.log(1)"}},
	{[]string{"python3", "-c", "print(1)"}, []string{"python3", "-c", "print(1)"}},
}

const (
	pipeline = `cat big | tr a-m A-M | grep -v ZZZZ | sed 's/N/n/' | wc -c`
	pyLoop   = `
def fib(n): return n if n < 2 else fib(n-1) + fib(n-2)
import json, hashlib
fib(25)
for _ in range(20): json.loads(json.dumps([{"a": i, "b": str(i)} for i in range(1000)]))
hashlib.sha256(b"x" * 20000000).hexdigest()
d = {}
for i in range(300000): d[i % 1000] = d.get(i % 1000, 0) + i
`
	jsLoop = `function fib(n) { return n < 2 ? n : fib(n-1) + fib(n-2) } fib(25); let s = 0; for (let i = 0; i < 3000000; i++) s += i % 7`
)

// jobs are longer ones: the tool in a jail, and what is compared with it.
var jobs = []struct {
	name       string
	jail, host []string
	// That the other engine runs, below the bundles; "" for what is no single module.
	module string
}{
	{"five-stage pipeline over 100 MB, beside dash with the host's tools",
		[]string{"sh", "-c", pipeline}, []string{"dash", "-c", pipeline}, ""},
	{"`sha256sum` of 100 MB", []string{"sha256sum", "big"}, []string{"sha256sum", "big"},
		"core-utils/toybox.wasm"},
	{"`sort` of 1,000,000 lines", []string{"sort", "lines"}, []string{"sort", "lines"},
		"core-utils/toybox.wasm"},
	{"Python: calls, JSON, sha256, dictionary", []string{"python3", "-c", pyLoop},
		[]string{"python3", "-c", pyLoop}, "python/python.wasm"},
	{"JavaScript: calls, loop, beside Node's compiler", []string{"js", "-e", jsLoop},
		[]string{"node", "-e", jsLoop}, "js/qjs.wasm"},
}

// tools measures the shipped tools: how long each takes to start when nothing is compiled yet and
// when it is, and how long work takes beside the host's programs.
func tools(ctx context.Context, bin string, rounds int, stdout, progress io.Writer) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("only root can start jails")
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "jail-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &toolBed{dir: dir, jail: filepath.Join(bin, "jail")}
	if err := b.write(); err != nil {
		return err
	}
	fmt.Fprintf(stdout,
		"\nStarts of the shipped tools by `jail run` without a daemon, in milliseconds. Cold is the first run ever, with the module's compilation (median of 3); cached the others (median of %d).\n\n", rounds)
	t := table{head: []string{"", "cold", "cached", "host's"}}
	for _, s := range starts {
		fmt.Fprintf(progress, "bench: %s\n", s.argv[0])
		var cold, cached, host sample
		for i := range 3 {
			took, err := b.once(ctx, fmt.Sprintf("cold-%s-%d", s.argv[0], i), s.argv)
			if err != nil {
				return err
			}
			cold = append(cold, took)
		}
		for range rounds {
			took, err := b.once(ctx, "cold-"+s.argv[0]+"-0", s.argv)
			if err != nil {
				return err
			}
			cached = append(cached, took)
			if len(s.host) > 0 && find(s.host[0]) != "" {
				if took, err = b.timed(ctx, "", s.host); err != nil {
					return err
				}
				host = append(host, took)
			}
		}
		t.add("`"+s.argv[0]+"`", millis(cold.median()), millis(cached.median()), orNone(host))
	}
	if err := t.write(stdout); err != nil {
		return err
	}
	engine, err := b.otherEngine(ctx)
	if err != nil {
		fmt.Fprintf(progress, "bench: no other engine: %v\n", err)
	}
	fmt.Fprintf(stdout,
		"\nWork, compiled before, in milliseconds; medians of 3. Wasmtime runs the very same modules, without a jail.\n\n")
	t = table{head: []string{"", "in a jail", "host's", "times", "wasmtime", "times"}}
	for _, j := range jobs {
		fmt.Fprintf(progress, "bench: %s\n", j.name)
		var in, host, other sample
		for i := range 4 {
			took, err := b.once(ctx, "jobs", j.jail)
			if err != nil {
				return err
			}
			if i > 0 { // the first compiles
				in = append(in, took)
			}
			if i > 0 && find(j.host[0]) != "" {
				if took, err = b.timed(ctx, "", j.host); err != nil {
					return err
				}
				host = append(host, took)
			}
			if engine == "" || j.module == "" {
				continue
			}
			module := filepath.Join(bin, "bundles", j.module)
			if took, err = b.timed(ctx, "", append([]string{engine, filepath.Join(b.dir,
				filepath.Base(module)+".compiled"), module, "."}, j.jail...)); err != nil {
				return err
			}
			if i > 0 {
				other = append(other, took)
			}
		}
		t.add(j.name, millis(in.median()), orNone(host), times(in.ratio(host)), orNone(other),
			times(in.ratio(other)))
	}
	return t.write(stdout)
}

// otherSource is the program that runs modules under another engine, from the root of the sources.
const otherSource = "cmd/dev/bench/testdata/wasmtime"

// otherEngine builds it. It is linked with a library of C that comes with its Go module.
func (b *toolBed) otherEngine(ctx context.Context) (string, error) {
	program := filepath.Join(b.dir, "wasmtime")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, ".")
	cmd.Dir, cmd.Env = otherSource, append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
}

func orNone(s sample) string {
	if len(s) == 0 {
		return none
	}
	return millis(s.median())
}

type toolBed struct{ dir, jail string }

func (b *toolBed) write() error {
	work := filepath.Join(b.dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.dir, "policy.toml"), []byte(toolsPolicy),
		0o644); err != nil {
		return err
	}
	// The same data each time.
	random := rand.New(rand.NewPCG(1, 2))
	var lines bytes.Buffer
	w := bufio.NewWriter(&lines)
	for range 1_000_000 {
		fmt.Fprintf(w, "%08x line of text\n", random.Uint32())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "lines"), lines.Bytes(), 0o644); err != nil {
		return err
	}
	big := bytes.Repeat(lines.Bytes(), 100_000_000/lines.Len()+1)[:100_000_000]
	return os.WriteFile(filepath.Join(work, "big"), big, 0o644)
}

// once runs a tool, or with sh a script, in a jail whose state is kept under a name.
func (b *toolBed) once(ctx context.Context, state string, argv []string) (time.Duration, error) {
	args := []string{b.jail, "run", "--quiet", "--discard", "--policy",
		filepath.Join(b.dir, "policy.toml"), "--"}
	if argv[0] == "sh" {
		args = append(args[:1], "sh", "--quiet", "--discard", "--policy",
			filepath.Join(b.dir, "policy.toml"))
		argv = argv[1:]
	}
	return b.timed(ctx, filepath.Join(b.dir, state), append(args, argv...))
}

func (b *toolBed) timed(ctx context.Context, state string, argv []string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = filepath.Join(b.dir, "work"), &stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LC_ALL=C.UTF-8"}
	if state != "" {
		cmd.Env = append(cmd.Env, "JAIL_STATE="+state)
	}
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%q: %w: %s", argv, err, stderr.String())
	}
	return time.Since(start), nil
}
