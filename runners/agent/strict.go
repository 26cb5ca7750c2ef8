package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Strict reads exactly one JSON value that has no unknown fields. Its errors are for who wrote the
// value: they name its fields, and no types of Go.
func Strict(text []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			what := "the value"
			if kind.Field != "" {
				what = fmt.Sprintf("%q", kind.Field)
			}
			return fmt.Errorf("%s cannot be a JSON %s", what, kind.Value)
		}
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}
