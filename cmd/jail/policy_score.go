package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/meaning"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// allCalls is how many system calls Linux 6.18 has on amd64, the most that a filter could let through.
const allCalls = 383

func (a *app) policyScoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "score [flags] NAME|FILE...",
		Short: "say how exposed a policy leaves a host, from 0 to 100",
		Long: `Say how much of a host a policy leaves open to a tool, as points from 0 to 100, with the parts that they are made of: system calls, what can be
written and run, files, network, secrets, missing limits. The formula is in docs/policy.md.

Exits with 0, and with 1 if one of them has more points than --max.`,
		Example: "  jail policy score default\n  jail policy score --max 40 ./my.toml",
		Args:    atLeast("NAME|FILE"),
	}
	most := cmd.Flags().Int("max", 100, "exit with 1 above `POINTS`")
	asJSON := jsonFlag(cmd, "print a list of objects")
	a.completeFirst(cmd, a.profileNames)
	cmd.RunE = func(_ *cobra.Command, args []string) error { return a.scorePolicies(args, *most, *asJSON) }
	return cmd
}

type scored struct {
	Name string `json:"name"`
	meaning.Score
}

func (a *app) scorePolicies(names []string, most int, asJSON bool) error {
	if most < 0 || most > 100 {
		return usage("", "--max %d: want a number from 0 to 100", most)
	}
	set, err := a.loadProfiles()
	if err != nil {
		return err
	}
	all, over := []scored{}, false
	for _, name := range names {
		file, err := openPolicy(set, name)
		if err != nil {
			return err
		}
		if file.Kind != syntax.Profile {
			return usage("", "%s is a %s, which no tool runs with by itself", name, file.Kind)
		}
		s := meaning.Measure(file.Policy, reachableCalls(file.Policy))
		all, over = append(all, scored{name, s}), over || s.Points > most
	}
	err = a.show(asJSON, all, func(w io.Writer) error { return writeScores(w, all) })
	if err == nil && over {
		return exitNo
	}
	return err
}

func writeScores(w io.Writer, all []scored) error {
	for _, s := range all {
		rows := [][]string{{s.Name, strconv.Itoa(s.Points) + " of 100"}}
		for _, p := range s.Parts {
			rows = append(rows, []string{"  " + p.Name, fmt.Sprintf("%d of %d", p.Points, p.Max)})
			for _, why := range p.Why {
				rows = append(rows, []string{"", why})
			}
		}
		if err := table(w, rows); err != nil {
			return err
		}
	}
	return nil
}

// reachableCalls counts what the widest filter lets through that a run with this policy can have.
func reachableCalls(p policy.Policy) meaning.Calls {
	out := meaning.Calls{All: allCalls}
	count := func(groups []string) {
		if len(p.Fetch.Allow) > 0 {
			groups = append(slices.Clone(groups), "fetch")
		}
		out.Reachable = max(out.Reachable, len(jail.NewFilter(groups...).Allow))
	}
	if p.Syscalls.Has(policy.GroupWASI) && len(p.Tools.Allow)+len(p.Tools.Modules) > 0 {
		count(jail.WASIGroups)
	}
	if p.Syscalls.Has(policy.GroupNative) && len(p.Tools.Native) > 0 {
		count(jail.NativeGroups)
	}
	return out
}
