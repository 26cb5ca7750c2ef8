package execute

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/ended"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// maxDenials is how many refusals are printed one by one.
const maxDenials = 10

// Tell says on standard error what a person wants to know of a run besides its output.
// verbose adds the calls that programs try and do without, in one line.
func Tell(env *cli.Env, res message.Result, verbose bool) {
	for _, w := range res.Warnings {
		output.Say(env.Stderr, "warning", w)
	}
	// Else the error says it.
	if res.Error == nil || res.Error.Code != problem.Refused {
		tellDenied(env, res)
		if verbose {
			tellProbes(env, res)
		}
	}
	if l := res.Limit; l != nil {
		text := fmt.Sprintf("%s: %s reached", l.Name, output.Quantity(l.Name, l.Limit))
		// A module's, which was refused it.
		if l.Name == "memory" && l.Peak < l.Limit {
			text = fmt.Sprintf("%s: more than %s was asked for", l.Name,
				output.Quantity(l.Name, l.Limit))
		}
		if l.Peak > 0 {
			text += fmt.Sprintf(" (peak %s", output.Quantity(l.Name, l.Peak))
			if l.Layer != "" {
				text += ", " + l.Layer + "'s own use in it"
			}
			text += ")"
		}
		output.Say(env.Stderr, "limit", text)
	}
	if res.Trap != nil {
		output.Say(env.Stderr, "trap", res.Trap.Sentence)
	}
	c := res.Changes
	fmt.Fprint(env.Stderr, ended.Changes(res.ID, res.Workspace, c.Added, c.Modified, c.Deleted,
		res.Error != nil))
}

// nextAfter returns the command that says more of a limit that a failed tool met, or of what it was
// refused; "" where none does. explain holds the flags of that command for the policy of the run.
func nextAfter(res message.Result, explain string) string {
	ask := ""
	if l := res.Limit; l != nil && slices.Contains(policy.LimitNames(), l.Name) {
		ask = "limit:" + l.Name
	} else if l == nil && len(res.Denied) > 0 {
		verb, path, _ := strings.Cut(res.Denied[0].What, " ")
		if (verb == "read" || verb == "write") && output.PlainPath.MatchString(path) {
			ask = verb + ":" + path
		}
	}
	if ask == "" {
		return ""
	}
	return "jail policy explain " + explain + "--why " + ask +
		" says which layer decides, and what would change it"
}

func tellDenied(env *cli.Env, res message.Result) {
	told := slices.DeleteFunc(slices.Clone(res.Denied),
		func(d runners.Denial) bool { return d.Probe })
	for i, d := range told {
		if i == maxDenials {
			output.Say(env.Stderr, "denied",
				fmt.Sprintf("and %d more: jail audit show --run %s", len(told)-i, res.ID))
			break
		}
		text := fmt.Sprintf("%s (%s)", d.What, d.Rule)
		if d.Count > 1 {
			text += fmt.Sprintf(", %d times", d.Count)
		}
		output.Say(env.Stderr, "denied", text)
	}
}

// tellProbes says in one line which calls were refused that programs try and do without.
func tellProbes(env *cli.Env, res message.Result) {
	var all []string
	for _, d := range res.Denied {
		if d.Probe {
			all = append(all, fmt.Sprintf("%s (%d)", d.What, d.Count))
		}
	}
	if len(all) > 0 {
		output.Say(env.Stderr, "denied", "calls that programs try and do without: "+
			strings.Join(all, ", "))
	}
}
