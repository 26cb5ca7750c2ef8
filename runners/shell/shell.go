// Package shell is the host half of the shell runner. It parses a POSIX shell script, reports
// before anything runs what is not supported, and lists its commands, for the policy and the plan.
// It is pure: it runs no script. The inside half, which interprets the script in a jail where every
// simple command is a jailed tool, is the package guest below it.
//
// The language is that of POSIX.1-2024, XCU chapter 2, without job control, and with "local" and
// "set -o pipefail". The parser is mvdan.cc/sh, in its POSIX dialect.
package shell

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// MaxBytes is the maximum length of a script in bytes.
const MaxBytes = 1 << 20

// maxCommands is the maximum number of simple commands in a script.
const maxCommands = 20_000

// Script is a parsed script that passed all checks.
type Script struct {
	// Name is for messages: a file's name, or "-c".
	Name string
	Text string
	file *syntax.File

	commands  []Command
	functions map[string]bool
}

// Problem is one reason why a script cannot be run.
type Problem struct {
	// Both count from 1; columns are bytes.
	Line, Col uint
	What      string
}

// An Error holds every problem of a script, in the order of the text.
type Error struct {
	Name     string
	Problems []Problem
}

// Error describes the first problem and says how many others there are.
func (e *Error) Error() string {
	p := e.Problems[0]
	text := fmt.Sprintf("%s:%d:%d: %s", e.Name, p.Line, p.Col, p.What)
	if n := len(e.Problems) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

// Parse parses and checks a script. name is for messages. An error is always an *Error.
func Parse(name, text string) (*Script, error) {
	if len(text) > MaxBytes {
		return nil, &Error{name,
			[]Problem{{1, 1, fmt.Sprintf("the script has more than %d bytes: run it in parts",
				MaxBytes)}}}
	}
	if at := strings.IndexByte(text, 0); at >= 0 {
		line := 1 + strings.Count(text[:at], "\n")
		return nil, &Error{name, []Problem{{uint(line), uint(at - strings.LastIndexByte(text[:at],
			'\n')), "a NUL byte: this is no shell script"}}}
	}
	file, err := parse(name, text)
	if err != nil {
		return nil, &Error{name, []Problem{problemOf(err)}}
	}
	s := &Script{Name: name, Text: text, file: file, functions: functions(file)}
	s.commands = commands(file, s.functions)
	if problems := check(file); len(problems) > 0 {
		return nil, &Error{name, problems}
	}
	rewrite(file)
	return s, nil
}

func parse(name, text string) (*syntax.File, error) {
	return syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(&depthReader{
		strings.NewReader(text), 1}, name)
}

// File returns the parsed script, for the interpreter.
func (s *Script) File() *syntax.File { return s.file }

func problemOf(err error) Problem {
	switch e := err.(type) {
	case syntax.ParseError:
		return Problem{e.Pos.Line(), e.Pos.Col(), e.Text}
	case syntax.LangError:
		what := e.Feature
		if strings.HasSuffix(what, "s") {
			what += " are"
		} else {
			what += " is"
		}
		return Problem{e.Pos.Line(), e.Pos.Col(), what + " not POSIX shell"}
	case depthError:
		return Problem{uint(e), 1, e.Error()}
	}
	return Problem{1, 1, err.Error()}
}

// maxFrames bounds the stack depth of the recursive parser (about 2000 levels of nesting). Go ends
// the whole program if a stack exceeds 1 GB, and recover does not help.
const maxFrames = 20_000

// depthReader passes a script to the parser in small pieces. Read returns a depthError if the stack
// is deeper than maxFrames.
type depthReader struct {
	text *strings.Reader
	// line is the line that the parser has reached, from 1.
	line int
}

func (r *depthReader) Read(p []byte) (int, error) {
	var frame [1]uintptr
	if runtime.Callers(maxFrames, frame[:]) > 0 {
		return 0, depthError(r.line)
	}
	// A parser that got all the text at once would not call Read again before it is too deep.
	n, err := r.text.Read(p[:min(len(p), 1024)])
	r.line += bytes.Count(p[:n], []byte("\n"))
	return n, err
}

var _ io.Reader = (*depthReader)(nil)

// depthError is the line at which a script is nested too deeply.
type depthError int

func (e depthError) Error() string {
	return fmt.Sprintf("the script is nested too deeply at line %d: write it in fewer levels",
		int(e))
}
