package codetools

import (
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema returns the JSON Schema of a type. Its lists are lists: clients that know one type for each
// value, as models have it, do not take the null beside it that a nil slice would be.
func Schema[T any]() *jsonschema.Schema {
	out, err := jsonschema.For[T](nil)
	if err != nil {
		panic("codetools: bug: " + err.Error())
	}
	listsAreLists(out)
	return out
}

func listsAreLists(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if slices.Equal(s.Types, []string{"null", "array"}) {
		s.Type, s.Types = "array", nil
	}
	listsAreLists(s.Items)
	for _, p := range s.Properties {
		listsAreLists(p)
	}
}
