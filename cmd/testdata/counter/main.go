// Command counter is the guest of an agent that counts events in its database. With {"pass":true} in
// its CONFIG it sends each to the channel. An event whose data is "total" has it send the count, and one
// whose data is "when" the time at which it began to work on it, in nanoseconds since 1970.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/cmd/testdata/agentabi"
)

type next struct {
	Type  string `json:"type"`
	Event struct {
		Seq  uint64          `json:"seq"`
		ID   string          `json:"id"`
		Data json.RawMessage `json:"data"`
	} `json:"event"`
}

func main() {
	pass := strings.Contains(os.Getenv("CONFIG"), `"pass":true`)
	for {
		var n next
		check(json.Unmarshal(agentabi.Wait(), &n))
		switch n.Type {
		case "wake":
			sql("run", "CREATE TABLE IF NOT EXISTS counted (id TEXT PRIMARY KEY, n INTEGER) "+
				"WITHOUT ROWID")
		case "sleep":
			return
		case "event":
			switch string(n.Event.Data) {
			case `"when"`:
				ask("PUBSUB", "send", map[string]any{"content": time.Now().UnixNano(),
					"options": map[string]string{"type": "result"}})
			case `"total"`:
				ask("PUBSUB", "send", map[string]any{
					"content": sql("get", "SELECT count(*) AS ids, sum(n) AS events FROM counted"),
					// It is for nobody else.
					"options": map[string]string{"type": "result"}})
			default:
				sql("run", "INSERT INTO counted VALUES (?, 1) ON CONFLICT DO UPDATE SET n = n + 1",
					n.Event.ID)
				if pass {
					ask("PUBSUB", "send", map[string]any{"content": n.Event.ID})
				}
			}
			ask("HOST", "checkpoint", map[string]any{"seq": n.Event.Seq})
		}
	}
}

func check(err error) {
	if err != nil {
		agentabi.End("%v", err)
	}
}

func sql(method, statement string, params ...any) json.RawMessage {
	return ask("STORAGE", method, map[string]any{"sql": statement, "params": params})
}

func ask(binding, method string, params any) json.RawMessage {
	text, err := json.Marshal(params)
	check(err)
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	check(json.Unmarshal(agentabi.Ask(binding, method, text), &answer))
	if answer.Error != nil {
		check(fmt.Errorf("%s: %s", method, answer.Error))
	}
	return answer.Result
}
