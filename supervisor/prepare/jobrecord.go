package prepare

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// Started is the event of the beginning of the run.
func (j *Job) Started() audit.RunStarted {
	e := audit.RunStarted{Tool: j.Tool.Name, Digest: j.Tool.Digest(), Argv: j.args(),
		Cwd: j.Plan.Command.Cwd, Profile: j.profile(),
		Plan: planDigest(j.Plan), Warnings: j.Policy.Warnings(), Learn: j.Req.Learn}
	if j.Source != nil {
		e.Workspace = j.Source.Name()
	}
	if j.Holds > 0 {
		e.Digest = ""
	}
	for _, v := range j.env {
		name, _, _ := strings.Cut(v, "=")
		e.Env = append(e.Env, name)
	}
	return e
}

// Exec is the event of what the run executes.
func (j *Job) Exec() audit.Exec {
	if j.Script != nil {
		return audit.Exec{Program: j.Tool.Name, Digest: j.Tool.Digest(), Argv: j.Script.argv(),
			Cwd: j.Plan.Command.Cwd, PID: 1}
	}
	return audit.Exec{Program: j.Tool.Name, Digest: j.Tool.Digest(), Argv: j.args(),
		Cwd: j.Plan.Command.Cwd, PID: 1}
}

func planDigest(p jail.Plan) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("bug: a plan that is not JSON: %v", err))
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}
