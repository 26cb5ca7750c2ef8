package syntax

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/jail-sandbox/jail/policy/strict"
)

// Plain reads a TOML file that is no policy, as strictly as one, into maps, lists, strings,
// booleans and numbers (int64, float64). The error has the type Errors.
func Plain(source string, text []byte) (map[string]any, error) {
	out, _, err := PlainAt(source, text)
	return out, err
}

// Decode reads a file as Plain does, decodes it into to by the rules of encoding/json, and calls
// check. An unknown key is an error.
func Decode(source string, text []byte, to any, check func() error) error {
	values, err := Plain(source, text)
	if err != nil {
		return err
	}
	plain, err := json.Marshal(values)
	if err == nil {
		err = strict.JSON(plain, to)
	}
	if err == nil {
		err = check()
	}
	if err != nil {
		return fmt.Errorf("%s: %s", source, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// PlainAt is Plain with the positions of keys and list items. The host of the second item of a list
// internal is "internal.1.host".
func PlainAt(source string, text []byte) (map[string]any, map[string]Position, error) {
	var errs Errors
	root := parseTree(source, text, &errs)
	if root == nil || len(errs) > 0 {
		return nil, nil, errs.sorted()
	}
	out, _ := plain(root, &errs).(map[string]any)
	if len(errs) > 0 {
		return nil, nil, errs.sorted()
	}
	at := map[string]Position{}
	places(root, "", at)
	return out, at, nil
}

func places(n *node, prefix string, at map[string]Position) {
	for _, key := range n.keys {
		at[prefix+key] = n.keyAt[key]
		places(n.get(key), prefix+key+".", at)
	}
	for i, item := range n.items {
		path := prefix + strconv.Itoa(i)
		at[path] = item.pos
		places(item, path+".", at)
	}
}

func plain(n *node, errs *Errors) any {
	switch n.kind {
	case unstable.InlineTable:
		out := map[string]any{}
		for _, key := range n.keys {
			out[key] = plain(n.get(key), errs)
		}
		return out
	case unstable.Array:
		out := []any{}
		for _, item := range n.items {
			out = append(out, plain(item, errs))
		}
		return out
	case unstable.String:
		return n.text
	case unstable.Bool:
		return n.text == "true"
	case unstable.Integer:
		if i, ok := n.integer(); ok {
			return i
		}
	case unstable.Float:
		if f, err := strconv.ParseFloat(n.text, 64); err == nil {
			return f
		}
	}
	errs.add(n.pos, "", "a value that has no meaning here: %s", n.kindWord())
	return nil
}
