package gitrepo

import (
	"errors"
	"strings"
)

// setting is one setting of a git configuration (git-config(1)). Section and key are in lower case.
type setting struct{ section, sub, key, value string }

var errConfig = errors.New("a line is no setting")

// parseConfig parses a git configuration. It does not follow includes, since git does not, either,
// for the settings that this package reads.
func parseConfig(text string) (all []setting, err error) {
	p := configParser{text: strings.TrimPrefix(text, "\ufeff")}
	for {
		p.skipBlank()
		if p.text == "" {
			return all, nil
		}
		if p.text[0] == '[' {
			if err := p.header(); err != nil {
				return nil, err
			}
			continue
		}
		key, value, err := p.setting()
		if err != nil {
			return nil, err
		}
		all = append(all, setting{p.section, p.sub, key, value})
	}
}

type configParser struct{ text, section, sub string }

func (p *configParser) skipBlank() {
	for p.text != "" {
		switch p.text[0] {
		case ' ', '\t', '\n', '\r', '\v', '\f':
			p.text = p.text[1:]
		case '#', ';':
			_, p.text, _ = strings.Cut(p.text, "\n")
		default:
			return
		}
	}
}

// header parses [section], [section.sub] or [section "sub"].
func (p *configParser) header() error {
	end := strings.IndexAny(p.text, "]\"\n")
	if end < 0 || p.text[end] == '\n' {
		return errConfig
	}
	name := strings.ToLower(strings.TrimRight(p.text[1:end], " \t"))
	p.section, p.sub, _ = strings.Cut(name, ".")
	rest := p.text[end:]
	if rest[0] == '"' {
		p.sub = ""
		rest = rest[1:]
		for {
			if rest == "" || rest[0] == '\n' {
				return errConfig
			}
			c := rest[0]
			rest = rest[1:]
			if c == '"' {
				break
			}
			if c == '\\' {
				if rest == "" || rest[0] == '\n' {
					return errConfig
				}
				c, rest = rest[0], rest[1:]
			}
			p.sub += string([]byte{c})
		}
		if rest == "" || rest[0] != ']' {
			return errConfig
		}
	}
	p.text = rest[1:]
	return nil
}

// setting parses "key = value", or a key alone, whose value is "true".
func (p *configParser) setting() (key, value string, err error) {
	n := 0
	for n < len(p.text) && (isLetter(p.text[n]) || n > 0 && (p.text[n] == '-' ||
		p.text[n] >= '0' && p.text[n] <= '9')) {
		n++
	}
	if n == 0 || p.section == "" {
		return "", "", errConfig
	}
	key, p.text = strings.ToLower(p.text[:n]), strings.TrimLeft(p.text[n:], " \t")
	if p.text == "" || p.text[0] == '\n' || strings.HasPrefix(p.text, "\r\n") {
		return key, "true", nil
	}
	if p.text[0] != '=' {
		return "", "", errConfig
	}
	p.text = strings.TrimLeft(p.text[1:], " \t")
	value, err = p.value()
	return key, value, err
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// value parses a value up to the end of its line, with quotes, escapes and continuation lines.
func (p *configParser) value() (string, error) {
	var b []byte
	// kept is the length without trailing blanks.
	kept, quoted, comment := 0, false, false
	for p.text != "" {
		c := p.text[0]
		p.text = p.text[1:]
		if c == '\r' && strings.HasPrefix(p.text, "\n") {
			continue
		}
		if c == '\n' {
			if quoted {
				return "", errConfig
			}
			return string(b[:kept]), nil
		}
		switch {
		case comment:
			continue
		case c == '"':
			quoted = !quoted
			kept = len(b)
			continue
		case !quoted && (c == '#' || c == ';'):
			comment = true
			continue
		case !quoted && (c == ' ' || c == '\t'):
			b = append(b, c)
			continue
		case c == '\\':
			if p.text == "" {
				return "", errConfig
			}
			c, p.text = p.text[0], p.text[1:]
			switch c {
			case '\n':
				continue
			case 't':
				c = '\t'
			case 'b':
				c = '\b'
			case 'n':
				c = '\n'
			case '\\', '"':
			default:
				return "", errConfig
			}
		}
		b = append(b, c)
		kept = len(b)
	}
	if quoted {
		return "", errConfig
	}
	return string(b[:kept]), nil
}
