package syntax

import (
	"strconv"

	"github.com/pelletier/go-toml/v2/unstable"
)

// Plain reads a file that is no policy, with the same strictness as one, into maps, lists, strings,
// booleans and numbers (int64, float64). The error is of type Errors. What its keys mean is the
// caller's.
func Plain(source string, text []byte) (map[string]any, error) {
	var errs Errors
	root := parseTree(source, text, &errs)
	if root == nil || len(errs) > 0 {
		return nil, errs.sorted()
	}
	out, _ := plain(root, &errs).(map[string]any)
	if len(errs) > 0 {
		return nil, errs.sorted()
	}
	return out, nil
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
