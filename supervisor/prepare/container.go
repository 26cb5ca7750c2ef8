package prepare

import (
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Container returns the policy of a container: the ceiling, and then the profile.
func (s *Preparer) Container(c caller.Caller, profile string) (policy.Effective, error) {
	req := message.Request{Profile: profile, NoWorkspace: true}
	state, where := s.o.Policies(), places(c, req)
	ceiling, err := ceilingOf(state, where)
	if err != nil {
		return policy.Effective{}, err
	}
	if err := caller.MayUse(state.Rules(), c, profile, false, ""); err != nil {
		return policy.Effective{}, err
	}
	layer, err := profileOf(req, state.Set.For(where))
	if err != nil {
		return policy.Effective{}, err
	}
	eff, err := policy.Resolve(ceiling, layer)
	if err != nil {
		return eff, problem.New(problem.Usage, "%w", err)
	}
	return eff, nil
}
