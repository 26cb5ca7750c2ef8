package prepare

import (
	"context"
	"errors"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/outer"
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// outerRuntime returns the runtime of the outer layer that the job's policy chooses, or nil if it
// chooses none.
func (s *Preparer) outerRuntime(ctx context.Context, j *Job) (*jail.Runtime, error) {
	layer, err := j.Policy.Policy().Outer.Choose()
	if err != nil {
		return nil, outerDenied(j.Policy, j.Req.Outer, err)
	}
	if layer == policy.OuterNone {
		return nil, nil
	}
	if rootless.User() != nil {
		return nil, problem.New(problem.Refused,
			"outer layer %s: a user's jail has one id only, which no runtime can start with", layer).
			WithHint("use the daemon of the host, or --outer none")
	}
	if layer == policy.OuterRunsc && j.Req.Learn {
		return nil, problem.New(problem.Refused,
			"outer layer runsc: the kernel of gVisor does not tell what a tool uses").
			WithHint("learn with --outer none")
	}
	runtime, err := s.o.Runtimes.Find(ctx, layer)
	if errors.Is(err, outer.ErrMissing) {
		return nil, problem.MissingLayer("outer "+layer, err.Error(), howToInstall[layer], err)
	}
	if err != nil {
		return nil, problem.MissingLayer("outer "+layer, err.Error(), "", err)
	}
	return &runtime, nil
}

// fitsOuter refuses a shared engine in a kernel that takes no descriptors after its start.
func (j *Job) fitsOuter() error {
	layer, err := j.Policy.Policy().Outer.Choose()
	if err == nil && layer == policy.OuterRunsc && j.Shared() {
		return problem.New(problem.Refused,
			"outer layer runsc: an engine that invocations share gets each with its descriptors, "+
				"which gVisor does not take after its start").
			WithHint("start the session without --shared-engine")
	}
	return nil
}

// howToInstall says where the runtimes come from.
var howToInstall = map[string]string{
	policy.OuterBwrap: "install the package bubblewrap",
	policy.OuterCrun:  "install the package crun",
	policy.OuterRunc:  "install the package runc",
	policy.OuterRunsc: "make runsc builds it beside jail's own programs (docs/outer.md)",
}

// outerDenied says which policy left no outer layer, or not the one that was asked for.
func outerDenied(eff policy.Effective, asked string, err error) error {
	if asked == "" {
		return problem.New(problem.Refused, "outer layer: %w", err).
			WithHint("jail policy explain outer")
	}
	return notAllowed("outer layer "+asked, eff.Decide(policy.InLayer{Name: asked})).
		WithHint(`the ceiling and the profile must name it in outer.allow`)
}
