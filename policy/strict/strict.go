// Package strict reads JSON from others so that it can have only one meaning.
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

// JSON decodes a text into to, by the rules of encoding/json. It returns an error for an unknown
// key, for a key that Names refuses, and ErrMore for data after the value.
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

// ErrMore is returned by JSON for data after the value.
var ErrMore = errors.New("something follows the JSON value")

// Keys returns an error if an object in a text has a key twice: encoding/json takes the last, and
// other readers the first. The text must be valid JSON.
func Keys(text []byte) error {
	return check(text, nil, true)
}

// Names returns an error if a key of an object that is decoded into a struct in to differs from the
// field's name in case: encoding/json takes "Limits" for "limits". Duplicate keys are errors as in
// Keys, except in a value that to keeps as text. The text must be valid JSON for to.
func Names(text []byte, to any) error { return check(text, reflect.TypeOf(to), false) }

func check(text []byte, t reflect.Type, raw bool) error {
	d := json.NewDecoder(bytes.NewReader(text))
	// A number may be too large for a float64.
	d.UseNumber()
	return checkValue(d, t, raw)
}

// checkValue checks the keys in the next value, which is decoded into a t; nil is any type. raw is
// set to check the keys within values of any type, too.
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

// inside returns the types that the members of a value of type t are decoded into: the fields of a
// struct by name, or the element of a list or map. Both are nil for a type with its own decoder.
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

// addFields adds the fields of a struct. It adds those of embedded structs first, since outer
// fields hide them.
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
