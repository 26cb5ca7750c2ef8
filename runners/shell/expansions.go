package shell

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/pattern"
	"mvdan.cc/sh/v3/syntax"
)

// place says how the shell treats the result of expansions in a word.
type place struct {
	// The word is within double quotes or in a here-document.
	quoted bool
	// Field splitting applies: the word can become any number of fields.
	split bool
}

// expander rewrites the expansions that the interpreter does differently from a POSIX shell. POSIX
// says:
//
//   - a backslash quotes outside of double quotes, too, where a word is no argument (an assignment,
//     the file of a redirect);
//   - quoted characters in the pattern of ${x%…} are literal, and single quotes in a quoted ${x:-…}
//     are ordinary characters;
//   - commands in ${x:-…} run only if the default is used;
//   - a tilde is the home directory after a colon of an assignment, too.
//
// An expansion that cannot be rewritten is reported with add.
type expander struct {
	add func(at syntax.Pos, format string, args ...any)
}

func (x *expander) node(n syntax.Node) {
	syntax.Walk(n, func(m syntax.Node) bool {
		switch m := m.(type) {
		case *syntax.CallExpr:
			for _, a := range m.Assigns {
				x.assign(a)
			}
			declares := len(m.Args) > 0 && declaring(literal(m.Args[0]))
			for i, w := range m.Args {
				p := place{split: true}
				if declares && i > 0 && assigns(w) {
					p.split = false
					tildes(w)
				}
				x.word(w, p)
			}
			return false
		case *syntax.WordIter:
			for _, w := range m.Items {
				x.word(w, place{split: true})
			}
			return false
		case *syntax.Redirect:
			if m.Hdoc != nil {
				x.word(m.Hdoc, place{quoted: true})
			} else {
				x.word(m.Word, place{})
			}
			return false
		case *syntax.ArithmExp:
			m.X = x.arithmetic(m.X)
			return false
		case *syntax.Word:
			x.word(m, place{})
			return false
		}
		return true
	})
}

func declaring(name string) bool {
	return name == "export" || name == "local" || name == "readonly"
}

func assigns(w *syntax.Word) bool {
	first, ok := w.Parts[0].(*syntax.Lit)
	if !ok {
		return false
	}
	name, _, has := strings.Cut(first.Value, "=")
	return has && syntax.ValidName(name)
}

func (x *expander) assign(a *syntax.Assign) {
	if a.Value == nil {
		return
	}
	tildes(a.Value)
	x.word(a.Value, place{})
}

func (x *expander) word(w *syntax.Word, p place) {
	if w == nil {
		return
	}
	var parts []syntax.WordPart
	for _, part := range w.Parts {
		if lit, ok := part.(*syntax.Lit); ok && !p.quoted && !p.split {
			parts = append(parts, unquoted(lit)...)
			continue
		}
		if exp, ok := part.(*syntax.ParamExp); ok && len(w.Parts) == 1 && everyArgument(exp) {
			// ${1+"$@"}, which is "$@" in every shell of today
			part = exp.Exp.Word.Parts[0]
		}
		x.part(part, p)
		parts = append(parts, part)
	}
	w.Parts = parts
}

func (x *expander) part(part syntax.WordPart, p place) {
	switch part := part.(type) {
	case *syntax.DblQuoted:
		for _, q := range part.Parts {
			x.part(q, place{quoted: true})
		}
	case *syntax.ParamExp:
		x.param(part, p)
	case *syntax.CmdSubst:
		for _, s := range part.Stmts {
			x.node(s)
		}
	case *syntax.ArithmExp:
		x.node(part)
	}
}

// unquoted returns lit with each backslash-quoted character put in single quotes instead.
func unquoted(lit *syntax.Lit) []syntax.WordPart {
	if !strings.Contains(lit.Value, `\`) {
		return []syntax.WordPart{lit}
	}
	var parts []syntax.WordPart
	plain := ""
	flush := func() {
		if plain != "" {
			parts = append(parts,
				&syntax.Lit{ValuePos: lit.ValuePos, ValueEnd: lit.ValueEnd, Value: plain})
		}
		plain = ""
	}
	for s := lit.Value; s != ""; {
		if s[0] != '\\' || len(s) == 1 {
			plain += s[:1]
			s = s[1:]
			continue
		}
		flush()
		if s[1] != '\n' {
			parts = append(parts, single(lit.ValuePos, s[1:2]))
		}
		s = s[2:]
	}
	flush()
	return parts
}

func single(at syntax.Pos, text string) *syntax.SglQuoted {
	return &syntax.SglQuoted{Left: at, Right: at, Value: text}
}

// everyArgument reports whether p is ${1+"$@"} or ${@+"$@"}, by which scripts pass on their
// arguments.
func everyArgument(p *syntax.ParamExp) bool {
	if p.Exp == nil || p.Exp.Op != syntax.AlternateUnset || p.Param == nil ||
		p.Param.Value != "1" && p.Param.Value != "@" || p.Exp.Word == nil ||
		len(p.Exp.Word.Parts) != 1 {
		return false
	}
	q, ok := p.Exp.Word.Parts[0].(*syntax.DblQuoted)
	if !ok || len(q.Parts) != 1 {
		return false
	}
	at, ok := q.Parts[0].(*syntax.ParamExp)
	return ok && at.Exp == nil && !at.Length && at.Param != nil && at.Param.Value == "@"
}

func (x *expander) param(p *syntax.ParamExp, at place) {
	if p.Exp == nil || p.Exp.Word == nil || p.Param == nil {
		return
	}
	if p.Param.Value == "@" {
		x.add(p.Pos(),
			`${@%s…}: what it is with no arguments depends on the shell: write "$@", and before it [ $# -gt 0 ] || set -- …`, p.Exp.Op)
	}
	switch p.Exp.Op {
	case syntax.RemSmallPrefix, syntax.RemLargePrefix, syntax.RemSmallSuffix, syntax.RemLargeSuffix:
		x.word(p.Exp.Word, place{})
		quotePattern(p.Exp.Word)
		return
	}
	if at.split {
		x.fields(p)
	}
	if at.quoted {
		x.flatten(p)
	}
	x.word(p.Exp.Word, place{quoted: at.quoted})
	x.lazy(p)
}

// fields reports quoted text in an unquoted ${x…} that the interpreter would split or expand.
func (x *expander) fields(p *syntax.ParamExp) {
	for _, part := range p.Exp.Word.Parts {
		text, ok := "", true
		switch part := part.(type) {
		case *syntax.SglQuoted:
			text = part.Value
		case *syntax.DblQuoted:
			text, ok = constant(&syntax.Word{Parts: []syntax.WordPart{part}})
		case *syntax.Lit:
			if ok = !strings.Contains(part.Value, `\`); ok {
				continue
			}
		default:
			continue
		}
		if !ok || text == "" || strings.ContainsAny(text, " \t\n*?[") {
			x.add(p.Pos(),
				`quotes within ${%s…}, which is not quoted itself: write "${%s…}", or if`,
				p.Param.Value, p.Param.Value)
			return
		}
	}
}

// flatten makes one double-quoted text of the word of an expansion that is within double quotes
// itself.
func (x *expander) flatten(p *syntax.ParamExp) {
	w := p.Exp.Word
	all := &syntax.DblQuoted{Left: w.Pos(), Right: w.End()}
	for _, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.SglQuoted:
			if strings.ContainsAny(part.Value, "$`\\\"") {
				x.add(part.Pos(),
					"single quotes do not quote within double quotes: write the value into a "+
						"variable first")
			}
			all.Parts = append(all.Parts, &syntax.Lit{ValuePos: part.Pos(), ValueEnd: part.End(),
				Value: "'" + part.Value + "'"})
		case *syntax.DblQuoted:
			all.Parts = append(all.Parts, part.Parts...)
		case *syntax.Lit:
			all.Parts = append(all.Parts, &syntax.Lit{ValuePos: part.ValuePos,
				ValueEnd: part.ValueEnd, Value: strings.ReplaceAll(part.Value, `\}`, "}")})
		default:
			all.Parts = append(all.Parts, part)
		}
	}
	w.Parts = []syntax.WordPart{all}
}

// quotePattern escapes the quoted parts of a pattern so that they match literally.
func quotePattern(w *syntax.Word) {
	for i, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.SglQuoted:
			w.Parts[i] = single(part.Pos(), pattern.QuoteMeta(part.Value, 0))
		case *syntax.DblQuoted:
			if text, ok := constant(&syntax.Word{Parts: []syntax.WordPart{part}}); ok &&
				!strings.Contains(text, `\`) {
				w.Parts[i] = single(part.Pos(), pattern.QuoteMeta(text, 0))
				continue
			}
			w.Parts[i] = formatted(QuotePattern, part)
		}
	}
}

// lazy wraps commands in the word of ${x:-…} in a condition, so that they run only if the word is
// used.
func (x *expander) lazy(p *syntax.ParamExp) {
	runs := false
	syntax.Walk(p.Exp.Word, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			runs = true
			return false
		case *syntax.ParamExp:
			if n.Exp != nil && effects[n.Exp.Op] {
				x.add(n.Pos(),
					"${%s%s…} within another expansion would be carried out also where it is not "+
						"wanted: write if", n.Param.Value, n.Exp.Op)
			}
		}
		return true
	})
	if !runs {
		return
	}
	name := p.Param.Value
	if name == "@" {
		name = "*"
	}
	condition, ok := map[syntax.ParExpOperator]string{
		syntax.DefaultUnsetOrNull: `-z "${N-}"`, syntax.AssignUnsetOrNull: `-z "${N-}"`,
		syntax.ErrorUnsetOrNull: `-z "${N-}"`,
		syntax.DefaultUnset:     `-z "${N+s}"`, syntax.AssignUnset: `-z "${N+s}"`,
		syntax.ErrorUnset:           `-z "${N+s}"`,
		syntax.AlternateUnsetOrNull: `-n "${N-}"`, syntax.AlternateUnset: `-n "${N+s}"`}[p.Exp.Op]
	if !ok {
		return
	}
	text := strings.ReplaceAll(`if [ `+condition+
		` ]; then jail_=; set -- $?; printf %s "$jail_"; exit $1; fi`, "${N", "${"+name)
	guard, err := parse("", text)
	if err != nil {
		x.add(p.Pos(), "${%s%s…}: a command in it cannot be carried out here: write if",
			p.Param.Value, p.Exp.Op)
		return
	}
	syntax.Walk(guard, func(n syntax.Node) bool {
		a, ok := n.(*syntax.Assign)
		if ok {
			a.Value = &syntax.Word{Parts: p.Exp.Word.Parts}
		}
		// Do not descend into the inserted value: it may have assignments of its own.
		return !ok
	})
	subst := &syntax.CmdSubst{Left: p.Pos(), Right: p.End(), Stmts: guard.Stmts}
	p.Exp.Word = &syntax.Word{Parts: []syntax.WordPart{&syntax.DblQuoted{Left: p.Pos(),
		Right: p.End(), Parts: []syntax.WordPart{subst}}}}
}

// effects are the expansions with a side effect: they assign a variable or end the script.
var effects = map[syntax.ParExpOperator]bool{syntax.AssignUnset: true,
	syntax.AssignUnsetOrNull: true, syntax.ErrorUnset: true, syntax.ErrorUnsetOrNull: true}

// tildes replaces each ~ that follows a colon in an assignment's value by $HOME, if it is followed
// by a slash, a colon or the end: ~name stays.
func tildes(w *syntax.Word) {
	var parts []syntax.WordPart
	for i, part := range w.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			parts = append(parts, part)
			continue
		}
		rest := lit.Value
		for {
			at := strings.Index(rest, ":~")
			if at < 0 {
				break
			}
			after := rest[at+2:]
			if after == "" && i != len(w.Parts)-1 || after != "" && after[0] != ':' &&
				after[0] != '/' {
				break
			}
			parts = append(parts, &syntax.Lit{ValuePos: lit.ValuePos, ValueEnd: lit.ValueEnd,
				Value: rest[:at+1]},
				&syntax.ParamExp{Dollar: lit.ValuePos, Short: true,
					Param: &syntax.Lit{ValuePos: lit.ValuePos, ValueEnd: lit.ValueEnd,
						Value: "HOME"}})
			rest = after
		}
		if rest != "" || lit.Value == "" {
			parts = append(parts,
				&syntax.Lit{ValuePos: lit.ValuePos, ValueEnd: lit.ValueEnd, Value: rest})
		}
	}
	w.Parts = parts
}

// Formats of printf for generated code. No script can contain them, since no word has a NUL byte.
// QuotePattern writes the argument escaped as a pattern, Number writes it if it is a number or a
// name (0 if it is blank), and Divisor writes it if it is not 0; otherwise the script ends with an
// error.
const (
	QuotePattern = "\x00pattern"
	Number       = "\x00number"
	Divisor      = "\x00divisor"
)

// formatted returns the command substitution $(printf format part) for one of these formats.
func formatted(format string, part *syntax.DblQuoted) *syntax.CmdSubst {
	at := part.Pos()
	call := &syntax.CallExpr{Args: []*syntax.Word{
		{Parts: []syntax.WordPart{&syntax.Lit{ValuePos: at, ValueEnd: at, Value: "printf"}}},
		{Parts: []syntax.WordPart{single(at, format)}},
		{Parts: []syntax.WordPart{part}},
	}}
	return &syntax.CmdSubst{Left: at, Right: part.End(),
		Stmts: []*syntax.Stmt{{Position: at, Cmd: call}}}
}

// arithmetic rewrites e so that operands that are not numbers and division by zero are errors. The
// interpreter takes both for 0.
func (x *expander) arithmetic(e syntax.ArithmExpr) syntax.ArithmExpr {
	switch e := e.(type) {
	case *syntax.Word:
		x.word(e, place{quoted: true})
		x.operand(e)
	case *syntax.ParenArithm:
		e.X = x.arithmetic(e.X)
	case *syntax.UnaryArithm:
		if e.Op != syntax.Inc && e.Op != syntax.Dec {
			e.X = x.arithmetic(e.X)
		}
	case *syntax.BinaryArithm:
		if !assigning[e.Op] {
			e.X = x.arithmetic(e.X)
		}
		e.Y = x.arithmetic(e.Y)
		switch e.Op {
		case syntax.Quo, syntax.Rem, syntax.QuoAssgn, syntax.RemAssgn:
			e.Y = divisor(e.Y)
		}
	}
	return e
}

var assigning = map[syntax.BinAritOperator]bool{syntax.Assgn: true, syntax.AddAssgn: true,
	syntax.SubAssgn: true, syntax.MulAssgn: true, syntax.QuoAssgn: true,
	syntax.RemAssgn: true, syntax.AndAssgn: true, syntax.OrAssgn: true, syntax.XorAssgn: true,
	syntax.ShlAssgn: true, syntax.ShrAssgn: true}

func divisor(e syntax.ArithmExpr) syntax.ArithmExpr {
	if w, ok := e.(*syntax.Word); ok {
		if n, err := strconv.ParseInt(w.Lit(), 0, 64); err == nil && n != 0 {
			return e
		}
	}
	at := e.Pos()
	sum := &syntax.ArithmExp{Left: at, Right: e.End(), X: e}
	return &syntax.Word{Parts: []syntax.WordPart{formatted(Divisor,
		&syntax.DblQuoted{Left: at, Right: e.End(), Parts: []syntax.WordPart{sum}})}}
}

func (x *expander) operand(w *syntax.Word) {
	if lit := w.Lit(); lit != "" && !syntax.ValidName(lit) {
		if !IsNumber(lit) {
			x.add(w.Pos(), "%s is not a number", lit)
		}
		return
	}
	if len(w.Parts) == 1 {
		switch part := w.Parts[0].(type) {
		case *syntax.ArithmExp:
			return
		case *syntax.Lit:
			value, err := parse("", `"${`+part.Value+`-}"`)
			if err != nil {
				// A name always parses, so this is not a name.
				return
			}
			w.Parts = value.Stmts[0].Cmd.(*syntax.CallExpr).Args[0].Parts
		case *syntax.ParamExp:
			if part.Param != nil && (part.Param.Value == "#" || part.Param.Value == "?") ||
				part.Length {
				return
			}
		}
	}
	q := &syntax.DblQuoted{Left: w.Pos(), Right: w.End()}
	for _, part := range w.Parts {
		if d, ok := part.(*syntax.DblQuoted); ok {
			q.Parts = append(q.Parts, d.Parts...)
			continue
		}
		q.Parts = append(q.Parts, part)
	}
	w.Parts = []syntax.WordPart{formatted(Number, q)}
}

// IsNumber reports whether text is a 64-bit integer for shell arithmetic: decimal, octal (0 prefix)
// or hexadecimal (0x prefix), with optional signs.
func IsNumber(text string) bool {
	text = strings.TrimLeft(strings.TrimSpace(text), "+-")
	if strings.ContainsAny(text, "_oObB") && !strings.HasPrefix(strings.ToLower(text), "0x") {
		return false
	}
	_, err := strconv.ParseUint(text, 0, 64)
	return err == nil && !strings.Contains(text, "_")
}
