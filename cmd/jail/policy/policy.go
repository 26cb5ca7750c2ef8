// Package policy has the commands jail policy, for checking, explaining and learning policies, and
// jail profile, for listing, showing and writing profiles.
package policy

import (
	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/cmd/jail/internal/command"
)

// New returns the command jail policy.
func New(env *cli.Env) *cobra.Command {
	return command.Group("policy", "check, explain, learn, compare and test policies",
		newCheck(env), newShow(env), newExplain(env),
		newDiff(env), newTest(env), newLearn(env), newScore(env), newSchema(env), newSign(env))
}
