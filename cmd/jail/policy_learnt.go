package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/learn"
	learning "github.com/jail-sandbox/jail/supervisor/learn"
)

// learnProgress shows on a terminal how far learning is; in a pipe it is silent.
func (a *app) learnProgress(silent bool) func(string) {
	if silent || !isTerminal(a.stderr) {
		return nil
	}
	return func(text string) { io.WriteString(a.stderr, "\r\x1b[Kjail: "+printable(text)) }
}

// tellLearnt shows what was observed beside what is granted.
func (a *app) tellLearnt(job learning.Job, r learning.Report, path string) {
	where := "."
	if path != "" {
		where = ": " + path
	}
	fmt.Fprintf(a.stderr, "jail: learnt from %s, %s%s\n", count(r.Runs, "run", "runs"), count(r.Trials, "trial", "trials"), printable(where))
	rows := append([][]string{{"", "OBSERVED", "GRANTED"}}, learntRows(job, r)...)
	_ = table(a.stderr, rows) // there is nobody left to tell that stderr is gone
	for _, n := range r.Draft.Person {
		say(a.stderr, "not granted, needs a person", n)
	}
	say(a.stderr, "not observed", strings.Join(r.Draft.Unseen, "; "))
	if !r.Least {
		say(a.stderr, "hint", "what it could do without was not, or not wholly, tried")
	}
}

func learntRows(job learning.Job, r learning.Report) [][]string {
	d := r.Draft
	opened, executed, inside, written := 0, 0, 0, 0
	for _, f := range r.Observed.Files {
		switch {
		case learn.Within(policy.WorkspaceDir, f.Path):
			if inside++; f.Written {
				written++
			}
		case f.Executed > 0:
			executed++
			opened++
		case !learn.Within("/proc", f.Path):
			opened++
		}
	}
	memory, mounts := 0, 0
	for _, i := range d.Of(learn.KindMount) {
		if i.Mount.Source == "" {
			memory++
		} else {
			mounts++
		}
	}
	rows := [][]string{
		{"workspace", fmt.Sprintf("%d opened, %d written", inside, written), d.Access.String()},
		{"files", fmt.Sprintf("%d opened", opened), count(mounts, "mount", "mounts")},
		{"memory", "-", count(memory, "place", "places")},
	}
	if d.Native {
		rows = append(rows, []string{"programs", fmt.Sprintf("%d executed", executed), count(len(d.Of(learn.KindNative)), "name", "names")})
	} else {
		rows = append(rows, []string{"imports", fmt.Sprintf("%d functions", len(r.Observed.Imports)), "the interface of tools"})
	}
	rows = append(rows,
		[]string{"variables", "-", fmt.Sprint(len(d.Of(learn.KindEnv)) + len(d.Of(learn.KindGiven)))},
		[]string{"system calls", fmt.Sprintf("%d refused", refusedCalls(d)), groupNames(d)},
		[]string{"network", count(len(r.Fetches), "request", "requests"), count(len(d.Of(learn.KindFetch)), "host", "hosts")})
	if job.Base == nil {
		for _, l := range d.Limits {
			rows = append(rows, []string{"limit " + l.Name, l.Why, learn.Amount(l)})
		}
	}
	return rows
}

func refusedCalls(d learn.Draft) int {
	n := 0
	for _, p := range d.Person {
		if strings.HasPrefix(p, "seccomp: ") {
			n++
		}
	}
	return n
}

func groupNames(d learn.Draft) string {
	var names []string
	for _, i := range d.Of(learn.KindGroup) {
		names = append(names, i.Name)
	}
	return dash(strings.Join(names, " "))
}

// quoteArg writes an argument as a person would type it.
func quoteArg(arg string) string {
	if arg != "" && !strings.ContainsFunc(arg, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=:,+@%", r))
	}) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
