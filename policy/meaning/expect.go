package meaning

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// An Expectation is a line of a test file for a profile.
type Expectation struct {
	Line int
	Text string
	// Want is allow, deny or ask for a question, run for a command, or file.
	Want         string
	Verb, Object string
	Command      []string // of run
	Outcome      Outcome
	// File is the name of a file in the workspace of the runs.
	File    string
	Content string
}

// An Outcome is the expected end of a run.
type Outcome struct {
	Exit int
	// Refused is set if the policy refuses the run before its start.
	Refused bool
	Limit   string // that ends it
}

func (o Outcome) String() string {
	switch {
	case o.Refused:
		return "refused"
	case o.Limit != "":
		return "limit " + o.Limit
	}
	return "exit " + strconv.Itoa(o.Exit)
}

// Expectations are the content of a test file.
type Expectations struct {
	// Policy is the profile that is tested; "" for the file of the same name.
	Policy string
	Lines  []Expectation
}

const maxExpectations = 10000

// ParseExpectations parses a test file. The error has the type syntax.Errors and holds all errors.
func ParseExpectations(source string, text []byte) (Expectations, error) {
	var out Expectations
	var errs syntax.Errors
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		fail := func(hint, format string, args ...any) {
			errs = append(errs, syntax.Error{Position: syntax.Position{File: source, Line: n,
				Column: 1}, Message: fmt.Sprintf(format, args...), Hint: hint, Text: line})
		}
		words, err := splitWords(line)
		switch {
		case err != nil:
			fail("", "%v", err)
		case len(words) == 0:
		case len(out.Lines) == maxExpectations:
			fail("make several files of it", "there are more than %d lines", maxExpectations)
			return out, errs
		case words[0] == "policy":
			if len(words) != 2 || out.Policy != "" || len(out.Lines) > 0 {
				fail("write `policy NAME` once, before all else",
					"policy names the one profile that the file is about")
				continue
			}
			out.Policy = words[1]
		default:
			e, err := expectation(words)
			if err != nil {
				fail("a line is `allow read /tmp/x`, `deny connect example.com:443`, `ask commit "+
					"Makefile`, `file NAME TEXT` or `run grep x . => exit 0`", "%v", err)
				continue
			}
			e.Line, e.Text = n, strings.TrimSpace(line)
			out.Lines = append(out.Lines, e)
		}
	}
	if len(errs) > 0 {
		return out, errs
	}
	return out, nil
}

func expectation(words []string) (Expectation, error) {
	e := Expectation{Want: words[0]}
	switch words[0] {
	case "allow", "deny", "ask":
		if len(words) < 3 || len(words) > 4 {
			return e, fmt.Errorf("%s needs what is asked and what about: %s read /etc/passwd",
				words[0], words[0])
		}
		e.Verb, e.Object = words[1], strings.Join(words[2:], " ")
		_, err := ParseAsk(e.Verb, e.Object, policy.Policy{}, nil)
		return e, err
	case "file":
		if len(words) != 3 {
			return e, fmt.Errorf("file needs a name and a text")
		}
		if words[1] == "" || words[1][0] == '/' || strings.Contains("/"+words[1]+"/", "/../") {
			return e, fmt.Errorf("file %q is no name in a workspace", words[1])
		}
		e.File, e.Content = words[1], words[2]
		return e, nil
	case "run":
		for i, w := range words {
			if w == "=>" && i > 1 {
				o, err := outcome(words[i+1:])
				e.Command, e.Outcome = words[1:i], o
				return e, err
			}
		}
		return e, fmt.Errorf("run needs a command and how it ends: run grep x . => exit 0")
	}
	return e, fmt.Errorf("%q begins no line of a test", words[0])
}

func outcome(words []string) (o Outcome, err error) {
	switch {
	case len(words) == 1 && words[0] == "refused":
		return Outcome{Refused: true}, nil
	case len(words) == 2 && words[0] == "limit":
		if slices.Contains(policy.LimitNames(), words[1]) {
			return Outcome{Limit: words[1]}, nil
		}
		return o, fmt.Errorf("%q is no limit", words[1])
	case len(words) == 2 && words[0] == "exit":
		n, err := strconv.ParseUint(words[1], 10, 8)
		if err != nil {
			return o, fmt.Errorf("exit %q is no number from 0 to 255", words[1])
		}
		return Outcome{Exit: int(n)}, nil
	}
	return o, fmt.Errorf("after => stands exit N, refused, or limit NAME")
}

// splitWords splits a line at blanks. Quotes keep blanks: '…' is literal, "…" has \n, \t, \" and
// \\. A # at the start of a word begins a comment.
func splitWords(line string) ([]string, error) {
	var out []string
	var w strings.Builder
	open, quote := false, rune(0)
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			i := strings.IndexRune(`nt"\`, r)
			if i < 0 {
				return nil, fmt.Errorf(`\%c is no escape: there are \n, \t, \" and \\`, r)
			}
			w.WriteByte("\n\t\"\\"[i])
			escaped = false
		case quote == '"' && r == '\\':
			escaped = true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			w.WriteRune(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == ' ' || r == '\t':
			if open {
				out = append(out, w.String())
				w.Reset()
				open = false
			}
		case r == '#' && !open:
			return out, nil
		default:
			w.WriteRune(r)
			open = true
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("a quote is not closed")
	}
	if open {
		out = append(out, w.String())
	}
	return out, nil
}

// A Finding is the result of one expectation.
type Finding struct {
	Line int    `json:"line"`
	Text string `json:"text"`
	OK   bool   `json:"ok"`
	Got  string `json:"got"` // what is, and why
}

// Judge tests an expectation that needs no run: allow, deny or ask.
func (e Expectation) Judge(eff policy.Effective, commands Commands) (Finding, error) {
	f := Finding{Line: e.Line, Text: e.Text}
	a, err := ParseAsk(e.Verb, e.Object, eff.Policy(), commands)
	if err != nil {
		return f, err
	}
	got, why := "deny", ""
	if a.Limit != "" {
		limit := limitOf(a.Limit)
		n := limit.Amount(eff.Policy())
		why = limit.Key + " = " + limit.Unit.Format(n)
		if n > 0 && a.Amount <= n {
			got = "allow"
		}
	} else {
		_, d := decide(a, eff)
		if why = d.Rule; d.Allowed {
			got = "allow"
		} else if d.Ask {
			got = "ask"
		}
	}
	f.OK, f.Got = got == e.Want, got+": "+why
	return f, nil
}
