// Package strict reads JSON that others have written and that can have one meaning only.
package strict

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// JSON reads a text into the value that to points to by the rules of encoding/json. It returns an
// error for a key that to has no field for or that Names refuses, and for anything behind the value.
func JSON(text []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return ErrMore
	}
	return Names(text, to)
}

// ErrMore is the error for a text of more than one value.
var ErrMore = errors.New("something follows the JSON value")

// Keys returns an error if an object in a text has a key twice: of two equal keys encoding/json takes
// the last, and other readers take the first. The text is JSON already.
func Keys(text []byte) error {
	return check(text, nil, true)
}

// Names returns an error if an object that is read into a struct in to has a key that is not, letter
// for letter, the name of a field: encoding/json takes "Limits" for "limits". A key twice is an error
// as in Keys, but not within a value that to keeps as text. The text is JSON that fits to.
func Names(text []byte, to any) error { return check(text, reflect.TypeOf(to), false) }

func check(text []byte, t reflect.Type, raw bool) error {
	d := json.NewDecoder(bytes.NewReader(text))
	// JSON does not bound a number, and a float64 does.
	d.UseNumber()
	return checkValue(d, t, raw)
}

// checkValue checks the keys in the next value, which is read into a t; nil is any type. raw says that
// the keys within a value of any type are checked, too.
func checkValue(d *json.Decoder, t reflect.Type, raw bool) error {
	fields, elem := inside(t)
	if fields == nil && elem == nil && !raw {
		var text json.RawMessage
		return d.Decode(&text)
	}
	token, err := d.Token()
	open, _ := token.(json.Delim)
	if err != nil || open == 0 {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		of := elem
		if open == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			name, _ := token.(string)
			if seen[name] {
				return fmt.Errorf("the key %.60q is there twice, at byte %d", name, d.InputOffset())
			}
			seen[name] = true
			if fields != nil {
				if of = fields[name]; of == nil {
					return fmt.Errorf("json: unknown field %q", name)
				}
			}
		}
		if err := checkValue(d, of, raw); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// inside returns what encoding/json reads the members of a value of type t into: the fields of a
// struct by their names, or the element of a list or map. Both are nil for a type that reads itself.
func inside(t reflect.Type) (fields map[string]reflect.Type, elem reflect.Type) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil, nil
	}
	switch t.Kind() {
	case reflect.Struct:
		fields = map[string]reflect.Type{}
		addFields(t, fields)
		return fields, nil
	case reflect.Map, reflect.Slice, reflect.Array:
		return nil, t.Elem()
	}
	return nil, nil
}

// addFields adds the fields of a struct, those of embedded structs first: an outer field hides them.
func addFields(t reflect.Type, to map[string]reflect.Type) {
	own := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		embedded := f.Type
		if f.Anonymous && embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		switch {
		case f.Tag.Get("json") == "-":
		case f.Anonymous && name == "" && embedded.Kind() == reflect.Struct:
			addFields(embedded, to)
		case f.IsExported():
			own[cmp.Or(name, f.Name)] = f.Type
		}
	}
	for name, field := range own {
		to[name] = field
	}
}
