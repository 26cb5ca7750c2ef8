package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

func (j *job) started() audit.RunStarted {
	e := audit.RunStarted{Tool: j.tool.name, Digest: j.tool.digest(), Argv: j.args(),
		Cwd: j.plan.Command.Cwd, Profile: j.profile(),
		Plan: planDigest(j.plan), Warnings: j.eff.Warnings(), Learn: j.req.Learn}
	if j.source != nil {
		e.Workspace = j.source.Name()
	}
	if j.hold != nil {
		e.Digest = ""
	}
	for _, v := range j.env {
		name, _, _ := strings.Cut(v, "=")
		e.Env = append(e.Env, name)
	}
	return e
}

func (j *job) exec() audit.Exec {
	if j.script != nil {
		return audit.Exec{Program: j.tool.name, Digest: j.tool.digest(), Argv: j.script.argv(),
			Cwd: j.plan.Command.Cwd, PID: 1}
	}
	return audit.Exec{Program: j.tool.name, Digest: j.tool.digest(), Argv: j.args(),
		Cwd: j.plan.Command.Cwd, PID: 1}
}

func planDigest(p jail.Plan) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("bug: a plan that is not JSON: %v", err))
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// readable escapes what is no printable text.
func readable(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		q := strconv.QuoteToGraphic(t)
		if out[i] = t; q[1:len(q)-1] != t {
			out[i] = q
		}
	}
	return out
}
