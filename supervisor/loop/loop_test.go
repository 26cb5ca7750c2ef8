package loop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/models"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A world is all that a session works with: a model's host that answers with a script, a runner that
// counts, and a log that can be cut.
type world struct {
	t    *testing.T
	form string
	// script has the streams of the host, asked those bodies that it got.
	script []string
	// steps has the streams by how many replies there are in the conversation.
	steps []string
	asked []map[string]any
	// ran counts what was carried out, by the ids of calls.
	ran map[string]int
	// kept is the log; room is how many events it takes before the process is killed.
	kept []transcript.Event
	room int
	// ask is what a person answers.
	ask     func(Question) (Answer, error)
	running func(context.Context, transcript.Call)
}

var errKilled = errors.New("killed")

func newWorld(t *testing.T, form string, script ...string) *world {
	return &world{t: t, form: form, script: script, ran: map[string]int{}, room: 1 << 30,
		ask: func(Question) (Answer, error) { return Answer{Allow: true, Session: true}, nil }}
}

func (w *world) Append(_ context.Context, events ...transcript.Event) error {
	if len(w.kept) >= w.room {
		return errKilled
	}
	for _, e := range events {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		var back transcript.Event
		if err := json.Unmarshal(text, &back); err != nil {
			return err
		}
		w.kept = append(w.kept, back)
	}
	return nil
}

func (w *world) Ask(_ context.Context, _ manifest.Role, _ string, body []byte) (*models.Response,
	error) {
	var asked map[string]any
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, err
	}
	w.asked = append(w.asked, asked)
	if w.steps != nil {
		return &models.Response{Status: 200,
			Body: io.NopCloser(strings.NewReader(w.steps[replies(asked)]))}, nil
	}
	if len(w.script) == 0 {
		return nil, errors.New("the script is over")
	}
	text := w.script[0]
	w.script = w.script[1:]
	status := 200
	if n, rest, ok := strings.Cut(text, "!"); ok && len(n) == 3 {
		if _, err := fmt.Sscan(n, &status); err == nil {
			text = rest
		}
	}
	return &models.Response{Status: status, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// replies counts the replies of a model in a request.
func replies(body map[string]any) (n int) {
	all, _ := body["messages"].([]any)
	if input, ok := body["input"].([]any); ok {
		all = input
	}
	said := false
	for _, raw := range all {
		m := raw.(map[string]any)
		is := m["role"] == "assistant" || m["type"] == "function_call"
		if is && !said {
			n++
		}
		said = is
	}
	return n
}

func (w *world) Tools() []models.Tool {
	return []models.Tool{{Name: "Read", About: "read", Schema: json.RawMessage(`{"type":"object"}`)},
		{Name: "Bash", About: "run", Schema: json.RawMessage(`{"type":"object"}`)}}
}

func (w *world) Run(ctx context.Context, c transcript.Call) (string, bool) {
	w.ran[c.ID]++
	if w.running != nil {
		w.running(ctx, c)
	}
	if c.Name == "Read" {
		return "1\tone\n", false
	}
	return "no such command", true
}

// options of a process. Its clock is that of the events, as far as they were kept.
func (w *world) options() Options {
	return Options{Log: w, Runner: w, MaxTokens: 1000, System: "be kind",
		Model: models.Model{Asker: w, Role: manifest.Role{Form: w.form, Model: "m1"},
			Pause: func(context.Context, time.Duration) error { return nil }},
		Gate: Gate{Ask: func(_ context.Context, q Question) (Answer, error) { return w.ask(q) }},
		Now: func() time.Time {
			return time.Unix(1_700_000_000+int64(len(w.kept)), 0)
		}}
}

var start = transcript.Start{Version: "1", Dir: "/src", Jail: "chat-1", Role: "fast", Form: "chat",
	Model: "m1", Tools: []string{"Read", "Bash"}}

// calls is a stream by which a model calls tools, says is one by which it says something.
func calls(form, text string, all ...models.Call) string {
	var b strings.Builder
	data := func(v any) {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "data: %s\n\n", text)
	}
	type o = map[string]any
	halves := func(c models.Call) []string {
		in := string(c.Input)
		return []string{in[:len(in)/2], in[len(in)/2:]}
	}
	switch form {
	case "messages":
		data(o{"type": "message_start", "message": o{"usage": o{"input_tokens": 7}}})
		data(o{"type": "content_block_start", "index": 0, "content_block": o{"type": "text",
			"text": ""}})
		for part := range strings.SplitAfterSeq(text, " ") {
			data(o{"type": "content_block_delta", "index": 0, "delta": o{"text": part}})
		}
		for n, c := range all {
			data(o{"type": "content_block_start", "index": n + 1, "content_block": o{
				"type": "tool_use", "id": c.ID, "name": c.Name, "input": o{}}})
			for _, half := range halves(c) {
				data(o{"type": "content_block_delta", "index": n + 1, "delta": o{
					"partial_json": half}})
			}
		}
		data(o{"type": "message_delta", "usage": o{"output_tokens": 5}})
		data(o{"type": "message_stop"})
	case "chat":
		for part := range strings.SplitAfterSeq(text, " ") {
			data(o{"choices": []o{{"delta": o{"content": part}}}})
		}
		for n, c := range all {
			data(o{"choices": []o{{"delta": o{"tool_calls": []o{{"index": n, "id": c.ID,
				"function": o{"name": c.Name}}}}}}})
			for _, half := range halves(c) {
				data(o{"choices": []o{{"delta": o{"tool_calls": []o{{"index": n, "function": o{
					"arguments": half}}}}}}})
			}
		}
		data(o{"choices": []o{{"finish_reason": "stop"}}})
		data(o{"choices": []o{}, "usage": o{"prompt_tokens": 7, "completion_tokens": 5}})
		b.WriteString("data: [DONE]\n\n")
	case "responses":
		for part := range strings.SplitAfterSeq(text, " ") {
			data(o{"type": "response.output_text.delta", "delta": part})
		}
		for _, c := range all {
			item := o{"id": "i" + c.ID, "type": "function_call", "call_id": c.ID, "name": c.Name}
			data(o{"type": "response.output_item.added", "item": item})
			for _, half := range halves(c) {
				data(o{"type": "response.function_call_arguments.delta", "item_id": "i" + c.ID,
					"delta": half})
			}
		}
		data(o{"type": "response.completed", "response": o{"usage": o{"input_tokens": 7,
			"output_tokens": 5}}})
	}
	return b.String()
}

func read(id string) models.Call {
	return models.Call{ID: id, Name: "Read", Input: json.RawMessage(`{"file_path":"a"}`)}
}

func bash(id string) models.Call {
	return models.Call{ID: id, Name: "Bash", Input: json.RawMessage(`{"command":"x"}`)}
}

var forms = []string{"messages", "chat", "responses"}

// script is a whole turn: two calls at one time of which one fails, a third, and an answer; with a
// host that is busy, broken, cut and incomprehensible in between.
func script(form string) []string {
	whole := calls(form, "I look. ", read("c1"), bash("c2"))
	return []string{"429!slow down", whole, "500!oh", calls(form, "", read("c3")),
		whole[:len(whole)/2], calls(form, "all is well"),
		calls(form, "a second ")}
}

func text(events []transcript.Event) []byte {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	for _, e := range events {
		if err := lines.Encode(e); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

// run lives as many processes as it takes. Each has room for so many more events; those after the
// last number have as much as that.
func (w *world) run(rooms ...int) {
	w.t.Helper()
	ctx := w.t.Context()
	said := []string{"what is there?", "and now?"}
	for n := 0; ; n++ {
		if n > 100 {
			w.t.Fatal("it does not come to an end")
		}
		w.room = len(w.kept) + rooms[min(n, len(rooms)-1)]
		before := slices.Clone(w.kept)
		var s *Session
		var err error
		if len(before) == 0 {
			s, err = Start(ctx, w.options(), "s1", start)
		} else {
			s, err = Resume(ctx, w.options(), "s1", before, start)
		}
		if err == nil && s.Asked() {
			_, err = s.Continue(ctx)
		}
		for err == nil {
			heard := 0
			for _, e := range w.kept {
				if e.Type == transcript.UserMessage {
					heard++
				}
			}
			if heard == len(said) {
				break
			}
			_, err = s.Say(ctx, said[heard])
		}
		if err == nil {
			return
		}
		if !errors.Is(err, errKilled) {
			w.t.Fatal(err)
		}
	}
}

// Every form of stream makes the same events, which are those of the golden file; and a replay of
// them is equal.
func TestGolden(t *testing.T) {
	golden := filepath.Join("testdata", "session.jsonl")
	for _, form := range forms {
		w := newWorld(t, form, script(form)...)
		w.run(1 << 30)
		got := text(w.kept)
		if *update && form == forms[0] {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the events are\n%s\nwant\n%s, %v", form, got, want, err)
		}
		if err := Replay(t.Context(), w.kept); err != nil {
			t.Errorf("%s: replay: %v", form, err)
		}
	}
}

// A process may be killed between any two events: another one goes on, no tool is carried out twice,
// and the end is the same. The conversation that the model gets stays one that its API takes.
func TestKilled(t *testing.T) {
	for _, form := range forms {
		steps := []string{calls(form, "I look. ", read("c1"), bash("c2")),
			calls(form, "", read("c3")), calls(form, "all is well"), calls(form, "a second ")}
		whole := newWorld(t, form)
		whole.steps = steps
		whole.run(1 << 30)
		var all [][]int
		for n := range whole.kept {
			// One kill after each event, and one after every so many.
			all = append(all, []int{n + 1, 1 << 30})
			if n > 0 {
				all = append(all, []int{n + 1})
			}
		}
		if len(whole.kept) < 15 {
			t.Fatalf("%s: the whole session has %d events only", form, len(whole.kept))
		}
		for _, room := range all {
			w := newWorld(t, form)
			w.steps = steps
			w.run(room...)
			for id, n := range w.ran {
				if n != 1 {
					t.Errorf("%s, room for %v: call %s was carried out %d times", form, room, id, n)
				}
			}
			var ends []string
			for _, e := range w.kept {
				if e.Type == transcript.Result {
					ends = append(ends, e.Status+" "+e.Text)
				}
			}
			if !slices.Equal(ends, []string{"success all is well", "success a second "}) {
				t.Errorf("%s, room for %v: the turns end with %q", form, room, ends)
			}
			if err := Replay(t.Context(), w.kept); err != nil {
				t.Errorf("%s, room for %v: replay: %v\n%s", form, room, err, text(w.kept))
			}
			if form == "messages" {
				wellFormed(t, w.asked)
			}
		}
	}
}

// wellFormed checks what the messages API wants: turns alternate, and every call is answered in the
// next one.
func wellFormed(t *testing.T, bodies []map[string]any) {
	t.Helper()
	for _, body := range bodies {
		before, open := "", map[any]bool{}
		for _, raw := range body["messages"].([]any) {
			m := raw.(map[string]any)
			if m["role"] == before {
				t.Fatalf("two turns of %s follow each other: %v", before, body)
			}
			before = m["role"].(string)
			for _, raw := range m["content"].([]any) {
				switch b := raw.(map[string]any); b["type"] {
				case "tool_use":
					open[b["id"]] = true
				case "tool_result":
					if !open[b["tool_use_id"]] {
						t.Fatalf("a result without a call: %v", body)
					}
					delete(open, b["tool_use_id"])
				}
			}
			if before == "user" && len(open) > 0 {
				t.Fatalf("calls without a result: %v: %v", open, body)
			}
		}
	}
}

// The kill that counts: the tool has run, and its result is not kept.
func TestKilledAfterTool(t *testing.T) {
	w := newWorld(t, "chat", script("chat")...)
	w.room = 6 // init, message, reply, use, question, decision
	s, err := Start(t.Context(), w.options(), "s1", start)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Say(t.Context(), "hello"); !errors.Is(err, errKilled) || w.ran["c1"] != 1 {
		t.Fatalf("%v, ran %v", err, w.ran)
	}
	w.room = 1 << 30
	if s, err = Resume(t.Context(), w.options(), "s1", slices.Clone(w.kept), start); err != nil {
		t.Fatal(err)
	}
	results := w.kept[7:]
	if len(results) != 2 || !results[0].IsError || !strings.Contains(results[0].Text, "may have been") ||
		!results[1].IsError || !strings.Contains(results[1].Text, "before this call") {
		t.Errorf("answered with %s", text(results))
	}
	if _, err := s.Continue(t.Context()); err != nil || w.ran["c1"] != 1 || w.ran["c2"] != 0 {
		t.Errorf("%v, ran %v", err, w.ran)
	}
	// Control: a log that lost the model's message has the call carried out twice.
	w = newWorld(t, "chat", script("chat")...)
	w.room = 6
	if s, err = Start(t.Context(), w.options(), "s1", start); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Say(t.Context(), "hello"); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.room, w.kept, w.script = 1<<30, w.kept[:2], script("chat")
	s, err = Resume(t.Context(), w.options(), "s1", slices.Clone(w.kept), start)
	if err == nil {
		_, err = s.Continue(t.Context())
	}
	if err != nil || w.ran["c1"] != 2 {
		t.Errorf("control: %v, ran %v", err, w.ran)
	}
}

// A logFunc keeps events.
type logFunc func(ctx context.Context, events ...transcript.Event) error

func (f logFunc) Append(ctx context.Context, events ...transcript.Event) error {
	return f(ctx, events...)
}

// An askFunc sends requests to models.
type askFunc func(ctx context.Context, role manifest.Role, key string,
	body []byte) (*models.Response, error)

func (f askFunc) Ask(ctx context.Context, role manifest.Role, key string,
	body []byte) (*models.Response, error) {
	return f(ctx, role, key, body)
}

// The result of a turn's last call is kept while the model is asked, and nothing of the reply is
// taken or shown before the result is durable. A result that cannot be kept ends the turn, and is kept
// with the next event.
func TestKeptMeanwhile(t *testing.T) {
	before := []string{transcript.Init, transcript.UserMessage, transcript.AssistantMessage,
		transcript.ToolUse, "kept"}
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "chat", calls("chat", "", read("c1")), calls("chat", "all is well"))
			o, asked, failing := w.options(), make(chan struct{}), fails
			var order []string
			m := o.Model.(models.Model)
			m.Delta = func(string) { order = append(order, "delta") }
			m.Asker = askFunc(func(ctx context.Context, role manifest.Role, key string,
				body []byte) (*models.Response, error) {
				if len(w.asked) == 1 {
					close(asked)
				}
				return w.Ask(ctx, role, key, body)
			})
			o.Model, o.Gate = m, Gate{Rules: []Rule{{"*", ModeAllow}}}
			o.Watch = func(e transcript.Event) { order = append(order, e.Type) }
			o.Log = logFunc(func(ctx context.Context, events ...transcript.Event) error {
				if events[0].Type == transcript.ToolResult && len(w.kept) == 4 {
					<-asked
					// The loop waits, with the head of the reply.
					synctest.Wait()
					order = append(order, "kept")
					if failing {
						return errKilled
					}
				}
				return w.Append(ctx, events...)
			})
			s, err := Start(t.Context(), o, "s1", start)
			if err != nil {
				t.Fatal(err)
			}
			want := before
			if _, err = s.Say(t.Context(), "go"); !fails {
				want = append(slices.Clone(before), transcript.ToolResult, "delta",
					transcript.AssistantMessage, transcript.Result)
			} else if !errors.Is(err, errKilled) {
				t.Errorf("the result cannot be kept: %v", err)
			}
			if got := slices.Compact(slices.Clone(order)); !slices.Equal(got, want) {
				t.Errorf("fails %v: %q, want %q", fails, got, want)
			}
			failing = false
			if err := s.Revoke(t.Context(), ""); err != nil {
				t.Error(err)
			}
			for n, e := range w.kept {
				if e.Seq != int64(n)+1 {
					t.Errorf("event %d has the number %d", n+1, e.Seq)
				}
			}
			if w.kept[4].Type != transcript.ToolResult || w.ran["c1"] != 1 {
				t.Errorf("kept %s, ran %v", text(w.kept), w.ran)
			}
		})
	}
}

// The gate asks once for each tool and session; rules come before; what a person allowed can be taken
// back, also in a process that goes on.
func TestGate(t *testing.T) {
	all := func(n int) (out []string) {
		for i := range n {
			out = append(out, calls("chat", "", read(fmt.Sprint("r", i))), calls("chat", "done"))
		}
		return out
	}
	for _, c := range []struct {
		name  string
		rules []Rule
		// says are the answers of a person: allow for the session, once, deny; asked is how often
		// one was asked, ran how often the tool was carried out, of three turns.
		says       string
		asked, ran int
	}{
		{"once for the session", nil, "s", 1, 3},
		{"once for a call", nil, "ooo", 3, 3},
		{"denied", nil, "ddd", 3, 0},
		{"denied, then allowed", nil, "ds", 2, 2},
		{"a rule allows", []Rule{{"R*", ModeAllow}}, "", 0, 3},
		{"a rule denies", []Rule{{"Read", ModeDeny}, {"*", ModeAllow}}, "", 0, 0},
		{"a rule asks", []Rule{{"Read", ModeAsk}, {"*", ModeAllow}}, "sss", 3, 3},
		{"nobody is there", nil, "-", 3, 0},
	} {
		w := newWorld(t, "chat", all(3)...)
		o, asked := w.options(), 0
		o.Gate.Rules = c.rules
		o.Gate.Ask = func(context.Context, Question) (Answer, error) {
			say := c.says[min(asked, len(c.says)-1)]
			asked++
			if say == '-' {
				return Answer{}, errors.New("nobody")
			}
			return Answer{Allow: say != 'd', Session: say == 's'}, nil
		}
		s, err := Start(t.Context(), o, "s1", start)
		for n := 0; err == nil && n < 3; n++ {
			if n == 2 {
				// Another process.
				s, err = Resume(t.Context(), o, "s1", slices.Clone(w.kept), start)
			}
			if err == nil {
				_, err = s.Say(t.Context(), "go")
			}
		}
		if err != nil || asked != c.asked || len(w.ran) != c.ran {
			t.Errorf("%s: %v, asked %d times, ran %v; want %d and %d", c.name, err, asked, w.ran,
				c.asked, c.ran)
		}
		if err := Replay(t.Context(), w.kept); err != nil {
			t.Errorf("%s: replay: %v", c.name, err)
		}
	}
	w := newWorld(t, "chat", all(3)...)
	asked := 0
	w.ask = func(Question) (Answer, error) { asked++; return Answer{Allow: true, Session: true}, nil }
	s, err := Start(t.Context(), w.options(), "s1", start)
	for _, tool := range []string{"Read", "", "Bash"} {
		if err == nil {
			_, err = s.Say(t.Context(), "go")
		}
		if err == nil {
			err = s.Revoke(t.Context(), tool)
		}
	}
	if err != nil || asked != 3 || s.Granted()["Read"] != true {
		t.Errorf("taken back: %v, asked %d times, %v", err, asked, s.Granted())
	}
}

// A person interrupts a turn: while a tool runs, while the model is asked, and while the gate asks.
// The session goes on.
func TestInterrupted(t *testing.T) {
	for _, where := range []string{"tool", "gate", "model"} {
		w := newWorld(t, "chat", script("chat")...)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o := w.options()
		switch where {
		case "tool":
			w.running = func(context.Context, transcript.Call) { cancel() }
		case "gate":
			o.Gate.Ask = func(ctx context.Context, _ Question) (Answer, error) {
				cancel()
				return Answer{}, ctx.Err()
			}
		case "model":
			m := o.Model.(models.Model)
			m.Delta = func(string) { cancel() }
			o.Model = m
		}
		s, err := Start(t.Context(), o, "s1", start)
		if err != nil {
			t.Fatal(err)
		}
		end, err := s.Say(ctx, "go")
		if err != nil || end.Status != transcript.Interrupted {
			t.Errorf("%s: %+v, %v", where, end, err)
		}
		w.running, w.script = nil, []string{calls("chat", "fine")}
		if end, err = s.Say(t.Context(), "again"); err != nil || end.Status != transcript.Success {
			t.Errorf("%s: then: %+v, %v", where, end, err)
		}
		if err := Replay(t.Context(), w.kept); err != nil {
			t.Errorf("%s: replay: %v", where, err)
		}
	}
}

// Errors of the model end the turn, and not the session; so does a model that calls tools for ever.
func TestTurnFails(t *testing.T) {
	for name, c := range map[string]struct {
		script []string
		code   string
		asked  int
		// pauses are those before the model is asked again.
		pauses string
	}{
		"429 always":           {[]string{"429!a", "429!b", "429!c", "429!d"}, CodeAPI, 4, "[1s 2s 4s]"},
		"429, then fine":       {[]string{"429!a", "429!b", "429!c", calls("chat", "ok")}, "", 4, "[1s 2s 4s]"},
		"500 twice":            {[]string{"500!a", "500!b"}, CodeAPI, 2, "[1s]"},
		"400":                  {[]string{"400!a"}, CodeAPI, 1, "[]"},
		"cut twice":            {[]string{"data: {}\n", "data: {}\n"}, CodeAPI, 2, "[1s]"},
		"malformed twice":      {[]string{"data: {\n", "data: }\n"}, CodeAPI, 2, "[1s]"},
		"malformed, then fine": {[]string{"data: {\n", calls("chat", "ok")}, "", 2, "[1s]"},
		"calls for ever": {slices.Repeat([]string{calls("chat", "", read("x"))}, 51), CodeMaxIterations, 50,
			"[]"},
		"an error in stream": {[]string{`data: {"error":{"type":"t","message":"m"}}` + "\n",
			`data: {"error":{"type":"t","message":"m"}}` + "\n"}, CodeAPI, 2, "[1s]"},
	} {
		w := newWorld(t, "chat", c.script...)
		o, pauses := w.options(), []time.Duration{}
		m := o.Model.(models.Model)
		m.Pause = func(_ context.Context, d time.Duration) error {
			pauses = append(pauses, d)
			return nil
		}
		o.Model = m
		s, err := Start(t.Context(), o, "s1", start)
		if err != nil {
			t.Fatal(err)
		}
		end, err := s.Say(t.Context(), "go")
		if err != nil || end.Code != c.code || len(w.asked) != c.asked || fmt.Sprint(pauses) != c.pauses {
			t.Errorf("%s: %+v, %v, asked %d times with the pauses %v", name, end, err, len(w.asked), pauses)
		}
	}
}

// A tampered transcript does not come about again.
func TestReplayFinds(t *testing.T) {
	w := newWorld(t, "chat", script("chat")...)
	w.run(1 << 30)
	for n := range w.kept {
		changed := slices.Clone(w.kept)
		switch changed[n].Type {
		case transcript.ToolUse:
			changed[n].Input = json.RawMessage(`{"file_path":"b"}`)
		case transcript.Result:
			changed[n].Text += "."
		default:
			continue
		}
		if err := Replay(t.Context(), changed); err == nil {
			t.Errorf("event %d, %s, was changed, and the replay is equal", n+1, changed[n].Type)
		}
	}
}
