package main

import (
	"embed"
	"fmt"
	"path"
	"strings"
)

//go:embed days
var daysFS embed.FS

//go:embed prepare.sh
var prepareScript string

// A day is the calls on one repository.
type day struct {
	name string
	// prepare is shell script that makes the repository, with the functions of prepare.sh.
	prepare string
	env     []string
	calls   []call
}

// A call is one command line of the agent.
type call struct {
	class string
	// dir is where the agent stands, below the repository.
	dir  string
	line string
	// background names a call that goes on; stop names one to end.
	background, stop string
	// together: at one time with the call before.
	together bool
}

var dayNames = []string{"go", "node", "python", "c"}

// readDays returns the days in the tree, or one, with at most that many calls each.
func readDays(only string, calls int) (all []day, err error) {
	for _, name := range dayNames {
		if only != "" && only != name {
			continue
		}
		text, err := daysFS.ReadFile(path.Join("days", name+".day"))
		if err != nil {
			return nil, err
		}
		d, err := parseDay(name, string(text))
		if err != nil {
			return nil, err
		}
		if calls > 0 && len(d.calls) > calls {
			d.calls = d.calls[:calls]
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no day is named %q", only)
	}
	return all, nil
}

// parseDay reads a day: lines "prepare SHELL", "env NAME=VALUE", and "CLASS [WORD...]: SHELL" for
// each call, where a WORD is @DIR, &NAME for the background, -NAME to end that, or + for a call at
// one time with the one before.
func parseDay(name, text string) (d day, err error) {
	d.name = name
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "prepare "); ok {
			d.prepare += rest + "\n"
			continue
		}
		if rest, ok := strings.CutPrefix(line, "env "); ok {
			d.env = append(d.env, rest)
			continue
		}
		head, shell, ok := strings.Cut(line, ": ")
		words := strings.Fields(head)
		if !ok || len(words) == 0 {
			return d, fmt.Errorf("%s.day:%d: no call: %q", name, n+1, line)
		}
		c := call{class: words[0], line: shell}
		for _, w := range words[1:] {
			switch w[0] {
			case '@':
				c.dir = w[1:]
			case '&':
				c.background = w[1:]
			case '-':
				c.stop = w[1:]
			case '+':
				c.together = true
			default:
				return d, fmt.Errorf("%s.day:%d: what is %q?", name, n+1, w)
			}
		}
		d.calls = append(d.calls, c)
	}
	return d, nil
}
