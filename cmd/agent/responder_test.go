package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/wasi/guestlib/agentlib"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
)

// exampleDir makes the directory of an agent of the documentation.
func exampleDir(t *testing.T, name string) *manifest.Agent {
	t.Helper()
	dir := t.TempDir()
	files, err := agentlib.New("python", name)
	if err != nil {
		t.Fatal(err)
	}
	example := cmdtest.Tree("docs/agents/" + name)
	entries, err := os.ReadDir(example)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(example, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a, err := manifest.Load(dir, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A model is what answers the responder: each answer a stream in the form of messages.
func says(text string) string {
	return event(`{"type":"message_start","message":{"usage":{"input_tokens":11}}}`) +
		event(fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`,
			text)) + event(`{"type":"message_delta","usage":{"output_tokens":3}}`)
}

func wantsTool(name string) string {
	return event(`{"type":"message_start","message":{"usage":{"input_tokens":11}}}`) +
		event(fmt.Sprintf(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use",`+
			`"id":"call","name":%q}}`, name)) +
		event(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta",`+
			`"partial_json":"{}"}}`) + event(`{"type":"message_delta","usage":{"output_tokens":3}}`)
}

func event(data string) string { return "data: " + data + "\n\n" }

// The agents of the documentation do what it says.
func TestExamples(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, map[string]string{"agent": profile})
	cmdtest.CompiledBundles(h.Host, "python")
	t.Run("responder", func(t *testing.T) { responder(t, h) })
	t.Run("watcher", func(t *testing.T) { watcher(t, h) })
}

// responder answers, asks for a tool once, keeps others waiting meanwhile, takes settings, and drops
// its work: with what it keeps in its database, as it sleeps between.
func responder(t *testing.T, h *cmdtest.PolicyHost) {
	a := exampleDir(t, "responder")
	req := requestOf(t, h, a)
	settings := map[string]any{}
	var model []string
	var asked []string
	seq := uint64(0)
	var r *agentRun
	// send sends an event and returns what was published.
	send := func(kind string, data any) (all []string) {
		t.Helper()
		seq++
		text, _ := json.Marshal(data)
		r.order(agent.Order{Event: &agent.Event{Seq: seq, ID: fmt.Sprint(seq), Source: "user",
			Type: kind, Kind: agent.KindNew, Attempt: 1, Data: text}})
		for {
			rep := r.report()
			switch {
			case rep == nil || rep.Failed != nil:
				t.Fatalf("%+v\n%s", rep, r.output())
			case rep.Call != nil:
				reply(r, rep.Call, settings, &model, &asked)
			case rep.Done != nil:
				for _, e := range rep.Done.Effects {
					var text string
					switch e.Op {
					case agent.OpSend:
						_ = json.Unmarshal(e.Data, &text)
						all = append(all, text)
					case agent.OpSettings:
						_ = json.Unmarshal(e.Data, &settings)
					case agent.OpPropose:
						all = append(all, fmt.Sprintf("proposal %d/%d", seq, e.N))
					}
				}
				return all
			}
		}
	}
	wants := func(got []string, want ...string) {
		t.Helper()
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("published %q, want %q\n%s", got, want, r.output())
		}
	}
	r, _ = wakeWith(t, h, root, req, a.Config)
	model = []string{wantsTool("clock__now")}
	wants(send("message", "what time is it?"), "proposal 1/1", "may I use clock__now {}?")
	wants(send("message", "and in Rome?"), "1 before you")
	// It keeps both while it sleeps.
	r.sleep()
	r, _ = wakeWith(t, h, root, req, a.Config)
	model = []string{says("It is noon."), says("In Rome, too.")}
	wants(send("approval", map[string]string{"id": "agent:root:test/1/1", "decision": "approved"}),
		"It is noon.", "In Rome, too.")
	if len(asked) != 1 || asked[0] != "clock now {}" {
		t.Errorf("tools that were called: %q", asked)
	}
	wants(send("message", "/used"), "33 tokens in, 9 out")
	wants(send("message", "/set rounds 3"), "rounds is 3")
	wants(send("message", "/set rounds x"), "rounds: want int, not 'x'")
	wants(send("message", "/settings"), `{"rounds": 3, "tokens": 1024, "tools": true}`)
	wants(send("message", "/tools"), "clock__now: The time.\nclock__stop: Stops it.")
	// Once approved, it is asked for no more; another tool is.
	model = []string{wantsTool("clock__now"), says("Still noon.")}
	wants(send("message", "again?"), "Still noon.")
	model = []string{wantsTool("clock__stop")}
	got := send("message", "stop the clock")
	wants(got[1:], "may I use clock__stop {}?")
	wants(send("message", "more"), "1 before you")
	wants(send("message", "/stop"), "dropped 2")
	id := "agent:root:test/" + strings.TrimPrefix(got[0], "proposal ")
	wants(send("approval", map[string]string{"id": id, "decision": "approved"}))
	if len(asked) != 2 {
		t.Errorf("a tool was called for what was dropped: %q", asked)
	}
	r.sleep()
}

// reply answers a call of the responder in the place of jail-agentd.
func reply(r *agentRun, c *agent.Call, settings map[string]any, model, asked *[]string) {
	said := agent.Reply{ID: c.ID}
	switch c.Method {
	case "getSettings":
		said.Result, _ = json.Marshal(settings)
	case "discoverMethodDefs":
		said.Result = json.RawMessage(`[{"providerId":"clock","methodName":"now","description":` +
			`"The time."},{"providerId":"clock","methodName":"stop","description":"Stops it."}]`)
	case "callMethod":
		var p struct {
			ProviderID, MethodName string
			Args                   json.RawMessage
		}
		if err := json.Unmarshal(c.Params, &p); err != nil {
			r.t.Error(err)
		}
		*asked = append(*asked, fmt.Sprintf("%s %s %s", p.ProviderID, p.MethodName, p.Args))
		said.Result = json.RawMessage(`"noon"`)
	case "streamText":
		if len(*model) == 0 {
			r.t.Errorf("the model is asked once more: %s", c.Params)
			*model = []string{says("?")}
		}
		r.order(agent.Order{Reply: &agent.Reply{ID: c.ID, Chunk: []byte((*model)[0]), More: true}})
		*model = (*model)[1:]
	}
	r.order(agent.Order{Reply: &said})
}
