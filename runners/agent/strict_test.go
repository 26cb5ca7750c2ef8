package agent

import "testing"

// What is no such value is refused in words about the value.
func TestStrict(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": {"b": 1}}`:   "",
		`{"a": {"b": "x"}}`: `"a.b" cannot be a JSON string`,
		`{"a": {"c": 1}}`:   `unknown field "c"`,
		`{"a": {"B": 1}}`:   `unknown field "B"`,
		`[]`:                "the value cannot be a JSON array",
		`{} {}`:             "more than one JSON value",
		`{`:                 "unexpected EOF",
	} {
		var to struct {
			A struct {
				B int `json:"b"`
			} `json:"a"`
		}
		got := ""
		if err := Strict([]byte(text), &to); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
