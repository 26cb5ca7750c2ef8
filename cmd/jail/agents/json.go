package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
)

// A jsonFile is a JSON file, perhaps with comments. Changes preserve the comments, order and layout
// of the rest.
type jsonFile struct {
	root hujson.Value
	// unit is the indentation of one level.
	unit string
}

func parseJSON(text []byte) (*jsonFile, error) {
	f := &jsonFile{unit: "  "}
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	var err error
	if f.root, err = hujson.Parse(text); err != nil {
		return nil, err
	}
	o, ok := f.root.Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("it is no object of JSON")
	}
	if len(o.Members) > 0 {
		before := o.Members[0].Name.BeforeExtra
		if i := bytes.LastIndexByte(before, '\n'); i >= 0 && len(before) > i+1 {
			f.unit = string(before[i+1:])
		}
	}
	return f, nil
}

func (f *jsonFile) text() []byte { return f.root.Pack() }

// find returns the index of a member, -1 if there is none. A duplicate is an error, since programs
// differ in which one they use.
func find(o *hujson.Object, name string) (int, error) {
	at := -1
	for i := range o.Members {
		if l, ok := o.Members[i].Name.Value.(hujson.Literal); ok && l.String() == name {
			if at >= 0 {
				return 0, fmt.Errorf("it has %s twice", strconv.Quote(name))
			}
			at = i
		}
	}
	return at, nil
}

// object returns the object at a path of names. If there is none, it returns nil, or creates it if
// make is true. made is the number of objects that it created.
func (f *jsonFile) object(at []string, make bool) (o *hujson.Object, made int, err error) {
	o = f.root.Value.(*hujson.Object)
	for depth, name := range at {
		i, err := find(o, name)
		switch {
		case err != nil:
			return nil, 0, err
		case i < 0 && !make:
			return nil, 0, nil
		case i < 0:
			f.put(o, depth, name, hujson.Value{Value: &hujson.Object{}})
			i, made = len(o.Members)-1, made+1
		}
		next, ok := o.Members[i].Value.Value.(*hujson.Object)
		if !ok {
			return nil, 0, fmt.Errorf("%s is no object", strings.Join(at[:depth+1], "."))
		}
		o = next
	}
	return o, made, nil
}

// line returns a line feed and an indentation of depth levels.
func (f *jsonFile) line(depth int) string { return "\n" + strings.Repeat(f.unit, depth) }

// lead returns the comments after the last element, to put them before a new element, and removes
// them from after.
func (f *jsonFile) lead(after *hujson.Extra, depth int) hujson.Extra {
	lead := append(slices.Clip(bytes.TrimRight(*after, " \t\r\n")), f.line(depth+1)...)
	*after = hujson.Extra(f.line(depth))
	return lead
}

// put appends a member to an object that has depth objects or lists around it.
func (f *jsonFile) put(o *hujson.Object, depth int, name string, v hujson.Value) {
	v.BeforeExtra = hujson.Extra(" ")
	if n := len(o.Members); n > 0 && o.Members[n-1].Value.AfterExtra != nil {
		// The last member has a trailing comma, so the new one gets one, too.
		v.AfterExtra = hujson.Extra{}
	}
	o.Members = append(o.Members, hujson.ObjectMember{Name: hujson.Value{
		BeforeExtra: f.lead(&o.AfterExtra, depth), Value: hujson.String(name)}, Value: v})
}

// value parses a JSON text and indents its lines. depth is the number of indentation levels of the
// value in the file: 1 for a member of the root object. Invalid JSON is an error.
func (f *jsonFile) value(text string, depth int) (hujson.Value, error) {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(text), strings.Repeat(f.unit, depth), f.unit); err != nil {
		return hujson.Value{}, err
	}
	return hujson.Parse(b.Bytes())
}

// same reports whether a value equals the value of a JSON text.
func same(v hujson.Value, text string) bool { return sameJSON(plainJSON(v), text) }

func sameJSON(x, y string) bool {
	var a, b any
	return json.Unmarshal([]byte(x), &a) == nil && json.Unmarshal([]byte(y), &b) == nil &&
		reflect.DeepEqual(a, b)
}

func plainJSON(v hujson.Value) string {
	v = v.Clone()
	v.Standardize()
	v.BeforeExtra, v.AfterExtra = nil, nil
	return string(v.Pack())
}

// apply makes a change and returns a copy of the change with the fields for undo set. If the file
// has the value already, it returns nil and no error.
func (f *jsonFile) apply(c change) (*change, error) {
	parent, name := c.At[:len(c.At)-1], c.At[len(c.At)-1]
	o, made, err := f.object(parent, true)
	if err != nil {
		return nil, err
	}
	i, err := find(o, name)
	if err != nil {
		return nil, err
	}
	depth := len(parent)
	if c.Item {
		return f.applyItem(c, o, i, made)
	}
	v, err := f.value(c.Value, depth+1)
	switch {
	case err != nil:
		return nil, err
	case i < 0:
		f.put(o, depth, name, v)
	case same(o.Members[i].Value, c.Value):
		return nil, nil
	case c.Must:
		return nil, fmt.Errorf("%s is %s, and not %s", strings.Join(c.At, "."),
			plainJSON(o.Members[i].Value), c.Value)
	default:
		c.Before = plainJSON(o.Members[i].Value)
		o.Members[i].Value.Value = v.Value
	}
	c.Made = made
	return &c, nil
}

func (f *jsonFile) applyItem(c change, o *hujson.Object, i, made int) (*change, error) {
	name, depth := c.At[len(c.At)-1], len(c.At)
	if i < 0 {
		f.put(o, depth-1, name, hujson.Value{Value: &hujson.Array{}})
		i, made = len(o.Members)-1, made+1
	}
	list, ok := o.Members[i].Value.Value.(*hujson.Array)
	if !ok {
		return nil, fmt.Errorf("%s is no list", strings.Join(c.At, "."))
	}
	if slices.ContainsFunc(list.Elements, func(e hujson.Value) bool { return same(e, c.Value) }) {
		return nil, nil
	}
	var replaced []json.RawMessage
	for i := 0; i < len(list.Elements); i++ {
		if old := plainJSON(list.Elements[i]); c.Hook != "" && isHook(old, c.Hook) {
			replaced = append(replaced, json.RawMessage(old))
			removeItem(list, i)
			i--
		}
	}
	if len(replaced) > 0 {
		c.Before = asJSON(replaced)
	}
	c.Made = made
	return &c, f.add(list, c.Value, depth)
}

// add appends a JSON value to a list that has depth objects or lists around it. Invalid JSON is an
// error.
func (f *jsonFile) add(list *hujson.Array, value string, depth int) error {
	v, err := f.value(value, depth+1)
	if err != nil {
		return err
	}
	if n := len(list.Elements); n > 0 && list.Elements[n-1].AfterExtra != nil {
		v.AfterExtra = hujson.Extra{}
	}
	v.BeforeExtra = f.lead(&list.AfterExtra, depth)
	list.Elements = append(list.Elements, v)
	return nil
}

// undoItem removes an item from a list, and restores the items that it replaced.
func (f *jsonFile) undoItem(c change, list *hujson.Array) error {
	i := slices.IndexFunc(list.Elements, func(e hujson.Value) bool { return same(e, c.Value) })
	if i < 0 {
		return nil
	}
	removeItem(list, i)
	var replaced []json.RawMessage
	if c.Before != "" {
		if err := json.Unmarshal([]byte(c.Before), &replaced); err != nil {
			return err
		}
	}
	for _, old := range replaced {
		if err := f.add(list, string(old), len(c.At)); err != nil {
			return err
		}
	}
	return nil
}

// undo reverts a change, if the file still has it. It also removes the objects and lists that apply
// created, if they are empty.
func (f *jsonFile) undo(c change) error {
	parent, name := c.At[:len(c.At)-1], c.At[len(c.At)-1]
	o, _, err := f.object(parent, false)
	if err != nil || o == nil {
		return err
	}
	i, err := find(o, name)
	if err != nil || i < 0 {
		return err
	}
	v := &o.Members[i].Value
	switch list, isList := v.Value.(*hujson.Array); {
	case c.Item && isList:
		if err := f.undoItem(c, list); err != nil || len(list.Elements) > 0 || c.Made == 0 {
			return err
		}
		removeMember(o, i)
		c.Made--
	case c.Item || !same(*v, c.Value):
		return nil
	case c.Before != "":
		before, err := f.value(c.Before, len(c.At))
		v.Value = before.Value
		return err
	default:
		removeMember(o, i)
	}
	for ; c.Made > 0; c.Made-- {
		parent, name = parent[:len(parent)-1], parent[len(parent)-1]
		if o, _, err = f.object(parent, false); err != nil || o == nil {
			return err
		}
		i, err := find(o, name)
		if err != nil || i < 0 {
			return err
		}
		if inner, ok := o.Members[i].Value.Value.(*hujson.Object); !ok || len(inner.Members) > 0 {
			return nil
		}
		removeMember(o, i)
	}
	return nil
}

// empty reports whether the file is an empty object without comments.
func (f *jsonFile) empty() bool {
	o, ok := f.root.Value.(*hujson.Object)
	return ok && len(o.Members) == 0 && len(bytes.TrimSpace(o.AfterExtra)) == 0
}

// removeMember removes a member. The comments before it stay, before the next member.
func removeMember(o *hujson.Object, i int) {
	next := &o.AfterExtra
	if i+1 < len(o.Members) {
		next = &o.Members[i+1].Name.BeforeExtra
	}
	*next = append(slices.Clip(bytes.TrimRight(o.Members[i].Name.BeforeExtra, " \t\r\n")), *next...)
	comma := o.Members[i].Value.AfterExtra
	if o.Members = slices.Delete(o.Members, i, i+1); i > 0 && i == len(o.Members) {
		o.Members[i-1].Value.AfterExtra = comma
	}
	if len(o.Members) == 0 && len(bytes.TrimSpace(o.AfterExtra)) == 0 {
		o.AfterExtra = nil
	}
}

func removeItem(list *hujson.Array, i int) {
	next := &list.AfterExtra
	if i+1 < len(list.Elements) {
		next = &list.Elements[i+1].BeforeExtra
	}
	*next = append(slices.Clip(bytes.TrimRight(list.Elements[i].BeforeExtra, " \t\r\n")), *next...)
	comma := list.Elements[i].AfterExtra
	if list.Elements = slices.Delete(list.Elements, i, i+1); i > 0 && i == len(list.Elements) {
		list.Elements[i-1].AfterExtra = comma
	}
	if len(list.Elements) == 0 && len(bytes.TrimSpace(list.AfterExtra)) == 0 {
		list.AfterExtra = nil
	}
}
