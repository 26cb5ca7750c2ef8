package strict

import (
	"encoding/json"
	"testing"
	"time"
)

func TestKeys(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":"a","b":{"a":["a","a",{"a":1}]},"c":[{"a":1},{"a":2}]}`: "",
		`"a"`:                           "",
		`["a","a"]`:                     "",
		`{"a":1,"b":{},"a":2}`:          `the key "a" is there twice, at byte 17`,
		`[{"b":{"a":"a","\u0061":[]}}]`: `the key "a" is there twice, at byte 23`,
		`{"a":[],"a":{}}`:               `the key "a" is there twice, at byte 11`,
		`{"a":1e400,"b":1e400}`:         "",
		`{"a":1e400,"b":1,"b":2}`:       `the key "b" is there twice, at byte 20`,
	} {
		got := ""
		if err := Keys([]byte(text)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

type deep struct {
	Inner string `json:"inner"`
	Outer int    `json:"outer"`
}

type sample struct {
	deep
	*Pointed
	Limits map[string]deep `json:"limits,omitempty"`
	List   []*deep         `json:"list"`
	Plain  bool
	Outer  string          `json:"outer"`
	Raw    json.RawMessage `json:"raw"`
	Any    any             `json:"any"`
	Time   time.Time       `json:"time"`
	Hidden string          `json:"-"`
	Dash   int             `json:"-,"`
}

// Pointed is embedded by a pointer.
type Pointed struct {
	Far int `json:"far"`
}

// TestExactNames: encoding/json matches the names of fields without case, which strict.JSON does
// not.
func TestExactNames(t *testing.T) {
	for text, want := range map[string]string{
		`{"inner":"x","outer":"y","far":1,"Plain":true,"-":1}`:           "",
		`{"limits":{"Any":{"inner":"x"},"any":{}},"list":[{"outer":1}]}`: "",
		`{"raw":{"Raw":1,"raw":2,"raw":3},"any":{"A":1,"a":2}}`:          "",
		`{"raw":[1e400,{"a":-1e400}],"limits":{"x":{"inner":"x"}}}`:      "",
		`{"list":[null],"time":"2026-01-01T00:00:00Z","limits":null}`:    "",
		`{"Limits":{}}`:                      `json: unknown field "Limits"`,
		`{"limits":{},"Limits":{}}`:          `json: unknown field "Limits"`,
		`{"limits":{"x":{"Inner":"x"}}}`:     `json: unknown field "Inner"`,
		`{"list":[{"inner":"x","OUTER":1}]}`: `json: unknown field "OUTER"`,
		`{"plain":true}`:                     `json: unknown field "plain"`,
		`{"Far":1}`:                          `json: unknown field "Far"`,
		`{"li\u017ft":[]}`:                   `json: unknown field "liſt"`,
		`{"Hidden":"x"}`:                     `json: unknown field "Hidden"`,
		`{"limits":{"x":{},"x":{}}}`:         `the key "x" is there twice, at byte 21`,
		`{"any":1} {}`:                       ErrMore.Error(),
	} {
		got := ""
		if err := JSON([]byte(text), &sample{}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
