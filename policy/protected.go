package policy

import "sync"

// A Class is what kind of risk a change is.
type Class string

// Classes of risk by name. The first five are held back by a commit until someone names them.
const (
	// Version control runs it, or is led by it.
	Hooks Class = "hooks"
	// An editor, a debugger or what an editor starts does.
	Editor Class = "editor"
	// An AI agent obeys it.
	Agent Class = "agent"
	// A shell, an interpreter or a version manager does, at start.
	Shell Class = "shell"
	// The login, the desktop or a scheduler does.
	Autostart Class = "autostart"
	// An install, build or test runs it.
	PackageManager Class = "package-manager"
	CI             Class = "ci" // a pipeline runs it
	// is code that nobody can read
	Binary Class = "binary"
)

// Risk says why a change to a name is more than a change to a file.
type Risk struct {
	Class   Class
	Pattern string // as in Names
	// a sentence for the person who reviews
	Reason string
	// Only the name itself is a risk, not what is below it.
	Itself bool
}

// riskNames are risks and their patterns, ready to match.
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

// Protected reports whether a commit of path, relative to the workspace, always needs an
// explicit yes, and why: the host would run what it says, or give it secrets. Names
// compare without regard to case and to characters that cannot be seen. Objects, refs,
// logs and the index of a repository are never protected; see GitPart.
func Protected(path string) (Risk, bool) { return builtinHeld().find(path) }

// Flagged reports whether a review should point path out: a later build, test or
// pipeline would run what it says.
func Flagged(path string) (Risk, bool) { return builtinFlagged().find(path) }

// ProtectedRisks returns the built-in list.
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
