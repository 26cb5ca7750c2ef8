package agent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/runners/agent"
)

// TestTicks: in each language a tick tells the model the open goals, the last memories and the surest
// patterns, keeps its answer in the tables of memory, and publishes it. Without an open goal it asks
// nobody.
func TestTicks(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, map[string]string{"agent": profile})
	compiled(t, h.Host, "python", "js")
	for language := range mains {
		t.Run(language, func(t *testing.T) {
			r, _ := wake(t, h, root, requestOf(t, h, agentDir(t, language, "ticker")))
			seq := uint64(0)
			// tell sends an event and returns what was published, and what the model was asked.
			tell := func(kind, text, answer string) (published, asked string) {
				t.Helper()
				seq++
				data, _ := json.Marshal(text)
				r.order(agent.Order{Event: &agent.Event{Seq: seq, ID: fmt.Sprint("e", seq),
					Source: "user", Type: kind, Kind: agent.KindNew, Attempt: 1, Data: data}})
				for {
					rep := r.report()
					switch {
					case rep == nil || rep.Failed != nil:
						t.Fatalf("%q: %+v\n%s", text, rep, r.output())
					case rep.Call != nil:
						asked = string(rep.Call.Params)
						chunk, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{
							"delta": map[string]any{"content": answer}}}})
						r.order(agent.Order{Reply: &agent.Reply{ID: rep.Call.ID, More: true,
							Chunk: fmt.Appendf(nil, "data: %s\n\n", chunk)}})
						r.order(agent.Order{Reply: &agent.Reply{ID: rep.Call.ID}})
					case rep.Done != nil:
						for _, e := range rep.Done.Effects {
							published += e.Type + " " + compact(string(e.Data))
						}
						return published, asked
					}
				}
			}
			wants := func(what, got, want string) {
				t.Helper()
				if got != want {
					t.Errorf("%s: %s\nwant %s\n%s", what, got, want, r.output())
				}
			}
			published, asked := tell(agent.TypeTick, "", "")
			wants("no goal", published+asked, "")
			tell(agent.TypeMessage, "INSERT INTO goals VALUES ('g1', 'build', 2, 'open', 0.1), "+
				"('g2', 'rest', 9, NULL, 0), ('g3', 'sleep', 10, 'done', 1);"+
				"INSERT INTO conversations VALUES ('c1', 1, 'old', 0), ('c2', 2, '', 0), "+
				"('c3', 3, 'new', 0)", "")
			published, asked = tell(agent.TypeTick, "", `Here it is: {"summary": "built \"it\"", "goals": `+
				`[{"id": "g1", "progress": 4, "status": "done"}, {"id": "g3", "progress": 0}, `+
				`{"id": "none", "progress": 1}, 3, "x"], "patterns": [{"id": "p1", "pattern_type": "x", `+
				`"description": "tests help", "confidence": "much"}, {"id": "p2"}]}. So.`)
			const result = `{"goals":["g1"],"patterns":["p1"],"text":"built \"it\""}`
			wants("a step", published, "tick_result "+result)
			contains(t, asked, `\"g2\"`, `\"g1\"`, `\"new\"`, `\"old\"`)
			contains(t, asked, `Be brief."`)
			const all = "SELECT id, status, progress FROM goals ORDER BY id"
			published, _ = tell(agent.TypeMessage, all, "")
			wants("goals", published, ` [{"id":"g1","progress":1,"status":"done"},`+
				`{"id":"g2","progress":0,"status":null},{"id":"g3","progress":1,"status":"done"}]`)
			published, _ = tell(agent.TypeMessage, "SELECT confidence AS c, pattern_type AS t, "+
				"description AS d FROM learned_patterns", "")
			wants("patterns", published, ` [{"c":0.5,"d":"tests help","t":"x"}]`)
			published, _ = tell(agent.TypeMessage, "SELECT c.id, summary, role FROM conversations c "+
				"JOIN messages m ON conversation_id = c.id ORDER BY m.id", "")
			wants("the conversation", published, ` [{"id":"e3","role":"user","summary":"built \"it\""},`+
				`{"id":"e3","role":"assistant","summary":"built \"it\""}]`)
			for _, odd := range []string{" I rested. ", `{"goals": {}, "patterns": 3, "summary": 1}`, "{",
				`{"goals": [{"id": []}], "patterns": [{"id": 1, "description": 2}]}`, "[1]"} {
				published, asked = tell(agent.TypeTick, "", odd)
				text, _ := json.Marshal(strings.TrimSpace(odd))
				wants(odd, published, fmt.Sprintf(`tick_result {"goals":[],"patterns":[],"text":%s}`, text))
				contains(t, asked, `\"g2\"`, `\"tests help\"`)
			}
			published, _ = tell(agent.TypeMessage, "SELECT count(*) AS n FROM messages", "")
			wants("messages", published, ` [{"n":12}]`)
			r.sleep()
		})
	}
}

// contains checks that a text has these parts, in this order.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Errorf("no %s in its place in %s", part, text)
		}
		rest = after
	}
}
