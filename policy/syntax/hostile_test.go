package syntax

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestHostilePolicies reads policies of MaxBytes that are all mistakes, or all of one thing. Each
// is refused after the first of it, with few errors and little memory: nothing in it is searched or
// compared before its size is known to be one that a policy may have.
func TestHostilePolicies(t *testing.T) {
	fill := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < MaxBytes-1000; i++ {
			if strings.Contains(format, "%d") {
				fmt.Fprintf(&b, format, i)
			} else {
				b.WriteString(format)
			}
		}
		return b.String()
	}
	list := func(key, item string) string { return key + " = [" + fill(item) + "]" }
	few := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	const manyValues, manyItems, manyErrors = "more than 8192 keys", "at most 256",
		"more errors than the first 99"
	for name, tt := range map[string]struct{ text, want string }{
		"unknown keys":      {fill("k%d = 1\n"), manyValues},
		"unknown in limits": {"[limits]\n" + fill("memoyr%d = 1\n"), manyValues},
		"unknown tables":    {fill("[k%d]\n"), manyValues},
		"unknown, of few":   {few(8000, "k%d = 1\n"), manyErrors},
		"repeated keys":     {fill("a = 1\n"), manyErrors},
		"repeated tables":   {fill("[a]\n"), manyErrors},
		"repeated inline":   {"a = {" + fill("a = 1, ") + "a = 1}", manyErrors},
		"repeated items":    {list("tools.allow", `"a/*",`), manyValues},
		"wrong items":       {list("tools.allow", `1,`), manyValues},
		"wrong, on lines":   {list("tools.allow", "1,\n"), manyValues},
		"wrong, of few":     {"tools.allow = [" + few(250, "%d,") + "]", manyErrors},
		"distinct items":    {list("tools.allow", `"a/%d",`), manyValues},
		"items, of few":     {"tools.allow = [" + few(8000, `"a/%d",`) + "]", manyItems},
		"empty mounts":      {fill("[[mount]]\n"), manyValues},
		"mounts, of few":    {few(4000, "[[mount]] # %d\n"), manyItems},
		"variables, of few": {"[env.set]\n" + few(4000, "A%d = \"\"\n"), manyItems},
		"tools, of few":     {few(4000, "[tool.\"a/%d\"]\n"), manyItems},
		"without, of few":   {"without.tools.allow = [" + few(4000, `"a/%d",`) + "]", manyItems},
		"includes, of few":  {"include = [" + few(4000, `"a%d",`) + "]", manyItems},
		"dotted keys":       {fill("a.b.c.d.e.f.g%d = 1\n"), manyValues},
		"one long key":      {fill("a.") + "a = 1", "nested deeper"},
		"paths of one rule": {"[[fetch.allow]]\nhost = \"a.b\"\n" + list("paths", `"/%d",`),
			manyValues},
		"paths of all rules": {rules(64, 120), "fetch.allow has 7808"},
		"nested mounts":      {nestedMounts(250), manyErrors},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse(Ceiling, "x.toml", []byte("policy = 1\n"+tt.text), nil)
			runtime.ReadMemStats(&after)
			var errs Errors
			if !errors.As(err, &errs) || len(errs) > maxErrors || !strings.Contains(err.Error(),
				tt.want) {
				t.Errorf("got %d errors, without %q among them: %.300v", len(errs), tt.want, err)
			}
			if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 150 {
				t.Errorf("%d MiB were allocated", n)
			}
		})
	}
}

// rules are rules for one host whose paths differ in the last alone, so that each comparison of two
// rules goes through all of both.
func rules(n, paths int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("[[fetch.allow]]\nhost = \"a.b\"\npaths = [")
		for p := range paths - 1 {
			fmt.Fprintf(&b, "\"/a%d\",", p)
		}
		fmt.Fprintf(&b, "\"/z%d\"]\n", i)
	}
	return b.String()
}

func nestedMounts(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[[mount]]\nsource = \"/s\"\ntarget = \"/t%s\"\naccess = \"read\"\n",
			strings.Repeat("/a", i))
	}
	return b.String()
}

// TestErrorsAcrossFiles bounds the errors of a policy together with those of what it includes.
func TestErrorsAcrossFiles(t *testing.T) {
	wrong := func(name string) (string, []byte, error) {
		return name + ".toml", []byte("policy = 1\n" + strings.Repeat("[a]\n", 80)), nil
	}
	_, err := Parse(Profile, "x.toml", []byte("policy = 1\ninclude = [\"a\", \"b\", \"c\"]\n"),
		wrong)
	var errs Errors
	if !errors.As(err, &errs) || len(errs) != maxErrors {
		t.Fatalf("got %d errors, want %d: %.300v", len(errs), maxErrors, err)
	}
	for _, e := range errs {
		if e.Text != "[a]" {
			t.Fatalf("%v quotes %q", e, e.Text)
		}
	}
}

// TestLines compares the index of lines with a reading from the start.
func TestLines(t *testing.T) {
	for _, text := range []string{"", "\n", "a", "a\n", "a\nbc\n\nd", "\n\n\n"} {
		l := indexLines([]byte(text))
		line, column := 1, 1
		for i := 0; i <= len(text); i++ {
			if gotLine, gotColumn := l.at(i); gotLine != line || gotColumn != column {
				t.Errorf("%q, offset %d: got %d:%d, want %d:%d", text, i, gotLine, gotColumn, line,
					column)
			}
			if column++; i < len(text) && text[i] == '\n' {
				line, column = line+1, 1
			}
		}
		for i, want := range strings.Split(text, "\n") {
			if got := l.quote(i + 1); got != want {
				t.Errorf("%q, line %d: got %q, want %q", text, i+1, got, want)
			}
		}
		if got := l.quote(line+1) + l.quote(0); got != "" {
			t.Errorf("%q has a line more: %q", text, got)
		}
	}
}
