package learn

import (
	"slices"

	"github.com/jail-sandbox/jail/policy"
)

// Kind is the kind of grant of an item.
type Kind string

// Kinds of items.
const (
	KindMount  Kind = "mount"
	KindTool   Kind = "tools.allow"
	KindModule Kind = "tools.modules"
	KindNative Kind = "tools.native"
	KindEnv    Kind = "env.set"
	KindGroup  Kind = "syscalls.groups"
	KindFetch  Kind = "fetch.allow"
	KindGiven  Kind = "env.allow"
)

// An Item is one grant of a draft, with its evidence.
type Item struct {
	Kind Kind `json:"kind"`
	// Name is the target of a mount, NAME=VALUE of a variable, and so on.
	Name  string       `json:"name"`
	Mount policy.Mount `json:"mount,omitzero"`
	Rule  Rule         `json:"rule,omitzero"`
	// Why is a sentence with the evidence.
	Why string `json:"why"`
	// Blind is set if nothing observed needs the item, so that only a trial shows whether it is
	// needed.
	Blind bool `json:"blind,omitempty"`
	// Fixed is set for items of the run's request, which are not left out in trials.
	Fixed bool `json:"fixed,omitempty"`
}

// Rule is the grant for one host of the network.
type Rule struct {
	Host    string   `json:"host"`
	Ports   []uint16 `json:"ports"`
	Methods []string `json:"methods"`
	Paths   []string `json:"paths"`
	Opaque  bool     `json:"opaque,omitempty"`
}

// Draft is an unfinished policy.
type Draft struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// Run is the command line of the run.
	Run    string                 `json:"run"`
	Tool   string                 `json:"tool"` // as it was found
	Native bool                   `json:"native"`
	Access policy.WorkspaceAccess `json:"access"`
	// Writes is set if the runs left changes in the workspace.
	Writes bool        `json:"writes"`
	Files  string      `json:"files"` // evidence for the workspace
	Items  []Item      `json:"items"`
	Limits []LimitLine `json:"limits"`
	// Person lists what was refused, or would be useful, and needs a person's decision.
	Person  []string `json:"needs_a_person"`
	Never   []string `json:"never_granted"`
	Unseen  []string `json:"not_observed"`
	Lessons string   `json:"lessons"` // how it came about
}

// with returns the draft with these items instead of its own.
func (d Draft) with(items []Item) Draft {
	d.Items = slices.Clone(items)
	return d
}

// Of returns the items of one kind.
func (d Draft) Of(k Kind) []Item {
	var out []Item
	for _, i := range d.Items {
		if i.Kind == k {
			out = append(out, i)
		}
	}
	return out
}

// Has reports whether the draft has an item of that kind and name.
func (d Draft) Has(k Kind, name string) bool {
	return slices.ContainsFunc(d.Items, func(i Item) bool { return i.Kind == k && i.Name == name })
}

// secrets returns names that usually hold secrets. Learning runs do not see them, and a learned
// policy hides them.
func secrets() []string {
	return []string{"**/.env", "**/.env.*", "**/*.pem", "**/*.key", "**/id_rsa", "**/id_ed25519",
		"**/.ssh", "**/.gnupg", "**/.aws", "**/.netrc",
		"**/.npmrc", "**/.pypirc", "**/.git-credentials"}
}
