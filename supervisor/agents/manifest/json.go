package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/jail-sandbox/jail/policy/syntax"
)

// maxDepth bounds how deep the values of agent.json are nested.
const maxDepth = 16

// plainJSON decodes JSON and returns its values, and positions by path, as syntax.PlainAt does.
func plainJSON(source string, text []byte) (map[string]any, map[string]syntax.Position, error) {
	if len(text) > syntax.MaxBytes {
		return nil, nil, syntax.Errors{{Position: syntax.Position{File: source, Line: 1, Column: 1},
			Message: "the file is larger than 1 MiB"}}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	w := &jsonWalk{d: d, source: source, text: text, at: map[string]syntax.Position{}}
	v, err := w.value("", 0)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one value")
		}
	}
	root, ok := v.(map[string]any)
	if err == nil && !ok {
		err = errors.New("the manifest is no object")
	}
	if err != nil {
		offset := d.InputOffset()
		if bad, ok := errors.AsType[*json.SyntaxError](err); ok {
			offset = bad.Offset - 1
		}
		return nil, nil, syntax.Errors{{Position: w.position(offset),
			Message: fmt.Sprintf("is no JSON of a manifest: %v", err)}}
	}
	return root, w.at, nil
}

// jsonWalk reads JSON values and records their positions.
type jsonWalk struct {
	d      *json.Decoder
	source string
	text   []byte
	at     map[string]syntax.Position
}

func (w *jsonWalk) position(offset int64) syntax.Position {
	before := w.text[:min(max(offset, 0), int64(len(w.text)))]
	return syntax.Position{File: w.source, Line: bytes.Count(before, []byte("\n")) + 1,
		Column: len(before) - bytes.LastIndexByte(before, '\n')}
}

// next returns the next token and its position.
func (w *jsonWalk) next() (json.Token, syntax.Position, error) {
	start := w.d.InputOffset()
	for start < int64(len(w.text)) && bytes.IndexByte([]byte(" \t\r\n,:"), w.text[start]) >= 0 {
		start++
	}
	token, err := w.d.Token()
	return token, w.position(start), err
}

func (w *jsonWalk) value(path string, depth int) (any, error) {
	token, pos, err := w.next()
	if err != nil {
		return nil, err
	}
	if _, ok := w.at[path]; !ok && path != "" {
		w.at[path] = pos
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d levels", maxDepth)
	}
	switch v := token.(type) {
	case json.Delim:
		if v == '{' {
			return w.object(path, depth)
		}
		return w.array(path, depth)
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n, nil
		}
		return v.Float64()
	}
	return token, nil
}

func (w *jsonWalk) object(path string, depth int) (any, error) {
	out := map[string]any{}
	for w.d.More() {
		token, pos, err := w.next()
		if err != nil {
			return nil, err
		}
		key := token.(string)
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("%q is said a second time", key)
		}
		below := key
		if path != "" {
			below = path + "." + key
		}
		w.at[below] = pos
		if out[key], err = w.value(below, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := w.d.Token()
	return out, err
}

func (w *jsonWalk) array(path string, depth int) (any, error) {
	out := []any{}
	for i := 0; w.d.More(); i++ {
		v, err := w.value(path+"."+strconv.Itoa(i), depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	_, err := w.d.Token()
	return out, err
}
