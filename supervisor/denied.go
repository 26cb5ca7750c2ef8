package supervisor

import (
	"strings"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// layerSeccomp is the layer of refused system calls. No word from inside may be in its name.
const layerSeccomp = "seccomp"

// refusedCalls are the system calls that the inner filter refused. The kernel told the shim of them: their counts are exact, whatever runs inside.
func (r *run) refusedCalls() []runners.Denial {
	var out []runners.Denial
	rule := "filter " + strings.Join(r.job.plan.InnerFilter.Groups, "+")
	for _, c := range r.refused {
		out = append(out, runners.Denial{Layer: layerSeccomp, What: c.What, Rule: rule, Count: int(c.Count)})
	}
	return out
}

// recordDenied puts what was refused on record, each thing once with its count. When the first and the last were is known of what the kernel
// told; of the rest there is the word of the inside alone, which is not taken for that.
func (r *run) recordDenied() error {
	calls := len(r.result.Denied) - len(r.refused)
	for i, d := range r.result.Denied {
		e := audit.Denied{Layer: d.Layer, What: d.What, Rule: d.Rule, Count: int64(d.Count)}
		if i >= calls {
			e.First, e.Last = r.refused[i-calls].First, r.refused[i-calls].Last
		}
		if err := r.record(e); err != nil {
			return err
		}
	}
	return nil
}
