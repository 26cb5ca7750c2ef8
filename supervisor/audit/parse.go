package audit

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// errLine is wrapped by every refusal of the parser.
var errLine = errors.New("not a record")

// parser parses the strict JSON of a line. When it is reused it allocates nothing for a line, and
// neither depth nor length of a hostile line costs more than the bounds in encode.go.
type parser struct {
	b []byte
	i int
	// keys of the open objects, innermost last.
	keys [][]byte
}

// parse checks the whole line and calls field for each field of the record, in order, with the raw
// JSON of its value.
func (p *parser) parse(line []byte, field func(key, value []byte)) error {
	p.b, p.i, p.keys = line, 0, p.keys[:0]
	if !utf8.Valid(line) {
		return fmt.Errorf("%w: invalid UTF-8", errLine)
	}
	if err := p.object(1, field); err != nil {
		return err
	}
	if p.i != len(p.b) {
		return p.bad("end of line")
	}
	return nil
}

func (p *parser) bad(want string) error {
	return fmt.Errorf("%w: want %s at byte %d", errLine, want, p.i)
}

func (p *parser) eat(c byte) bool {
	if p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *parser) object(depth int, field func(key, value []byte)) error {
	if !p.eat('{') {
		return p.bad("{")
	}
	base := len(p.keys)
	defer func() { p.keys = p.keys[:base] }()
	if p.eat('}') {
		return nil
	}
	for {
		key, err := p.key(base)
		if err != nil {
			return err
		}
		start := p.i
		if err := p.value(depth); err != nil {
			return err
		}
		if field != nil {
			field(key, p.b[start:p.i])
		}
		if p.eat('}') {
			return nil
		}
		if !p.eat(',') {
			return p.bad(", or }")
		}
	}
}

func (p *parser) key(base int) ([]byte, error) {
	if !p.eat('"') {
		return nil, p.bad("a key")
	}
	start := p.i
	for p.i < len(p.b) && (p.b[p.i] >= 'a' && p.b[p.i] <= 'z' || p.b[p.i] >= '0' &&
		p.b[p.i] <= '9' || p.b[p.i] == '_') {
		p.i++
	}
	key := p.b[start:p.i]
	if len(key) == 0 || !p.eat('"') || !p.eat(':') {
		return nil, p.bad("a key of a-z 0-9 _")
	}
	for _, k := range p.keys[base:] {
		if bytes.Equal(k, key) {
			return nil, fmt.Errorf("%w: key %q twice", errLine, key)
		}
	}
	if len(p.keys)-base == maxKeys {
		return nil, fmt.Errorf("%w: more than %d keys", errLine, maxKeys)
	}
	p.keys = append(p.keys, key)
	return key, nil
}

func (p *parser) value(depth int) error {
	if p.i == len(p.b) {
		return p.bad("a value")
	}
	if c := p.b[p.i]; (c == '{' || c == '[') && depth == maxDepth {
		return fmt.Errorf("%w: more than %d levels", errLine, maxDepth)
	}
	switch c := p.b[p.i]; {
	case c == '"':
		return p.str()
	case c == '{':
		return p.object(depth+1, nil)
	case c == '[':
		return p.array(depth + 1)
	case c == '-' || c >= '0' && c <= '9':
		return p.integer()
	}
	for _, w := range []string{"true", "false"} {
		if bytes.HasPrefix(p.b[p.i:], []byte(w)) {
			p.i += len(w)
			return nil
		}
	}
	return p.bad("a value")
}

func (p *parser) array(depth int) error {
	p.i++
	if p.eat(']') {
		return nil
	}
	for {
		if err := p.value(depth); err != nil {
			return err
		}
		if p.eat(']') {
			return nil
		}
		if !p.eat(',') {
			return p.bad(", or ]")
		}
	}
}

// integer accepts 64-bit integers in their only spelling.
func (p *parser) integer() error {
	negative := p.eat('-')
	start := p.i
	for p.i < len(p.b) && p.b[p.i] >= '0' && p.b[p.i] <= '9' {
		p.i++
	}
	n := p.i - start
	if n == 0 || n > 19 || p.b[start] == '0' && (n > 1 || negative) {
		return p.bad("an integer")
	}
	return nil
}

func (p *parser) str() error {
	p.i++
	for p.i < len(p.b) {
		switch c := p.b[p.i]; {
		case c == '"':
			p.i++
			return nil
		case c == '\\':
			if err := p.escape(); err != nil {
				return err
			}
		case c < 0x20 || c == 0x7f:
			return p.bad("no control character")
		default:
			p.i++
		}
	}
	return p.bad(`a closing "`)
}

func (p *parser) escape() error {
	p.i++
	if p.eat('"') || p.eat('\\') || p.eat('n') {
		return nil
	}
	u, ok := p.unit()
	if ok && u >= 0xd800 && u < 0xdc00 && p.eat('\\') {
		u, ok = p.unit()
		ok = ok && u >= 0xdc00 && u < 0xe000
	} else if u >= 0xd800 && u < 0xe000 {
		ok = false
	}
	if !ok {
		return p.bad("a known escape")
	}
	return nil
}

// unit parses uXXXX.
func (p *parser) unit() (u uint16, ok bool) {
	if !p.eat('u') || len(p.b)-p.i < 4 {
		return 0, false
	}
	for _, c := range p.b[p.i : p.i+4] {
		n := nibble(c)
		if n == 255 {
			return 0, false
		}
		u = u<<4 | uint16(n)
	}
	p.i += 4
	return u, true
}
