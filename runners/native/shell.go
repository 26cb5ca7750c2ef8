package native

import (
	"path"
	"slices"
	"strings"
)

// shells are the shells whose scripts may be told to report what they leave.
var shells = []string{"bash", "dash", "sh"}

// Reporting returns the arguments of a shell that is called with -c, with report, a command, to be
// executed by the shell when its script has ended. ok is false for every other call of a program.
// The script keeps its line numbers and its exit code. A script that sets a trap for EXIT itself, or
// ends with exec, reports nothing.
func Reporting(program string, args []string, report string) (out []string, ok bool) {
	at := scriptOf(args)
	if !slices.Contains(shells, path.Base(program)) || at == 0 {
		return args, false
	}
	out = slices.Clone(args)
	out[at] = "trap '" + report + "' EXIT; " + out[at]
	return out, true
}

// scriptOf returns which of the arguments of a shell is the script of its -c, or 0.
func scriptOf(args []string) int {
	has := false
	for i := 1; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--" || a == "-":
			i++
		case a == "--rcfile" || a == "--init-file":
			i++
			continue
		case strings.HasPrefix(a, "--"):
			continue
		case len(a) > 1 && (a[0] == '-' || a[0] == '+'):
			has = has || a[0] == '-' && strings.Contains(a, "c")
			if strings.ContainsAny(a, "oO") {
				// Its value is the next one.
				i++
			}
			continue
		}
		if has && i < len(args) {
			return i
		}
		return 0
	}
	return 0
}
