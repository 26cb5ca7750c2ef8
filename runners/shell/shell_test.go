package shell

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRefused holds every construct that is no part of the language to a message with its place,
// before anything runs.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ script, want string }{
		{"echo a &", "1:8: a command in the background"},
		{"{ echo a; } & wait", "1:13: a command in the background"},
		{"echo ok\neval x", "2:1: eval: text is not run"},
		{". ./lib.sh", "1:1: .: a file is not read"},
		{"source lib.sh", "1:1: source"},
		{"exec ls", "1:1: exec: the shell cannot be replaced"},
		{"exec >f", "1:1: exec"},
		{"alias a=b", "1:1: alias"},
		{"ulimit -n 5", "1:1: ulimit: limits come from the policy"},
		{"umask 022", "1:1: umask"},
		{"kill 1", "1:1: kill"},
		{"fg", "1:1: fg"}, {"bg", "1:1: bg"}, {"jobs", "1:1: jobs"}, {"let x=1", "1:1: let"},
		{"declare x=1", "1:1: declare"},
		{"[[ a = a ]]", "1:1: [[: it is not POSIX shell: use ["},
		{"time ls", "1:1: time"},
		{"if true; then e\"va\"l x; fi", "1:15: eval"},
		{"x=$(eval y)", "1:5: eval"},
		{"echo $!", "1:6: $!"},
		{"echo ${10}", "1:6: ${10}: only $1 to $9"},
		{"echo a 3>f", "1:8: descriptor 3"},
		{"echo a >&3", "1:10: >&3"},
		{"cat <&4", "1:7: <&4"},
		{"cat <>f", "1:5: <> opens for reading and writing"},
		{"IFS=:; echo $x", "1:1: IFS: words are split at blanks only"},
		{"trap 'x' INT", "1:10: trap INT: only EXIT"},
		{"trap \"$x\" EXIT", "1:6: trap: what it runs must be written out"},
		{"trap 'eval x' EXIT", "1:6: trap:1:1: eval"},
		{"(trap 'x' EXIT)", "1:2: trap in a subshell"},
		{"true | trap 'x' EXIT", "1:8: trap in a subshell"},
		{"set -C", "1:5: set -C: there are -e"}, {"set -eu -o noclobber",
			"1:12: set noclobber: there are errexit"}, {"set +m", "1:5: set +m"},
		{`for a in ${x:-"a b" c}; do :; done`, "1:10: quotes within ${x"},
		{`echo ${x-"$y"}`, "1:6: quotes within ${x"},
		{`echo "${x:-'$y'}"`, "1:12: single quotes do not quote"},
		{`echo "${x:-${y:=1}}"`, "1:12: ${y:=…} within another"},
		{`echo ${x:-${y:?no}}`, "1:11: ${y:?…} within another"},
		{"echo $((08))", "1:9: 08 is not a number"},
		{`ls "${@:-.}"`, "1:5: ${@:-…}"},
		{"eval() { :; }", "1:1: a function cannot have the name of the builtin eval"},
		{"cd() { :; }", "1:1: a function cannot have the name of the builtin cd"},
		{"x=(1 2)", "1:3: arrays are not POSIX shell"},
		{"echo ${x//a/b}", "1:9: search and replace is not POSIX shell"},
		{"echo ${x:1:2}", "1:"}, {"echo ${!x}", "1:"}, {"echo ${x^^}", "1:"},
		{"for ((i=0;i<1;i++)); do :; done", "1:5:"},
		{"cat <(ls)", "1:"}, {"cat <<< x", "1:"}, {"ls &>f", "1:"}, {"ls |& cat", "1:"},
		{"function f { :; }", "1:"}, {"{fd}>x", "1:"},
		{"select x in a; do :; done", "1:"}, {"coproc ls", "1:1: coproc"},
		{"echo 'a", "1:6: reached EOF without closing quote"},
		{"echo \"a", "1:6: reached EOF without closing quote"},
		{"echo $(ls", "1:6:"}, {"if true; then", "1:"}, {"for i in", "1:"}, {"case x in", "1:"},
		{"{ ls", "1:1:"}, {"(ls", "1:1:"},
		{"fi", "1:1:"}, {"a | | b", "1:"}, {"ls >", "1:"},
		{"cat <<X\na\n", "1:5: unclosed here-document"},
		{"ls; ;", "1:"}, {"echo a\x00b", "1:7: a NUL byte"}, {"&& ls", "1:1:"}, {"ls ||", "1:"},
		{"f() {", "1:5:"}, {"echo `ls", "1:6:"}, {"echo ${x", "1:6:"},
		{"echo $((1+", "1:"},
	} {
		_, err := Parse("s", c.script)
		var e *Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "s:"+c.want) {
			t.Errorf("%q: %v, want s:%s", c.script, err, c.want)
			continue
		}
		if strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("%q: more than a sentence: %q", c.script, err)
		}
	}
}

func TestAllProblems(t *testing.T) {
	_, err := Parse("s", "eval a\nls &\nexec b")
	var e *Error
	if !errors.As(err, &e) || len(e.Problems) != 3 || e.Problems[2].Line != 3 ||
		!strings.HasSuffix(err.Error(), "(and 2 more)") {
		t.Errorf("%v", err)
	}
}

func TestSize(t *testing.T) {
	if _, err := Parse("s", strings.Repeat("#", MaxBytes)+"\n"); err == nil ||
		!strings.Contains(err.Error(), "more than 1048576") {
		t.Errorf("%v", err)
	}
	if _, err := Parse("s", strings.Repeat("ls\n", maxCommands+1)); err == nil ||
		!strings.Contains(err.Error(), "more than 20000") {
		t.Errorf("%v", err)
	}
	if _, err := Parse("s", strings.Repeat("(", 100_000)); err == nil {
		t.Error("deep nesting is taken")
	}
}

func TestNames(t *testing.T) {
	s, err := Parse("x", "f() { grep a; }\nf | sort | command awk x; $dyn; echo; export A=$(seq 1)")
	if err != nil {
		t.Fatal(err)
	}
	if names, dynamic := s.Names(); !slices.Equal(names, []string{"awk", "grep", "seq", "sort"}) ||
		!dynamic {
		t.Errorf("%q %v", names, dynamic)
	}
	// What is said in other words is not what is shown, and what a trap runs is among them.
	traps, err := Parse("x",
		`trap 'rm -f a; f' EXIT; f() { :; }; tr "${a%"$b"}" $((c/d)) "${e:-$(cut x)}"`)
	if err != nil {
		t.Fatal(err)
	}
	if c := traps.Commands(); fmt.Sprint(
		c) != `[{rm rm -f a 1 6} {tr tr "${a%"$b"}" $((c / d)) "${e:-$(cut x)}" 1 37} {cut cut x 1 69}]` {
		t.Errorf("%v", c)
	}
	if c := s.Commands(); len(c) != 5 || fmt.Sprint(c[1]) != "{sort sort 2 5}" {
		t.Errorf("%v", c)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"ls | sort", "f() { local x=$1; return; }", "trap 'echo x' EXIT",
		"export A B=1 \"$C\"", "cat <<X\n$a\nX", "a && b || c; ! d",
		`: ${x:-$(y=1; echo "${z:=$(w=${v%"$x"})}")} $((a/(b-1)+08$c)) ${1+"$@"} \~ a=~:~`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("s", text)
		if err != nil {
			if msg := err.Error(); !strings.HasPrefix(msg, "s:") {
				t.Errorf("%q", msg)
			}
			return
		}
		s.Names()
	})
}

// TestDeepScripts parses scripts of MaxBytes that are all openings. None may overflow the stack,
// and only a few problems are reported.
func TestDeepScripts(t *testing.T) {
	for _, opening := range []string{"(", "$(", "{ ", "if ", "$((", "${a:-", "a|", "coproc a\n"} {
		_, err := Parse("s", strings.Repeat(opening, MaxBytes/len(opening)))
		var problems *Error
		if !errors.As(err, &problems) {
			t.Errorf("%q, repeated, is a script: %v", opening, err)
		} else if n := len(problems.Problems); n > maxProblems {
			t.Errorf("%q, repeated, has %d problems", opening, n)
		}
	}
	deep := strings.Repeat("( ", 500) + "ls" + strings.Repeat(" )", 500)
	if _, err := Parse("s", deep); err != nil {
		t.Errorf("500 levels: %v", err)
	}
	if _, err := Parse("s", "ls\n"+strings.Repeat("(", 100_000)); err == nil ||
		!strings.Contains(err.Error(), "nested too deeply at line 2") {
		t.Errorf("100,000 levels: %v", err)
	}
}
