package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// A profileQuestion is one question of an interview. check says what is wrong with an answer.
type profileQuestion struct {
	text, none string // none is what an empty answer means
	take       func(answer string) error
}

// interview asks what a profile is to be, each question with what an empty answer means, and again where an answer cannot be.
func (a *app) interview(f *newProfile) error {
	in := bufio.NewReader(a.stdin)
	fmt.Fprintf(a.stderr, "A profile called %s. An empty answer takes what is in brackets; the end of the input leaves everything as it is.\n", f.name)
	for _, q := range a.profileQuestions(f) {
		for {
			answer, err := a.answer(in, q.text+" ["+q.none+"]: ")
			if err != nil {
				return err
			}
			if answer == "" {
				break
			}
			if err = q.take(answer); err == nil {
				break
			}
			fmt.Fprintf(a.stderr, "  %s\n", printable(err.Error()))
		}
	}
	text, _, err := a.profileText(f)
	if err != nil {
		return err
	}
	io.WriteString(a.stderr, "\n"+printableText(text)+"\n")
	answer, err := a.answer(in, "Write it to "+f.output+"? [y]: ")
	if err == nil && answer != "" && !strings.HasPrefix(strings.ToLower(answer), "y") {
		err = errNothing
	}
	return err
}

func (a *app) answer(in *bufio.Reader, question string) (string, error) {
	io.WriteString(a.stderr, printable(question))
	line, err := in.ReadString('\n')
	if err != nil {
		io.WriteString(a.stderr, "\n")
		if errors.Is(err, io.EOF) {
			err = errNothing
		}
		return "", err
	}
	return strings.TrimSpace(line), nil
}

func (a *app) profileQuestions(f *newProfile) []profileQuestion {
	return []profileQuestion{
		{"What is it for, in a sentence?", "as what it starts from", func(s string) error { f.about = s; return nil }},
		{"Which profile does it start from, or which policy file?", "default", func(s string) error {
			set, err := a.loadProfiles()
			if err == nil {
				_, err = openPolicy(set, s)
			}
			if err == nil {
				f.from = s
			}
			return err
		}},
		{"Which tools of bundles may run, as core-utils/grep?", "those of what it starts from", each(&f.tools, func(s string) error {
			if !strings.Contains(s, "/") {
				return fmt.Errorf("%s: want BUNDLE/COMMAND; jail tool list shows them", s)
			}
			_, err := policy.ParseGlob(s)
			return err
		})},
		{"Which programs of the host may run, by absolute path?", "none besides", each(&f.native, func(s string) error {
			if !filepath.IsAbs(s) {
				return fmt.Errorf("%s: want an absolute path", s)
			}
			_, err := os.Stat(s)
			return err
		})},
		{"What does it get of the workspace: none, read or shadow?", "as what it starts from", func(s string) error {
			var w policy.WorkspaceAccess
			if err := w.UnmarshalText([]byte(s)); err != nil {
				return err
			}
			f.access = s
			return nil
		}},
		{"Which directories of the host may it read?", "none besides", each(&f.read, func(s string) error { _, err := os.Stat(s); return err })},
		{"Which hosts may it read from?", "none besides", each(&f.hosts, func(s string) error { _, err := hostPort(s); return err })},
		{"How much memory?", "as what it starts from", f.limitQuestion("memory")},
		{"For how long, as 30s?", "as what it starts from", f.limitQuestion("wall")},
		{"Which run is it meant for, as grep -rn TODO .?", "the first tool", func(s string) error { f.run = s; return nil }},
	}
}

// each takes words, all of them or none.
func each(into *[]string, check func(string) error) func(string) error {
	return func(answer string) error {
		words := strings.Fields(strings.ReplaceAll(answer, ",", " "))
		for _, w := range words {
			if err := check(w); err != nil {
				return err
			}
		}
		*into = words
		return nil
	}
}

func (f *newProfile) limitQuestion(name string) func(string) error {
	return func(answer string) error {
		var l policy.Limits
		if err := l.Set(name, answer); err != nil {
			return err
		}
		f.lim = append(f.lim, name+"="+answer)
		return nil
	}
}
