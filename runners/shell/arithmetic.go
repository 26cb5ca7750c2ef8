package shell

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Formats that no script can name, since no word has a NUL byte: with them the interpreter's printf
// writes its argument as a pattern that matches it and nothing else, writes it where it is a
// number, and where it is another number than nought.
const (
	QuotePattern = "\x00pattern"
	Number       = "\x00number"
	Divisor      = "\x00divisor"
)

// formatted is a word's part by one of these formats.
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

// arithmetic makes errors of what the interpreter takes for nought: operands that are no numbers,
// and division by nought.
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
				return // a name, which parses
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

// IsNumber reports whether arithmetic takes a text for a number: decimal, octal with 0 before it,
// hexadecimal with 0x, of 64 bits.
func IsNumber(text string) bool {
	text = strings.TrimLeft(strings.TrimSpace(text), "+-")
	if strings.ContainsAny(text, "_oObB") && !strings.HasPrefix(strings.ToLower(text), "0x") {
		return false
	}
	_, err := strconv.ParseUint(text, 0, 64)
	return err == nil && !strings.Contains(text, "_")
}
