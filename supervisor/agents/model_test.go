package agents

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/models"
)

// fakeModels answers with texts of the test, in turn.
type fakeModels struct {
	mu      sync.Mutex
	answers []models.Response
	bodies  []map[string]any
	keys    []string
}

func (f *fakeModels) Ask(_ context.Context, _ manifest.Role, key string,
	body []byte) (*models.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var asked map[string]any
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, err
	}
	f.bodies, f.keys = append(f.bodies, asked), append(f.keys, key)
	answer := f.answers[0]
	f.answers = f.answers[1:]
	return &answer, nil
}

func answers(status int, text string) models.Response {
	return models.Response{Status: status, Body: io.NopCloser(strings.NewReader(text))}
}

// streams are what the three APIs send, each with 7 tokens in and 5 out.
var streams = map[string]string{
	"messages": `event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}}

data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}

data: {"type":"message_delta","usage":{"output_tokens":5}}

`,
	"chat": `data: {"choices":[{"delta":{"content":"hi"}}]}

data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}}

data: [DONE]
`,
	"responses": `data: {"type":"response.output_text.delta","delta":"hi"}

data: {"type":"response.completed","response":{"usage":{"input_tokens":7,"output_tokens":5}}}

`,
}

func role(form string) string {
	return "[capabilities]\nai = true\n[ai]\ntokens_day = 20\n[ai.roles]\nfast = { form = \"" + form +
		"\", url = \"https://model.example\", model = \"m1\", credential = \"k\", max_tokens = 15 }\n"
}

// A model is asked in each form, its stream comes through unchanged, and its tokens count for the
// day; when they are used up it is not asked any more.
func TestModelBudget(t *testing.T) {
	for form, stream := range streams {
		t.Run(form, func(t *testing.T) {
			f := &fakeModels{answers: []models.Response{answers(200, stream), answers(200, stream)}}
			w := newWorld(t)
			w.models = f
			w.start()
			var got []agent.Reply
			var texts []string
			w.install("a", role(form), func(g *work) error {
				reply, text := g.call(agent.AI, "streamText", map[string]any{"role": "fast",
					"system": "be kind", "prompt": "hello", "temperature": 0.5})
				got, texts = append(got, reply), append(texts, string(text))
				return nil
			})
			for range 3 {
				w.tell("a", "go")
				w.empty("a")
			}
			input, output, err := w.Store.Tokens(t.Context(), "a")
			if err != nil || input != 14 || output != 10 {
				t.Errorf("%d tokens in and %d out, %v, want 14 and 10", input, output, err)
			}
			w.stop()
			if texts[0] != stream || got[0].Error != nil {
				t.Errorf("the stream is %q, %+v", texts[0], got[0].Error)
			}
			if got[2].Error == nil || got[2].Error.Code != agent.ErrBudget {
				t.Errorf("beyond the tokens of the day: %+v", got[2])
			}
			body := f.bodies[0]
			if body["model"] != "m1" || body["stream"] != true || body["temperature"] != 0.5 {
				t.Errorf("asked %v", body)
			}
			most := map[string]string{"responses": "max_output_tokens"}[form]
			if most == "" {
				most = "max_tokens"
			}
			// The second time 8 tokens are left.
			if body[most] != 15.0 || f.bodies[1][most] != 8.0 {
				t.Errorf("%s is %v, then %v; want 15, then 8", most, body[most], f.bodies[1][most])
			}
			if f.keys[0] != "agent:ann:a/1/1000" {
				t.Errorf("the Idempotency-Key is %q", f.keys[0])
			}
			w.start()
		})
	}
}

// A model's host that is busy is asked again: at most three times after 429, once after 5xx, and not
// after other errors.
func TestModelRetries(t *testing.T) {
	for _, c := range []struct {
		name     string
		statuses []int
		asked    int
		ok       bool
	}{
		{"429 three times", []int{429, 429, 429, 200}, 4, true},
		{"429 always", []int{429, 429, 429, 429}, 4, false},
		{"500 once", []int{500, 200}, 2, true},
		{"503 always", []int{503, 503}, 2, false},
		{"401", []int{401}, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeModels{}
			for _, status := range c.statuses {
				f.answers = append(f.answers, answers(status, streams["chat"]))
			}
			w := newWorld(t)
			w.models = f
			w.start()
			var got agent.Reply
			w.install("a", role("chat"), func(g *work) error {
				got, _ = g.call(agent.AI, "streamText", map[string]any{"prompt": "hello"})
				return nil
			})
			w.tell("a", "go")
			w.empty("a")
			w.stop()
			if len(f.bodies) != c.asked || (got.Error == nil) != c.ok {
				t.Errorf("asked %d times, %+v", len(f.bodies), got.Error)
			}
			if !c.ok && got.Error != nil && got.Error.Code != agent.ErrModel {
				t.Errorf("the code is %q", got.Error.Code)
			}
			w.start()
		})
	}
}

// Without the capability there is no model, whatever the agent's jail says; and only roles of the
// manifest can be asked.
func TestModelNotGranted(t *testing.T) {
	w := newWorld(t)
	f := &fakeModels{}
	w.models = f
	w.start()
	var none, other, list, empty agent.Reply
	w.install("none", "", func(g *work) error {
		none, _ = g.call(agent.AI, "streamText", map[string]any{"prompt": "x"})
		return nil
	})
	w.install("some", role("chat"), func(g *work) error {
		other, _ = g.call(agent.AI, "streamText", map[string]any{"role": "smart", "prompt": "x"})
		list, _ = g.call(agent.AI, "listRoles", nil)
		return nil
	})
	w.install("roleless", "[capabilities]\nai = true\n", func(g *work) error {
		empty, _ = g.call(agent.AI, "listRoles", nil)
		return nil
	})
	w.tell("none", "go")
	w.tell("some", "go")
	w.tell("roleless", "go")
	w.empty("none", "some", "roleless")
	w.stop()
	if none.Error == nil || none.Error.Code != agent.ErrNoBinding {
		t.Errorf("without the capability: %+v", none)
	}
	if other.Error == nil || other.Error.Code != agent.ErrNotFound {
		t.Errorf("a role that is not there: %+v", other)
	}
	if string(list.Result) != `["fast"]` || string(empty.Result) != `[]` || len(f.bodies) > 0 {
		t.Errorf("roles %s and %s; asked %d times", list.Result, empty.Result, len(f.bodies))
	}
	w.start()
}
