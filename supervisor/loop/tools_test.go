package loop

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// parameters are those of a schema, sorted; those that may be left out end in ?.
func parameters(t *testing.T, schema json.RawMessage) (all []string) {
	t.Helper()
	var s struct {
		Properties           map[string]json.RawMessage
		Required             []string
		AdditionalProperties json.RawMessage
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		t.Fatal(err)
	}
	if s.AdditionalProperties == nil {
		t.Errorf("further parameters are taken: %s", schema)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(s.Required, name) {
			name += "?"
		}
		all = append(all, name)
	}
	return all
}

// TestParameters: the tools are there with exactly the parameters of the documentation, and WebSearch
// only with a search.
func TestParameters(t *testing.T) {
	want := map[string]string{
		"Read": "file_path limit? offset?", "Write": "content file_path",
		"Edit": "file_path new_string old_string replace_all?", "Glob": "path? pattern",
		"Grep": "glob? output_mode? path? pattern", "Bash": "command timeout?",
		"Command": "argv cwd? env? limits? stdin?", "Shell": "command timeout?",
		"WebFetch": "prompt? url", "WebSearch": "query", "TodoWrite": "todos",
		"SlashCommand": "command", "Skill": "name"}
	got := map[string]string{}
	for _, tool := range (CodeTools{Search: "https://example.com/{query}"}).Toolbox().Tools() {
		got[tool.Name] = strings.Join(parameters(t, tool.Schema), " ")
	}
	if !maps.Equal(got, want) {
		t.Errorf("the tools are %q, want %q", got, want)
	}
	for _, tool := range (CodeTools{}).Toolbox().Tools() {
		if tool.Name == "WebSearch" {
			t.Error("there is a WebSearch without a search")
		}
	}
}

// TestDecodeNames: a key of an event that does not match its field letter for letter is refused.
func TestDecodeNames(t *testing.T) {
	for text, want := range map[string]string{
		`{"seq":1,"type":"x"}` + "\n" + `{"seq":2,"text":"y"}`: "",
		`{"seq":1}` + "\n" + `{"seq":2,"Text":"y"}`:            `event 2: unknown field "Text"`,
		`{"seq":1,"seq":2}`: `event 1: the key "seq" is there twice, at byte 14`,
	} {
		got := ""
		if _, err := Decode(strings.NewReader(text)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestTodoWrite: the list is replaced, and an item without one of its parts is an error.
func TestTodoWrite(t *testing.T) {
	b := (CodeTools{}).Toolbox()
	for input, want := range map[string]string{
		`{"todos":[{"content":"a","status":"pending","activeForm":"doing a"}]}`: "[pending] a\n",
		`{"todos":[{"content":"a","status":"pending"}]}`:                        "activeForm",
		`{"todos":[{"content":"a","status":"late","activeForm":"b"}]}`:          "none of pending",
		`{"todos":[]}`: "",
		`{}`:           "todos",
	} {
		text, _ := b.Run(t.Context(), transcript.Call{Name: "TodoWrite", Input: json.RawMessage(input)})
		if !strings.Contains(text, want) || want == "" && text != "" {
			t.Errorf("%s: %q, want %q", input, text, want)
		}
	}
}
