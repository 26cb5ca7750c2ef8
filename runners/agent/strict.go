package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jail-sandbox/jail/policy/strict"
)

// Strict decodes one JSON value into to and rejects unknown fields, as strict.JSON does. Its errors
// name JSON fields and no Go types, so that the author of the value understands them.
func Strict(text []byte, to any) error {
	err := strict.JSON(text, to)
	switch kind, ok := errors.AsType[*json.UnmarshalTypeError](err); {
	case err == nil:
		return nil
	case errors.Is(err, strict.ErrMore):
		return errors.New("more than one JSON value")
	case ok && kind.Field != "":
		return fmt.Errorf("%q cannot be a JSON %s", kind.Field, kind.Value)
	case ok:
		return fmt.Errorf("the value cannot be a JSON %s", kind.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// Params decodes the parameters of a binding call with Strict. Its error has the code ErrParams.
func Params(text []byte, to any) error {
	if err := Strict(text, to); err != nil {
		return Errorf(ErrParams, "parameters: %v", err)
	}
	return nil
}
