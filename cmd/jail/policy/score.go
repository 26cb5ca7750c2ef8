package policy

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
	"github.com/jail-sandbox/jail/cmd/jail/internal/complete"
	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
	"github.com/jail-sandbox/jail/cmd/jail/internal/output"
	"github.com/jail-sandbox/jail/cmd/jail/internal/policies"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/meaning"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// allCalls is the number of system calls of Linux 6.18 on amd64.
const allCalls = 383

func newScore(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "score [flags] NAME|FILE...",
		Short: "score how much a policy exposes a host, from 0 to 100",
		Long: `Score how much of a host a policy exposes to a tool, from 0 to 100, with the parts
of the score: system calls, writing and executing, files, network, secrets, missing limits.
docs/policy.md has the formula.

The exit code is 1 if a score is above --max, else 0.`,
		Example: "  jail policy score default\n  jail policy score --max 40 ./my.toml",
		Args:    command.AtLeast("NAME|FILE"),
	}
	most := cmd.Flags().Int("max", 100, "exit with 1 above `POINTS`")
	complete.First(env, cmd, complete.Profiles)
	return command.Judge(env, cmd, "print a list of objects",
		func(_ *cobra.Command, args []string) ([]scored, bool, error) {
			return scorePolicies(env, args, *most)
		}, writeScores)
}

type scored struct {
	Name string `json:"name"`
	meaning.Score
}

// scorePolicies scores the named policies. The bool is false if a score is above most.
func scorePolicies(env *cli.Env, names []string, most int) ([]scored, bool, error) {
	if most < 0 || most > 100 {
		return nil, false, exit.Usage("", "--max %d: want a number from 0 to 100", most)
	}
	set, err := policies.Load(env)
	if err != nil {
		return nil, false, err
	}
	all, good := []scored{}, true
	for _, name := range names {
		file, err := policies.Open(set, name)
		if err != nil {
			return nil, false, err
		}
		if file.Kind != syntax.Profile {
			return nil, false, exit.Usage("", "%s is a %s, which no tool runs with by itself", name, file.Kind)
		}
		s := meaning.Measure(file.Policy, reachableCalls(file.Policy))
		all, good = append(all, scored{name, s}), good && s.Points <= most
	}
	return all, good, nil
}

func writeScores(w io.Writer, all []scored) {
	for _, s := range all {
		rows := [][]string{{s.Name, strconv.Itoa(s.Points) + " of 100"}}
		for _, p := range s.Parts {
			rows = append(rows, []string{"  " + p.Name, fmt.Sprintf("%d of %d", p.Points, p.Max)})
			for _, why := range p.Why {
				rows = append(rows, []string{"", why})
			}
		}
		output.Table(w, rows)
	}
}

// reachableCalls counts the system calls in the widest filter that a run with this policy can get.
func reachableCalls(p policy.Policy) meaning.Calls {
	out := meaning.Calls{All: allCalls}
	count := func(groups []string) {
		if len(p.Fetch.Allow) > 0 {
			groups = append(slices.Clone(groups), "fetch")
		}
		out.Reachable = max(out.Reachable, len(seccomp.NewFilter(groups...).Allow))
	}
	if p.Syscalls.Has(policy.GroupWASI) && len(p.Tools.Allow)+len(p.Tools.Modules) > 0 {
		count(seccomp.WASIGroups)
	}
	if p.Syscalls.Has(policy.GroupNative) && len(p.Tools.Native)+len(p.Tools.Images) > 0 {
		count(seccomp.NativeGroups)
	}
	return out
}
