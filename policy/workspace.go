package policy

import "fmt"

// WorkspaceDir is the path of the workspace in the jail, unless the target is TargetSame. Policies
// always name workspace files below it.
const WorkspaceDir = "/workspace"

// WorkspaceAccess is what access a tool gets to the caller's directory.
type WorkspaceAccess = word[accesses]

type accesses struct{}

func (accesses) words() []string { return []string{"none", "read", "shadow"} }

// Accesses to a workspace, each more than the one before.
const (
	WorkspaceNone WorkspaceAccess = iota // nothing
	WorkspaceRead                        // reads it
	// reads it, and writes to a copy-on-write shadow of it
	WorkspaceShadow
)

// CommitRule is when the changes of a shadow may be committed.
type CommitRule = word[commitRules]

type commitRules struct{}

func (commitRules) words() []string { return []string{"never", "ask", "auto"} }

// Commit rules, each more than the one before.
const (
	CommitNever CommitRule = iota // nobody commits
	CommitAsk                     // someone says yes
	// a run that succeeded commits by itself
	CommitAuto
)

// WorkspaceTarget is the path at which a tool finds the workspace.
type WorkspaceTarget = word[targets]

type targets struct{}

func (targets) words() []string { return []string{WorkspaceDir, "same"} }

// Targets of a workspace, each more than the one before: the second shows the tool a path of the
// host.
const (
	TargetWorkspace WorkspaceTarget = iota // WorkspaceDir
	TargetSame                             // the path of the directory on the host
)

// Workspace is what a tool may do with the caller's directory.
//
// Hide and Protect take away, so they meet by union. Hidden names are not there for the
// tool, whatever else is granted; commit of a protected name needs an explicit yes, as
// with the built-in list of Protected. Where there is no access there is nothing to hide,
// and without a shadow nothing to protect or to commit, so the normal form drops them.
type Workspace struct {
	Access  WorkspaceAccess `json:"access"`
	Hide    []string        `json:"hide,omitempty"`    // patterns, as in Names
	Protect []string        `json:"protect,omitempty"` // patterns, as in Names
	Commit  CommitRule      `json:"commit"`
	// It is left out of the JSON at its default, so that digests of older policies stay the same.
	Target WorkspaceTarget `json:"target,omitzero"`
}

// topWorkspace returns a shadow at the directory's own path, with nothing hidden, that commits by
// itself.
func topWorkspace() Workspace {
	return Workspace{Access: WorkspaceShadow, Commit: CommitAuto, Target: TargetSame}
}

// Meet takes the lesser access, target and commit rule, and what either hides or protects.
func (w Workspace) Meet(v Workspace) Workspace {
	return Workspace{
		Access:  min(w.Access, v.Access),
		Target:  min(w.Target, v.Target),
		Hide:    unionStrings(w.Hide, v.Hide),
		Protect: unionStrings(w.Protect, v.Protect),
		Commit:  min(w.Commit, v.Commit),
	}.Normal()
}

// LessEq reports whether v grants all that w grants, and takes away no more.
func (w Workspace) LessEq(v Workspace) bool {
	w, v = w.Normal(), v.Normal()
	switch w.Access {
	case WorkspaceNone:
		return true
	case WorkspaceRead:
		return v.Access >= WorkspaceRead && w.Target <= v.Target && subsetStrings(v.Hide, w.Hide)
	}
	return v.Access == WorkspaceShadow && w.Commit <= v.Commit && w.Target <= v.Target &&
		subsetStrings(v.Hide, w.Hide) && subsetStrings(v.Protect, w.Protect)
}

// Normal sorts the patterns and drops fields that have no effect with the access.
func (w Workspace) Normal() Workspace {
	switch {
	case w.Access == WorkspaceNone || w.Access > WorkspaceShadow:
		return Workspace{}
	case w.Access == WorkspaceRead:
		return Workspace{Access: WorkspaceRead, Target: min(w.Target, TargetSame),
			Hide: unionStrings(w.Hide, nil)}
	}
	return Workspace{Access: w.Access, Target: min(w.Target, TargetSame),
		Hide: unionStrings(w.Hide, nil), Protect: unionStrings(w.Protect, nil),
		Commit: min(w.Commit, CommitAuto)}
}

func (w Workspace) String() string {
	w = w.Normal()
	text := fmt.Sprintf("access %s hide %q protect %q commit %s", w.Access, w.Hide, w.Protect,
		w.Commit)
	if w.Target != TargetWorkspace {
		text += " target " + w.Target.String()
	}
	return text
}

// rights returns the rights on workspace files that are not hidden.
func (w Workspace) rights() Rights {
	switch w.Access {
	case WorkspaceRead:
		return Read
	case WorkspaceShadow:
		return Read | Write
	}
	return 0
}

// HeldBack reports whether a commit of path needs an explicit approval, and returns the risk.
func (w Workspace) HeldBack(path string) (Risk, bool) {
	if r, ok := Protected(path); ok {
		return r, true
	}
	if pattern, ok := compileNames(w.Protect, true).find(path); ok {
		return Risk{Pattern: pattern, Reason: "the policy protects it"}, true
	}
	return Risk{}, false
}
