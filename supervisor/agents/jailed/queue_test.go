package jailed

import (
	"testing"

	"github.com/jail-sandbox/jail/supervisor/agents"
)

// What an agent proposes is shown as an action of its own, whole, and without characters that nobody
// sees; only names that jaild takes become those of the action.
func TestRequestFor(t *testing.T) {
	for _, tt := range []struct{ data, action, resource, args, words string }{
		{`{"type":"deploy","resource":"web","words":"it is green","n":1}`, "deploy", "web",
			`{"type":"deploy","resource":"web","words":"it is green","n":1}`, "it is green"},
		{" \"remove it\"\n", "propose", "agent:ann:a/f", `{"action":"remove it"}`, ""},
		{`null`, "propose", "agent:ann:a/f", `{"action":null}`, ""},
		{`{"type":"a b","resource":7,"words":[]}`, "propose", "agent:ann:a/f",
			`{"type":"a b","resource":7,"words":[]}`, ""},
		{"{\r\n\"a\":\"x\u202ey\U000e0001\"}", "propose", "agent:ann:a/f",
			`{"a":"x\u202ey\udb40\udc01"}`, ""},
	} {
		r := requestFor(agents.Proposal{Agent: "agent:ann:a/f", Name: "a", Key: "k",
			Data: []byte(tt.data)})
		g := r.Gate
		if r.Type != "gate" || r.Agent != "agent:ann:a/f" || r.Key != "k" || g.Gatekeeper != "a" ||
			g.Action != tt.action || g.Resource != tt.resource || g.Args != tt.args ||
			r.Words != tt.words || g.Reversible {
			t.Errorf("%s becomes %+v, %+v", tt.data, r, g)
		}
	}
}
