package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A machine is one kernel and what the suite said there.
type machine struct {
	kernel, userland string
	wanted, instead  string
	died             error
	took             time.Duration
	// By who ran them, and by directory.
	results map[string]map[string]result
	doctor  map[string]string // by who asked
	facts   string
}

// A result is that of one package. Only tests that have none below them are counted.
type result struct {
	passed int
	// The kernel, or the user, has not what they need.
	lacking []skip
	// Has it, or nobody knows.
	skipped []skip
	failed  []string
	// How the binary ended, where that says more: killed, or without having run.
	end string
}

type skip struct{ test, reason string }

func (r result) ok() bool { return len(r.failed) == 0 && len(r.skipped) == 0 && r.end == "" }

func (m *machine) read(dir string, packages []pkg, as []string) error {
	m.results, m.doctor = map[string]map[string]result{}, map[string]string{}
	for _, w := range as {
		results := map[string]result{}
		for _, p := range packages {
			r, err := readResult(filepath.Join(dir, w, p.name), w)
			if err != nil {
				return fmt.Errorf("%s as %s: %w", p.dir, w, err)
			}
			results[p.dir] = r
		}
		doctor, err := os.ReadFile(filepath.Join(dir, w, "doctor"))
		if err != nil {
			doctor = []byte("it was never asked\n")
		}
		m.doctor[w] = string(doctor)
		m.results[w] = results
		// Without them the report says less.
		facts, _ := os.ReadFile(filepath.Join(dir, w, "facts"))
		m.facts = string(facts)
	}
	return nil
}

func readResult(path, who string) (result, error) {
	text, err := os.ReadFile(path + ".log")
	if errors.Is(err, fs.ErrNotExist) {
		return result{end: "did not run"}, nil
	} else if err != nil {
		return result{}, err
	}
	var r result
	if rc, err := os.ReadFile(path + ".rc"); err != nil {
		r.end = "did not end"
	} else if code := strings.TrimSpace(string(rc)); code != "0" && code != "1" {
		r.end = "exit code " + code
	}
	cmd := exec.Command("go", "tool", "test2json")
	cmd.Stdin = bytes.NewReader(text)
	events, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("go tool test2json: %w", err)
	}
	said, parents, final := map[string]string{}, map[string]bool{}, map[string]string{}
	var order []string
	lines := bufio.NewScanner(bytes.NewReader(events))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return r, err
		}
		if e.Test == "" {
			continue
		}
		switch e.Action {
		case "run":
			order = append(order, e.Test)
			final[e.Test] = "did not end"
			for at := range e.Test {
				if e.Test[at] == '/' {
					parents[e.Test[:at]] = true
				}
			}
		case "output":
			said[e.Test] += e.Output
		case "pass", "fail", "skip":
			final[e.Test] = e.Action
		}
	}
	for _, test := range order {
		switch final[test] {
		case "pass":
			if !parents[test] {
				r.passed++
			}
		case "skip":
			s := skip{test, reason(said[test])}
			if lacks(s.reason, who) {
				r.lacking = append(r.lacking, s)
			} else {
				r.skipped = append(r.skipped, s)
			}
		case "fail":
			if !parents[test] || !anyBelow(test, order, final) {
				r.failed = append(r.failed, test)
			}
		default:
			r.failed = append(r.failed, test+" ("+final[test]+")")
		}
	}
	return r, lines.Err()
}

// anyBelow reports whether a part of the test failed, which then says more than the whole.
func anyBelow(test string, order []string, final map[string]string) bool {
	for _, t := range order {
		if strings.HasPrefix(t, test+"/") && final[t] != "pass" && final[t] != "skip" {
			return true
		}
	}
	return false
}

// reason is what a test said when it was skipped.
func reason(said string) string {
	for line := range strings.Lines(said) {
		if _, text, ok := strings.Cut(line, "_test.go:"); ok {
			if _, why, ok := strings.Cut(text, ": "); ok {
				return strings.TrimSpace(why)
			}
		}
		if _, text, ok := strings.Cut(line, "jailtest.go:"); ok {
			if _, why, ok := strings.Cut(text, ": "); ok {
				return strings.TrimSpace(why)
			}
		}
	}
	return "without a reason"
}

var (
	olderLandlock = regexp.MustCompile(`^landlock version \d+: .* needs \d+$`)
	rootOnly      = regexp.MustCompile(`\broot\b`)
	longer        = regexp.MustCompile(`\bJAIL_(TEST_LONG|WASI_TESTSUITE)\b`)
	hybrid        = regexp.MustCompile(`^this host has no hybrid hierarchy`)
	kernelItself  = regexp.MustCompile(`^this kernel refuses it by itself: `)
)

// lacks reports whether a skip is right: on a kernel whose Landlock is older than what is tested,
// for a user who is not root, of a form that has to be asked for, of what is about control groups
// v1, and of an attack that the kernel refuses before it asks any wall.
func lacks(reason, who string) bool {
	return olderLandlock.MatchString(reason) || who == "user" && rootOnly.MatchString(reason) ||
		longer.MatchString(reason) || hybrid.MatchString(reason) || kernelItself.MatchString(reason)
}
