package syntax

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

const (
	// MaxBytes is the largest size of a file that is read.
	MaxBytes = 1 << 20
	// depth of nested arrays, tables and dotted keys; policies need four
	maxDepth = 16

	// maxValues bounds the keys, tables and items of one file. The library's search for repeated
	// keys and the comparison of rules take time by their square.
	maxValues = 8192
)

// node is a value of a file with its position. The TOML library decodes into Go values without
// positions, and ignores the case of keys. So the tree is built from its parser, and its decoder
// only checks that the file is valid.
type node struct {
	pos Position
	// Array, InlineTable for every table, or the kind of a scalar
	kind unstable.Kind
	// the value of a string, or the text of another scalar
	text  string
	items []*node
	// the keys of a table, in the order of the file
	keys  []string
	keyAt map[string]Position
	table map[string]*node
	// header is set if a [header] made the table. closed is set for a table or list in braces or
	// brackets.
	header, closed bool
}

func (n *node) get(key string) *node { return n.table[key] }

func (n *node) put(key string, at Position, v *node) {
	n.keys = append(n.keys, key)
	n.keyAt[key] = at
	n.table[key] = v
}

func newTable(pos Position) *node {
	return &node{pos: pos, kind: unstable.InlineTable, keyAt: map[string]Position{},
		table: map[string]*node{}}
}

type treeBuilder struct {
	file   string
	p      unstable.Parser
	lines  lines
	values int // that were made
	errs   *Errors
}

// parseTree parses a file into a tree. It adds errors to errs, and may return nil.
func parseTree(file string, data []byte, errs *Errors) *node {
	b := &treeBuilder{file: file, errs: errs}
	if !b.plainText(data) {
		return nil
	}
	b.lines = indexLines(data)
	root := newTable(b.at(0))
	here := root
	b.p.Reset(data)
	for b.p.NextExpression() {
		e := b.p.Expression()
		switch e.Kind {
		case unstable.KeyValue:
			b.keyValue(here, e, 0)
		case unstable.Table, unstable.ArrayTable:
			here = b.header(root, e)
		}
		if errs.full() || b.tooMany() {
			return nil
		}
	}
	if err := b.p.Error(); err != nil {
		offset := 0
		if perr, ok := errors.AsType[*unstable.ParserError](err); ok && perr.Highlight != nil {
			offset = int(b.p.Range(perr.Highlight).Offset)
		}
		errs.add(b.at(offset), "", "is no TOML: %v", err)
		return nil
	}
	b.secondJudge(data)
	return root
}

// plainText refuses a file that is larger than MaxBytes, has a byte order mark or is not UTF-8,
// before it is parsed.
func (b *treeBuilder) plainText(data []byte) bool {
	first := Position{b.file, 1, 1}
	switch {
	case len(data) > MaxBytes:
		b.errs.add(first, "", "the file is larger than 1 MiB")
		return false
	case bytes.HasPrefix(data, []byte("\ufeff")):
		b.errs.add(first, "save it as UTF-8 without one", "the file starts with a byte order mark")
		return false
	}
	if utf8.Valid(data) {
		return true
	}
	line, start := 1, 0
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size <= 1 {
			b.errs.add(Position{b.file, line, i - start + 1}, "", "the file is not UTF-8")
			return false
		}
		if i += size; r == '\n' {
			line, start = line+1, i
		}
	}
	return false
}

// secondJudge decodes the file with the library, and reports its error if there is none yet.
func (b *treeBuilder) secondJudge(data []byte) {
	if len(*b.errs) > 0 {
		return
	}
	var into map[string]any
	err := toml.Unmarshal(data, &into)
	if err == nil {
		return
	}
	pos := Position{b.file, 1, 1}
	if derr, ok := errors.AsType[*toml.DecodeError](err); ok {
		pos.Line, pos.Column = derr.Position()
	}
	b.errs.add(pos, "", "is no TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
}

func (b *treeBuilder) at(offset int) Position {
	line, column := b.lines.at(offset)
	return Position{b.file, line, column}
}

// tooMany reports whether the file has more than maxValues values.
func (b *treeBuilder) tooMany() bool { return b.values > maxValues }

// count counts a value at pos. It reports whether that is one too many.
func (b *treeBuilder) count(pos Position) bool {
	if b.values++; b.values == maxValues+1 {
		b.errs.add(pos, "make it smaller",
			"the file has more than %d keys, tables and items of lists", maxValues)
	}
	return b.tooMany()
}

func (b *treeBuilder) keyPos(k *unstable.Node) Position { return b.at(int(k.Raw.Offset)) }

// header returns the table of a [header] or [[header]], and creates it if needed.
func (b *treeBuilder) header(root *node, e *unstable.Node) *node {
	here := root
	depth := 0
	for it := e.Key(); it.Next(); depth++ {
		name, pos := string(it.Node().Data), b.keyPos(it.Node())
		next := here.get(name)
		switch {
		case b.count(pos):
			return newTable(pos)
		case depth >= maxDepth:
			b.errs.add(pos, "", "the table is nested deeper than %d levels", maxDepth)
			return newTable(pos)
		case !it.IsLast():
			here = b.descend(here, name, next, pos)
		case e.Kind == unstable.ArrayTable:
			return b.element(here, name, next, pos)
		case next == nil:
			next = newTable(pos)
			here.put(name, pos, next)
			next.header = true
			return next
		case next.kind != unstable.InlineTable || next.header || next.closed:
			b.duplicate(pos, name, next)
			return newTable(pos)
		default:
			next.header = true
			return next
		}
	}
	return here
}

// descend returns the table called name in here, or the last one of an array of tables. It creates
// the table if next, the value called name, is nil.
func (b *treeBuilder) descend(here *node, name string, next *node, pos Position) *node {
	switch {
	case next == nil:
		next = newTable(pos)
		here.put(name, pos, next)
	case next.kind == unstable.Array && !next.closed && len(next.items) > 0:
		return next.items[len(next.items)-1]
	case next.kind != unstable.InlineTable || next.closed:
		b.duplicate(pos, name, next)
		return newTable(pos)
	}
	return next
}

func (b *treeBuilder) element(here *node, name string, next *node, pos Position) *node {
	element := newTable(pos)
	switch {
	case next == nil:
		next = &node{pos: pos, kind: unstable.Array}
		here.put(name, pos, next)
	case next.kind != unstable.Array || next.closed:
		b.duplicate(pos, name, next)
		return element
	}
	next.items = append(next.items, element)
	return element
}

func (b *treeBuilder) duplicate(pos Position, name string, first *node) {
	b.errs.add(pos, "leave one of them out", "%q is said a second time, after line %d", name,
		first.pos.Line)
}

// keyValue adds one "key = value" to a table.
func (b *treeBuilder) keyValue(here *node, e *unstable.Node, depth int) {
	for it := e.Key(); it.Next(); depth++ {
		name, pos := string(it.Node().Data), b.keyPos(it.Node())
		next := here.get(name)
		switch {
		case b.count(pos):
			return
		case depth >= maxDepth:
			b.errs.add(pos, "", "the key is nested deeper than %d levels", maxDepth)
			return
		case !it.IsLast():
			here = b.descend(here, name, next, pos)
		case next != nil:
			b.duplicate(pos, name, next)
			return
		default:
			here.put(name, pos, b.value(e.Value(), pos, depth))
		}
	}
}

// value returns the node of a value. pos is the position of its key or list, for values without a
// position of their own.
func (b *treeBuilder) value(v *unstable.Node, pos Position, depth int) *node {
	if v.Raw.Length > 0 {
		pos = b.at(int(v.Raw.Offset))
	}
	n := &node{pos: pos, kind: v.Kind, closed: true}
	if depth >= maxDepth {
		b.errs.add(pos, "", "the value is nested deeper than %d levels", maxDepth)
		return n
	}
	switch v.Kind {
	case unstable.Array:
		for it := v.Children(); it.Next(); {
			if it.Node().Kind == unstable.Comment {
				continue
			}
			if b.count(pos) {
				return n
			}
			n.items = append(n.items, b.value(it.Node(), pos, depth+1))
		}
	case unstable.InlineTable:
		n.table, n.keyAt = map[string]*node{}, map[string]Position{}
		// It is open while its own dotted keys are added.
		n.closed = false
		for it := v.Children(); it.Next(); {
			if b.tooMany() || b.errs.full() {
				return n
			}
			if it.Node().Kind == unstable.KeyValue {
				b.keyValue(n, it.Node(), depth+1)
			}
		}
		n.closed = true
	default:
		n.text = string(v.Data)
	}
	return n
}

// integer returns the value of a TOML integer. ok is false if it does not fit.
func (n *node) integer() (int64, bool) {
	v, err := strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 0, 64)
	return v, err == nil
}

// kindWord returns the name of the node's kind for errors.
func (n *node) kindWord() string {
	switch n.kind {
	case unstable.Array:
		return "a list"
	case unstable.InlineTable:
		return "a table"
	case unstable.String:
		return "a string"
	case unstable.Bool:
		return "true or false"
	case unstable.Float:
		return "a number with a fraction"
	case unstable.Integer:
		return "a whole number"
	}
	return "a date or time"
}
