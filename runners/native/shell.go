package native

import (
	"path"
	"slices"
	"strings"
)

// shells are the shells that Reporting supports.
var shells = []string{"bash", "dash", "sh"}

// Reporting adds report, a shell command, to the arguments of a shell with -c, to be executed at
// the end of the script. ok is false for other programs and arguments. The script keeps its line
// numbers and exit code. A script that sets an EXIT trap or ends with exec reports nothing.
func Reporting(program string, args []string, report string) (out []string, ok bool) {
	at := scriptOf(args)
	if !slices.Contains(shells, path.Base(program)) || at == 0 {
		return args, false
	}
	out = slices.Clone(args)
	out[at] = "trap '" + report + "' EXIT; " + out[at]
	return out, true
}

// scriptOf returns the index of the script in the arguments of a shell with -c, or 0 without -c.
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
