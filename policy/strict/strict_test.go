package strict

import "testing"

func TestKeys(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":"a","b":{"a":["a","a",{"a":1}]},"c":[{"a":1},{"a":2}]}`: "",
		`"a"`:                           "",
		`["a","a"]`:                     "",
		`{"a":1,"b":{},"a":2}`:          `the key "a" is there twice, at byte 17`,
		`[{"b":{"a":"a","\u0061":[]}}]`: `the key "a" is there twice, at byte 23`,
		`{"a":[],"a":{}}`:               `the key "a" is there twice, at byte 11`,
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
