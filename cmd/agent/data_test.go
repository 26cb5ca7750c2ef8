package agent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/runners/agent"
)

// What each step of testdata/data says: the order of keys, indexes, subscribers in the transaction of
// the change, a transaction that fails, and a single value with its default.
const dataSaid = "-1 2.5 9 10, 9, 10 9; refused, 2, 1 2, 2; " +
	"add 1 add 2 update 2 remove 2, refused, 4; refused, none; short long short"

// TestTypedStorage: the library of each language keeps collections with indexes, single values and
// subscribers, the tables are the same in all languages, and an event that fails leaves nothing of what
// it and its subscribers wrote.
func TestTypedStorage(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, map[string]string{"agent": profile})
	compiled(t, h.Host, "python", "js")
	for language := range mains {
		t.Run(language, func(t *testing.T) {
			req := requestOf(t, h, agentDir(t, language, "data"))
			r, _ := wake(t, h, root, req)
			ask := func(seq uint64, text string) *agent.Report {
				t.Helper()
				data, _ := json.Marshal(text)
				r.order(agent.Order{Event: &agent.Event{Seq: seq, ID: text, Source: "user",
					Type: agent.TypeMessage, Kind: agent.KindNew, Attempt: 1, Data: data}})
				rep := r.report()
				if rep == nil {
					t.Fatalf("the run ended: %s%s", r.end(), r.output())
				}
				return rep
			}
			if rep := ask(1, "go"); rep.Done == nil || len(rep.Done.Effects) != 1 ||
				string(rep.Done.Effects[0].Data) != `"`+dataSaid+`"` {
				t.Fatalf("%+v, %+v\n%s", rep.Done, rep.Failed, r.output())
			}
			if rep := ask(2, "fail"); rep.Failed == nil {
				t.Errorf("an event that fails: %+v", rep)
			}
			r.rest()
			// Another agent looks at the tables.
			other := request(t, root, req.Agent.State)
			r, _ = wake(t, h, root, other)
			answers, failed := r.event(2,
				sql("query", "SELECT name FROM sqlite_schema WHERE name LIKE 'data_%' ORDER BY name"),
				sql("query", "SELECT key, json(value) AS v FROM data_customers ORDER BY key"),
				sql("query", "SELECT key, json(value) AS v FROM data_log ORDER BY key"),
				sql("query", "SELECT key, json(value) AS v FROM data_singletons ORDER BY key"),
				sql("query", "EXPLAIN QUERY PLAN SELECT key FROM data_customers "+
					"WHERE json_extract(value, '$.address.city') IS 'Bern'"))
			if failed != nil {
				t.Fatalf("%+v", failed)
			}
			for i, want := range []string{
				`[{"name":"data_customers"},{"name":"data_customers_i_address__city"},` +
					`{"name":"data_customers_u_email"},{"name":"data_log"},{"name":"data_numbers"},` +
					`{"name":"data_singletons"},{"name":"data_texts"}]`,
				`[{"key":1,"v":"{\"address\":{\"city\":\"Bern\"},\"email\":\"ann\"}"}]`,
				`[{"key":1,"v":"[\"add\",1]"},{"key":2,"v":"[\"add\",2]"},` +
					`{"key":3,"v":"[\"update\",2]"},{"key":4,"v":"[\"remove\",2]"}]`,
				`[{"key":"tone","v":"\"long\""}]`,
			} {
				if got := string(answers[i].Result); got != want {
					t.Errorf("table %d: %+v\n%s\nwant\n%s", i, answers[i].Error, got, want)
				}
			}
			if plan := string(answers[4].Result); !strings.Contains(plan,
				"INDEX data_customers_i_address__city") {
				t.Errorf("the plan of a search: %+v %s", answers[4].Error, plan)
			}
			r.sleep()
		})
	}
}
