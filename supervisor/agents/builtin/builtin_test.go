package builtin

import (
	"slices"
	"strings"
	"testing"
)

// The lines are those of Claude Code 2.1 and Codex 0.169.
func TestRead(t *testing.T) {
	for _, c := range []struct {
		name string
		out  string
		want Answer
	}{
		{"claude-code-responder", `{"type":"result","subtype":"success","is_error":false,"result":"hi",` +
			`"session_id":"s1","usage":{"input_tokens":3,"cache_creation_input_tokens":1,` +
			`"cache_read_input_tokens":2,"output_tokens":4}}`,
			Answer{Text: "hi", Session: "s1", Tokens: 10}},
		{"claude-code-responder", `{"session_id":"s1","is_error":true,"subtype":"success",` +
			`"result":"Not logged in","type":"result"}`,
			Answer{Session: "s1", Failure: "Not logged in"}},
		{"claude-code-responder", `{"type":"result","is_error":true,"subtype":"error_max_turns"}`,
			Answer{Failure: "error_max_turns"}},
		{"claude-code-responder", `{"type":"system","subtype":"init"}`, Answer{}},
		{"codex-responder", `{"type":"thread.started","thread_id":"t1"}
{"type":"turn.started"}
{"type":"error","message":"Reconnecting... 1/5"}
{"type":"item.completed","item":{"id":"item_0","type":"reasoning","text":"hm"}}
{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"first"}}
{"type":"item.completed","item":{"id":"item_2","type":"agent_message","text":"last"}}

{"type":"turn.completed","usage":{"input_tokens":5,"cached_input_tokens":4,"output_tokens":2}}`,
			Answer{Text: "last", Session: "t1", Tokens: 7}},
		{"codex-responder", `{"type":"thread.started","thread_id":"t1"}
{"type":"turn.failed","error":{"message":"no credit"}}`, Answer{Session: "t1", Failure: "no credit"}},
	} {
		a, ok := Find(c.name)
		if !ok {
			t.Fatal(c.name)
		}
		var got Answer
		for line := range strings.Lines(c.out) {
			if err := a.Read([]byte(line), &got); err != nil {
				t.Errorf("%s: %q: %v", c.name, line, err)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s\ngives %+v\nwant  %+v", c.name, c.out, got, c.want)
		}
		if err := a.Read([]byte("usage: "+c.name), &got); err == nil {
			t.Errorf("%s: a text is read as an answer", c.name)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"type":"result","result":"hi"}`))
	f.Add([]byte(`{"type":"item.completed","item":{"type":"agent_message","text":"x"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, a := range All() {
			var got Answer
			// Whatever a program prints is an answer, nothing or an error.
			_ = a.Read(line, &got)
		}
	})
}

func TestArgs(t *testing.T) {
	for name, want := range map[string][2]string{
		"claude-code-responder": {"--print --output-format json --model x",
			"--print --output-format json --model x --resume s"},
		"codex-responder": {"exec --model x --json --skip-git-repo-check -",
			"exec --model x --json --skip-git-repo-check resume s -"},
	} {
		a, _ := Find(name)
		for n, session := range []string{"", "s"} {
			got := strings.Join(a.Args(session, Config{Args: []string{"--model", "x"}}), " ")
			if got != want[n] {
				t.Errorf("%s: %s, want %s", name, got, want[n])
			}
		}
	}
}

func TestCheckPlace(t *testing.T) {
	for config, says := range map[string]string{
		"":                         "",
		"{}":                       "",
		`{"dir":"/srv"}`:           "",
		`{"agents":["triage"]}`:    "",
		`{"dir":"srv"}`:            "no absolute path",
		`{"program":"claude"}`:     "no absolute path",
		`{"agents":["A B"]}`:       "no name",
		`{"more":1}`:               "unknown field",
		`{} {}`:                    "more than one JSON value",
		`[]`:                       "object of program",
		strings.Repeat(" ", 70000): "",
		`{"args":["` + strings.Repeat("x", 70000) + `"]}`: "more than",
	} {
		err := CheckPlace("main", Place{Config: []byte(config)})
		if says == "" && err != nil || says != "" && (err == nil ||
			!strings.Contains(err.Error(), says)) {
			t.Errorf("%.40s: %v, want %q", config, err, says)
		}
	}
	if CheckPlace("", Place{}) == nil || CheckPlace("../x", Place{}) == nil ||
		CheckPlace("main", Place{Handle: "a b"}) == nil {
		t.Error("a wrong channel or handle is right")
	}
}

// A manifest of a built-in agent says that it has all rights, and that no message is repeated.
func TestManifest(t *testing.T) {
	a, _ := Find("codex-responder")
	m := a.Manifest(map[string]Place{"b": {Handle: "cx", Config: []byte(`{"dir":"/srv"}`)},
		"a": {}}, "b")
	if !m.OnHost() || m.Handle != "cx" || string(m.Config) != `{"dir":"/srv"}` ||
		!slices.Equal(m.Channels, []string{"a", "b"}) || m.Wake.Retries != 0 || m.Wake.Batch != 1 ||
		!slices.Equal(m.Bindings(), []string{"PUBSUB", "STORAGE", "AI", "HOST"}) {
		t.Errorf("%+v", m)
	}
	if m := a.Manifest(map[string]Place{"a": {}}, "a"); m.Handle != "codex" ||
		string(m.Config) != "{}" {
		t.Errorf("%+v", m)
	}
}
