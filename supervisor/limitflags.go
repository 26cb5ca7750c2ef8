package supervisor

import (
	"fmt"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// detachedOutput is the limit that detached runs get beside their callers'.
const detachedOutput = "output=" + maxDetachedOutput

// idleLimits is what a caller is told whose --limit asks for more than the policy grants: it lowers
// and never raises, so it changes nothing.
func (j *job) idleLimits() (out []string) {
	granted := j.eff.Policy()
	for _, text := range j.req.Limits {
		flag := policy.NewRequest()
		if text == detachedOutput || flag.Limit(text) != nil {
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
