package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/policy/meaning"
)

// maxItems bounds the items of a policy on a page.
const maxItems = 2000

type policyPage struct {
	Profiles []Profile
	Profile  string
	Question string
	Verbs    []string
	X        *meaning.Explanation
	// The number of items that are not listed.
	Skipped int
	Answer  *meaning.Answer
	Wrong   string
}

// policy answers with the page that explains a profile of this host, as jail policy explain does.
// It accepts names of profiles, not files.
func (c *Console) policy(r *http.Request, s *session) (answer, error) {
	q := r.URL.Query()
	body := policyPage{Profiles: c.Policies.Profiles(),
		Profile: strings.TrimSpace(q.Get("profile")), Question: strings.TrimSpace(q.Get("why")),
		Verbs: meaning.Verbs()}
	body.Profile = cmp.Or(body.Profile, "default")
	status := http.StatusOK
	if !slices.ContainsFunc(body.Profiles, func(p Profile) bool { return p.Name == body.Profile }) {
		status, body.Wrong = http.StatusNotFound, "There is no profile of the name "+
			text(body.Profile)+"."
	} else if x, err := c.Policies.Explain(body.Profile); err != nil {
		status, body.Wrong = http.StatusBadRequest, text(err.Error())
	} else {
		x.Items, body.Skipped = clip(x.Items, maxItems)
		body.X = &x
		if body.Question != "" {
			answer, err := c.Policies.Why(body.Profile, body.Question)
			if err != nil {
				status, body.Wrong = http.StatusBadRequest, text(err.Error())
			} else {
				body.Answer = &answer
			}
		}
	}
	body.Question = text(body.Question)
	return answer{status, "policy.html", s.page("Policy", "policy", body)}, nil
}

// where returns the layer and place of a rule as text, or "" for nil.
func where(o *meaning.Origin) string {
	switch {
	case o == nil:
		return ""
	case o.At == nil:
		return text(o.Layer)
	}
	return text(o.Layer) + ", " + text(o.At.String())
}
