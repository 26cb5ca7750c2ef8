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
	// MaxBytes is the size of the largest file that is read.
	MaxBytes = 1 << 20
	// Of arrays, tables and dotted keys in each other; the shape needs four.
	maxDepth = 16

	// maxValues bounds the keys, tables and items of one file. What follows the tree, the library's
	// search for repeated keys and the comparison of rules, takes time by their square.
	maxValues = 8192
)

// node is a value of a file with its place. The TOML library decodes into Go values
// without places, and folds the case of keys; so the tree is built here from its parser,
// and the library's own decoder serves as a second judge of what is well-formed.
type node struct {
	pos Position
	// Array, InlineTable for every table, or a scalar
	kind unstable.Kind
	// A string's value, or a scalar as it is written.
	text  string
	items []*node
	// Of a table, in the order of the file.
	keys  []string
	keyAt map[string]Position
	table map[string]*node
	// header is set where a [header] made the table; a table or list that is closed was
	// written in braces or brackets.
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

// parseTree reads a file into a tree. It returns nil where nothing can be made of it.
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

// plainText refuses what no policy file should be before a parser sees it.
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

// secondJudge lets the library decode the file, and reports its verdict where this
// package found nothing wrong by itself.
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

// tooMany reports whether the file has more values than are read.
func (b *treeBuilder) tooMany() bool { return b.values > maxValues }

// count takes one more value of the file, at pos, and reports whether it is one too many.
func (b *treeBuilder) count(pos Position) bool {
	if b.values++; b.values == maxValues+1 {
		b.errs.add(pos, "make it smaller",
			"the file has more than %d keys, tables and items of lists", maxValues)
	}
	return b.tooMany()
}

func (b *treeBuilder) keyPos(k *unstable.Node) Position { return b.at(int(k.Raw.Offset)) }

// header finds or makes the table of a [header] or [[header]].
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

// descend goes through a table on the way to another, and through an array of tables
// into its last one.
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

// keyValue puts one "key = value" into a table.
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

// value builds the node of a value; pos is the place of what it belongs to, for values
// that have no place of their own.
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
		// While its own dotted keys fill it.
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

// integer reads a TOML integer; ok is false where it does not fit.
func (n *node) integer() (int64, bool) {
	v, err := strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 0, 64)
	return v, err == nil
}

// kindWord is what a value is called in an error.
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
