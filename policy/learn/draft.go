package learn

import (
	"slices"

	"github.com/jail-sandbox/jail/policy"
)

// Kind is what an item of a draft grants.
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

// An Item is one thing that a draft grants, with its evidence.
type Item struct {
	Kind Kind `json:"kind"`
	// Of a mount its target, of a variable NAME=VALUE.
	Name  string       `json:"name"`
	Mount policy.Mount `json:"mount,omitzero"`
	Rule  Rule         `json:"rule,omitzero"`
	// Why is a sentence of what was observed.
	Why string `json:"why"`
	// Blind: no observation asks for it, and only a trial can show whether it is needed.
	Blind bool `json:"blind,omitempty"`
	// Fixed items belong to the request of the run, and are not tried without.
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
	// As a person types it.
	Run    string                 `json:"run"`
	Tool   string                 `json:"tool"` // as it was found
	Native bool                   `json:"native"`
	Access policy.WorkspaceAccess `json:"access"`
	// The run left changes in the workspace.
	Writes bool        `json:"writes"`
	Files  string      `json:"files"` // evidence for the workspace
	Items  []Item      `json:"items"`
	Limits []LimitLine `json:"limits"`
	// Person lists what was tried, or would be of use, and is not granted.
	Person  []string `json:"needs_a_person"`
	Never   []string `json:"never_granted"`
	Unseen  []string `json:"not_observed"`
	Lessons string   `json:"lessons"` // how it came about
}

// with is the draft with these items and no others.
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

// secrets returns names that usually hold secrets. Observed runs do not see them, and a learnt
// policy hides them.
func secrets() []string {
	return []string{"**/.env", "**/.env.*", "**/*.pem", "**/*.key", "**/id_rsa", "**/id_ed25519",
		"**/.ssh", "**/.gnupg", "**/.aws", "**/.netrc",
		"**/.npmrc", "**/.pypirc", "**/.git-credentials"}
}
