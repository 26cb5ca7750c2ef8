package policytest_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// What became of a fault.
const (
	found   = "found"
	endless = "found by a test that did not end"
	unbuilt = "does not compile"
	missed  = "survived"
)

// equivalents lists the faults that change nothing that can be seen, each with its reason.
const equivalents = "testdata/equivalent.txt"

// TestMutants plants faults in package policy, one at a time, and wants its tests to find each that
// is not listed, with its reason, as one that changes nothing. The tests are built once, with all
// faults behind a switch. It takes minutes, so it runs only where JAIL_TEST_LONG is set;
// JAIL_MUTANTS is then how many are tried, evenly spread, and all without it.
// JAIL_MUTANTS_IN=a.go,b.go tries those of these files.
func TestMutants(t *testing.T) {
	if os.Getenv("JAIL_TEST_LONG") == "" {
		t.Skip("JAIL_TEST_LONG is not set: each of some hundred faults is a run of the tests")
	}
	all, program := plantAll(t)
	listed := readEquivalents(t)
	for name := range listed {
		if !slices.ContainsFunc(all, func(f fault) bool { return f.name() == name }) {
			t.Errorf("%s: %q is no fault that can be planted any more", equivalents, name)
		}
	}
	if only := os.Getenv("JAIL_MUTANTS_IN"); only != "" {
		files := strings.Split(only, ",")
		all = slices.DeleteFunc(all, func(f fault) bool {
			return !slices.Contains(files, filepath.Base(f.file))
		})
	}
	tried := all
	if n, err := strconv.Atoi(os.Getenv("JAIL_MUTANTS")); err == nil && 0 < n && n < len(all) {
		tried = nil
		for i := range n {
			tried = append(tried, all[i*len(all)/n])
		}
	}
	if how, out := runPlanted(program, 0); how != missed {
		t.Fatalf("without a fault, the tests fail: %s", out)
	}
	totals, equal, left := map[string]int{}, 0, 0
	next, done := make(chan fault), make(chan func())
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for f := range next {
				how := f.run(program)
				done <- func() {
					if totals[how]++; how == missed && listed[f.name()] {
						equal++
					} else if how == missed {
						t.Errorf("%s:%d survived: %s", filepath.Base(f.file), f.line, f.name())
					} else if how != unbuilt && listed[f.name()] {
						t.Errorf("%s: %q is found, and so changes something", equivalents, f.name())
					}
				}
			}
		})
	}
	go func() {
		end, bounded := t.Deadline()
		for i, f := range tried {
			if bounded && time.Until(end) < 3*time.Minute {
				// What is known is worth more than the rest.
				left = len(tried) - i
				break
			}
			next <- f
		}
		close(next)
		workers.Wait()
		close(done)
	}()
	count := 0
	tell := func() {
		t.Logf("%d of %d faults, of %d: %d found, %d of these by a test that did not end; %d "+
			"survived, %d of these change nothing; %d do not compile",
			count, len(tried), len(all), totals[found]+totals[endless], totals[endless],
			totals[missed], equal, totals[unbuilt])
	}
	for note := range done {
		note()
		if count++; count%50 == 0 {
			tell()
		}
	}
	tell()
	if left > 0 {
		t.Errorf("%d faults were not tried: the time is up", left)
	}
}

// readEquivalents reads the names of the faults that change nothing: a line of each, under a
// comment that says why.
func readEquivalents(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.Open(equivalents)
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	listed, reason := map[string]bool{}, ""
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "# "):
			reason = line
		case line == "":
			reason = ""
		case reason == "" || listed[line]:
			t.Errorf("%s: %q has no reason above it, or stands there twice", equivalents, line)
		default:
			listed[line] = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return listed
}

// TestEquivalents wants a reason for each fault that is said to change nothing.
func TestEquivalents(t *testing.T) { readEquivalents(t) }

// run tells what the tests make of a fault.
func (f fault) run(program string) string {
	if f.alone == nil {
		how, _ := runPlanted(program, f.number)
		return how
	}
	dir, err := os.MkdirTemp("", "planted")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(dir)
	program, err = compile(dir, map[string][]byte{f.file: f.alone})
	if err != nil {
		return unbuilt
	}
	how, _ := runPlanted(program, f.number)
	return how
}

// compile builds the tests of the package with other texts of some of its files, and leaves the
// files alone.
func compile(dir string, texts map[string][]byte) (string, error) {
	list := map[string]string{}
	for file, text := range texts {
		abs, err := filepath.Abs(file)
		list[abs] = filepath.Join(dir, filepath.Base(file))
		if err := cmp.Or(err, os.WriteFile(list[abs], text, 0o600)); err != nil {
			return "", err
		}
	}
	overlay, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "policy.test")
	text, err := json.Marshal(map[string]map[string]string{"Replace": list})
	if err := cmp.Or(err, os.WriteFile(overlay, text, 0o600)); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "test", "-overlay", overlay, "-vet=off", "-c", "-o", program,
		planted).CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return program, nil
}

// runPlanted runs the tests with one fault switched on: first few cases of each law, which find
// most, then many. It returns what became of the fault, and what the tests said.
func runPlanted(program string, number int) (how, said string) {
	for _, checks := range []string{"1", "20", "200"} {
		// A loop that cannot be interrupted keeps the tests' own bound from ending them.
		ctx, cancel := context.WithTimeout(context.Background(), 150*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, "-test.failfast", "-rapid.checks="+checks,
			"-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s", "-test.timeout=2m")
		cmd.Dir = planted
		cmd.Env = append(os.Environ(), "JAIL_PLANTED="+strconv.Itoa(number))
		if out, err := cmd.CombinedOutput(); err != nil {
			if ctx.Err() != nil || strings.Contains(string(out), "panic: test timed out") {
				return endless, string(out)
			}
			return found, string(out)
		}
	}
	return missed, ""
}
