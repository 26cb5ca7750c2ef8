package jsonbound

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for text, values := range map[string]int{
		"":                                 0,
		"[]":                               1,
		"null":                             1,
		" [ 1 , -2.5e3,true ] ":            4,
		`{"a":1}`:                          3,
		`{"a,b":"c\"[,{\\","d":[]}`:        5,
		`[[[[]]]]`:                         4,
		`["\\",1]`:                         3,
		`"` + strings.Repeat("[,", 50):     1,
		strings.Repeat("[", 5) + `"a""b"1`: 8,
	} {
		if err := Check([]byte(text), values); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if err := Check([]byte(text), values-1); err == nil && values > 0 {
			t.Errorf("%s has fewer than %d values", text, values)
		}
	}
}
