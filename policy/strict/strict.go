// Package strict reads JSON that others have written and that can have one meaning only.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// JSON reads a text into the value that to points to by the rules of encoding/json. A member that to
// has no field for is an error, as is anything behind the value.
func JSON(text []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return ErrMore
	}
	return nil
}

// ErrMore is the error for a text of more than one value.
var ErrMore = errors.New("something follows the JSON value")

// Keys returns an error if an object in a text has a key twice: of two equal keys encoding/json takes
// the last, and other readers take the first. The text is JSON already.
func Keys(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	// open are the keys of the objects that are open, nil for a list.
	var open []map[string]bool
	for key := false; ; {
		token, err := d.Token()
		if err != nil {
			return nil
		}
		if name, ok := token.(string); ok && key {
			if open[len(open)-1][name] {
				return fmt.Errorf("the key %.60q is there twice, at byte %d", name, d.InputOffset())
			}
			open[len(open)-1][name], key = true, false
			continue
		}
		switch token {
		case json.Delim('{'):
			open = append(open, map[string]bool{})
		case json.Delim('['):
			open = append(open, nil)
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		// What comes behind a value of an object is a key, or the end of the object.
		key = len(open) > 0 && open[len(open)-1] != nil
	}
}
