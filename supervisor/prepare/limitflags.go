package prepare

import (
	"fmt"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/detached"
)

// idleLimits is what a caller is told whose --limit asks for more than the policy grants: it lowers
// and never raises, so it changes nothing.
func (j *Job) idleLimits() (out []string) {
	granted := j.Policy.Policy()
	for _, text := range j.Req.Limits {
		flag := policy.NewRequest()
		if text == detached.OutputLimit || flag.Limit(text) != nil {
			continue
		}
		name, _, _ := strings.Cut(text, "=")
		asked, unit, _ := flag.Policy().Limits.Get(name)
		has, _, _ := granted.Limits.Get(name)
		if short, ok := strings.CutPrefix(name, "fetch."); ok {
			asked, unit, _ = flag.Policy().Fetch.Limits.Get(short)
			has, _, _ = granted.Fetch.Limits.Get(short)
		}
		if has < asked {
			out = append(out,
				fmt.Sprintf(
					"--limit %s changes nothing: the policy grants %s, which a flag lowers and never raises; "+
						"jail profile new NAME makes a policy that can grant more", text,
					unit.Format(has)))
		}
	}
	return out
}

// reportWarnings is what each run under report mode is told: what no rule grants was sent.
func reportWarnings(eff policy.Effective) (out []string) {
	for _, w := range eff.Policy().Weaknesses() {
		if w.Rule == "fetch.mode" {
			out = append(out, w.Text)
		}
	}
	return out
}

// Warnings are what the run is told, whatever it does.
func (j *Job) Warnings() []string { return append(reportWarnings(j.Policy), j.idleLimits()...) }
