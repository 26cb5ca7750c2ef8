package policy_test

import (
	"testing"

	"github.com/jail-sandbox/jail/policy"
)

// TestWiden: a widening adds requests without a credential and tools. What a policy denies stays
// denied, and a ceiling takes away what it does not grant.
func TestWiden(t *testing.T) {
	rule := func(host string) policy.FetchRule {
		h, err := policy.ParseHost(host)
		if err != nil {
			t.Fatal(err)
		}
		r := policy.TopFetchRule()
		r.Host = h
		return r
	}
	w := policy.Widening{Fetch: []policy.FetchRule{rule("a.example.com")},
		Tools: policy.MustGlobs("core-utils/wc")}
	p := policy.Top()
	p.Fetch, p.Tools = policy.Fetch{}, policy.Tools{Allow: policy.MustGlobs("core-utils/cat")}
	wide := p.Widen(w)
	request := func(host string) policy.Connect {
		return policy.Connect{Host: host, Port: 443, Method: "GET", Path: "/"}
	}
	decide := func(layers ...policy.Policy) (eff policy.Effective) {
		var all []policy.Layer
		for _, l := range layers {
			all = append(all, policy.Layer{Name: "test", Policy: l})
		}
		eff, err := policy.Resolve(all...)
		if err != nil {
			t.Fatal(err)
		}
		return eff
	}
	for what, d := range map[string]struct {
		eff   policy.Effective
		q     policy.Question
		wants bool
	}{
		"before":           {decide(p), request("a.example.com"), false},
		"the host":         {decide(wide), request("a.example.com"), true},
		"another host":     {decide(wide), request("b.example.com"), false},
		"under a ceiling":  {decide(policy.Policy{}, wide), request("a.example.com"), false},
		"under another":    {decide(p, wide), request("a.example.com"), false},
		"the tool":         {decide(wide), policy.Tool{Bundle: "core-utils", Command: "wc"}, true},
		"the tool before":  {decide(p), policy.Tool{Bundle: "core-utils", Command: "wc"}, false},
		"what there was":   {decide(wide), policy.Tool{Bundle: "core-utils", Command: "cat"}, true},
		"the ceiling's no": {decide(p, wide), policy.Tool{Bundle: "core-utils", Command: "wc"}, false},
	} {
		if got := d.eff.Decide(d.q); got.Allowed != d.wants {
			t.Errorf("%s: %+v", what, got)
		}
	}
	for _, r := range wide.Fetch.Allow {
		if r.Credential != "" || r.WebSocket || r.TLS != 0 {
			t.Errorf("more is granted than requests: %+v", r)
		}
	}
	if len(p.Fetch.Allow) > 0 || len(p.Tools.Allow) != 1 {
		t.Errorf("the policy itself has changed: %v %v", p.Fetch, p.Tools)
	}
	if w.LessEq(p) || !w.LessEq(wide) || !w.LessEq(policy.Top()) {
		t.Error("the order of widenings is wrong")
	}
}
