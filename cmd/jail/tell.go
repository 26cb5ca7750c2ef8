package main

import (
	"fmt"

	"github.com/jail-sandbox/jail/supervisor"
)

// maxDenials is how many refusals are told one by one.
const maxDenials = 10

// tell says on standard error what a person wants to know of a run besides its output.
func (a *app) tell(res supervisor.Result) {
	for _, w := range res.Warnings {
		say(a.stderr, "warning", w)
	}
	if res.Error == nil || res.Error.Code != supervisor.CodeRefused { // else the error says it
		a.tellDenied(res)
	}
	if l := res.Limit; l != nil {
		text := fmt.Sprintf("%s: %s reached", l.Name, quantity(l.Name, l.Limit))
		if l.Peak > 0 {
			text += fmt.Sprintf(" (peak %s)", quantity(l.Name, l.Peak))
		}
		say(a.stderr, "limit", text)
	}
	if res.Trap != nil {
		say(a.stderr, "trap", res.Trap.Sentence)
	}
	if c := res.Changes; c.Any() {
		next := res.Workspace
		if next == "kept" {
			next = "jail diff " + res.ID
		}
		files := count(int(c.Added+c.Modified+c.Deleted), "file", "files")
		fmt.Fprintf(a.stderr, "jail: run %s changed %s (+%d ~%d -%d): %s\n", res.ID, files, c.Added, c.Modified, c.Deleted, next)
	} else if res.Workspace == "kept" && res.Error == nil {
		fmt.Fprintf(a.stderr, "jail: run %s changed nothing; its shadow is kept: jail discard %s\n", res.ID, res.ID)
	}
}

func (a *app) tellDenied(res supervisor.Result) {
	for i, d := range res.Denied {
		if i == maxDenials {
			say(a.stderr, "denied", fmt.Sprintf("and %d more: jail audit show --run %s", len(res.Denied)-i, res.ID))
			break
		}
		text := fmt.Sprintf("%s (%s)", d.What, d.Rule)
		if d.Count > 1 {
			text += fmt.Sprintf(", %d times", d.Count)
		}
		say(a.stderr, "denied", text)
	}
}
