package session

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

// TestSharesEngine: the strictest layer decides whether a session shares an engine.
func TestSharesEngine(t *testing.T) {
	const own, request, shared = policy.EngineOwn, policy.EngineRequest, policy.EngineShared
	for _, c := range []struct {
		ceiling, profile policy.EngineRule
		asked            bool
		shares           bool
		refused          string
	}{
		{shared, request, false, false, ""},
		{shared, request, true, true, ""},
		{shared, shared, false, true, ""},
		{shared, own, false, false, ""},
		{shared, own, true, false, "profile"},
		{request, shared, false, false, ""},
		{request, shared, true, true, ""},
		{own, shared, false, false, ""},
		{own, shared, true, false, "ceiling"},
		{own, request, true, false, "ceiling"},
	} {
		ceiling, profile := policy.Top(), policy.Top()
		ceiling.Session.Engine, profile.Session.Engine = c.ceiling, c.profile
		eff, err := policy.Resolve(policy.Layer{Name: policy.CeilingLayer, Policy: ceiling},
			policy.Layer{Name: "profile", Policy: profile})
		if err != nil {
			t.Fatal(err)
		}
		shares, err := sharesEngine(eff, c.asked)
		if shares != c.shares || (err != nil) != (c.refused != "") ||
			err != nil && !strings.Contains(err.Error(), c.refused+" says") {
			t.Errorf("%+v: %v, %v", c, shares, err)
		}
	}
}
