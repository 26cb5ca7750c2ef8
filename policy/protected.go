package policy

import "sync"

// A Class is the kind of risk of a change.
type Class string

// Classes of risk. A commit holds back the first five until the user names them.
const (
	// Version control runs it, or is led by it.
	Hooks Class = "hooks"
	// An editor or debugger, or a program that an editor starts, runs it.
	Editor Class = "editor"
	// An AI agent obeys it.
	Agent Class = "agent"
	// A shell, an interpreter or a version manager runs it at its start.
	Shell Class = "shell"
	// The login, the desktop or a scheduler runs it.
	Autostart Class = "autostart"
	// An install, build or test runs it.
	PackageManager Class = "package-manager"
	CI             Class = "ci" // a pipeline runs it
	// It is code that cannot be reviewed.
	Binary Class = "binary"
)

// Risk is why a change to a name may do more than change a file.
type Risk struct {
	Class   Class
	Pattern string // as in Names
	// a sentence for the person who reviews
	Reason string
	// Itself is set if only the name is a risk, not names below it.
	Itself bool
}

// riskNames are risks with their compiled patterns.
type riskNames struct {
	risks []Risk
	names Names
}

// The built-in lists are made when they are first used: every jail starts programs that link this
// package and never use them.
var (
	builtinHeld    = sync.OnceValue(func() riskNames { return compileRisks(heldNames()) })
	builtinFlagged = sync.OnceValue(func() riskNames { return compileRisks(flaggedNames()) })
)

func compileRisks(risks []Risk) riskNames {
	texts := make([]string, len(risks))
	for i, r := range risks {
		texts[i] = r.Pattern
	}
	names := compileNames(texts, true)
	for i, r := range risks {
		names.patterns[i].itself = r.Itself
	}
	return riskNames{risks, names}
}

// Protected reports whether a commit of path, relative to the workspace, needs an explicit
// approval, and returns the risk: the host would run the file, or give it secrets. Names compare
// without regard to case and invisible characters. Objects, refs, logs and the index of a
// repository are never protected; see GitPart.
func Protected(path string) (Risk, bool) { return builtinHeld().find(path) }

// Flagged reports whether a review should point out path, and returns the risk: a later build, test
// or pipeline would run the file.
func Flagged(path string) (Risk, bool) { return builtinFlagged().find(path) }

// ProtectedRisks returns the built-in list of protected names.
func ProtectedRisks() []Risk { return heldNames() }

func (n riskNames) find(path string) (Risk, bool) {
	path, data := gitName(path)
	if data {
		return Risk{}, false
	}
	pattern, ok := n.names.find(path)
	if !ok {
		return Risk{}, false
	}
	for _, r := range n.risks {
		if r.Pattern == pattern {
			return r, true
		}
	}
	return Risk{Class: Hooks, Pattern: pattern, Reason: "is no clean name"}, true
}
