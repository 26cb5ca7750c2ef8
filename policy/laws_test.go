package policy_test

import (
	"testing"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/policytest"
)

func TestLaws(t *testing.T) {
	t.Run("Globs", func(t *testing.T) {
		policytest.Laws(t, policytest.Globs(), nil, policy.MustGlobs("**"))
	})
	t.Run("Host", func(t *testing.T) {
		policytest.Laws(t, policytest.Host(), policy.Host{}, policy.AnyHost)
	})
	t.Run("Ports", func(t *testing.T) {
		policytest.Laws(t, policytest.Ports(), nil, policy.AllPorts())
	})
	t.Run("Fetch", func(t *testing.T) {
		policytest.Laws(t, policytest.Fetch(), policy.Fetch{}, policy.TopFetch())
	})
	t.Run("Limits", func(t *testing.T) {
		policytest.Laws(t, policytest.Limits(), policy.Limits{}, policy.TopLimits())
	})
	t.Run("FetchLimits", func(t *testing.T) {
		policytest.Laws(t, policytest.FetchLimits(), policy.FetchLimits{}, policy.TopFetchLimits())
	})
	t.Run("Workspace", func(t *testing.T) {
		policytest.Laws(t, policytest.Workspace(), policy.Workspace{}, policy.Top().Workspace)
	})
	t.Run("Mounts", func(t *testing.T) {
		policytest.Laws(t, policytest.Mounts(), nil, policy.TopMounts())
	})
	t.Run("Tools", func(t *testing.T) {
		policytest.Laws(t, policytest.Tools(), policy.Tools{}, policy.TopTools())
	})
	t.Run("Env", func(t *testing.T) {
		policytest.Laws(t, policytest.Env(), policy.Env{}, policy.TopEnv())
	})
	t.Run("Vars", func(t *testing.T) {
		policytest.Laws(t, policytest.Vars(), policy.Vars{}, policy.Vars{Any: true})
	})
	t.Run("Audit", func(t *testing.T) {
		policytest.Laws(t, policytest.Audit(), policy.Audit{}, policy.TopAudit())
	})
	t.Run("Approve", func(t *testing.T) {
		var never policy.Approve
		for _, action := range policy.ApproveActions() {
			never = append(never, policy.ApproveRule{Action: action})
		}
		policytest.Laws(t, policytest.Approve(), never, nil)
	})
	t.Run("Agent", func(t *testing.T) {
		policytest.Laws(t, policytest.Agent(), policy.Agents{}, policy.TopAgents())
	})
	t.Run("Outer", func(t *testing.T) {
		policytest.Laws(t, policytest.Outer(), policy.Outer{Must: true}, policy.TopOuter())
	})
	t.Run("Session", func(t *testing.T) {
		policytest.Laws(t, policytest.Session(), policy.Session{}, policy.TopSession())
	})
	t.Run("Syscalls", func(t *testing.T) {
		policytest.Laws(t, policytest.Syscalls(), policy.Syscalls{}, policy.TopSyscalls())
	})
	t.Run("Policy", func(t *testing.T) {
		policytest.Laws(t, policytest.Policy(), policy.Policy{}, policy.Top())
	})
}
