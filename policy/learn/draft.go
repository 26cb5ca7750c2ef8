package learn

import (
	"slices"

	"github.com/jail-sandbox/jail/policy"
)

// A Kind is what an item of a draft grants.
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
	Kind  Kind         `json:"kind"`
	Name  string       `json:"name"` // of a mount its target, of a variable NAME=VALUE
	Mount policy.Mount `json:"mount,omitzero"`
	Rule  Rule         `json:"rule,omitzero"`
	Why   string       `json:"why"` // a sentence of what was observed
	// Blind says that nothing observed asks for it: whether it is needed only a trial can tell.
	Blind bool `json:"blind,omitempty"`
	// Fixed items are what the run is about, and are not tried without.
	Fixed bool `json:"fixed,omitempty"`
}

// A Rule is what is granted of one host of the network.
type Rule struct {
	Host    string   `json:"host"`
	Ports   []uint16 `json:"ports"`
	Methods []string `json:"methods"`
	Paths   []string `json:"paths"`
	Opaque  bool     `json:"opaque,omitempty"`
}

// A Draft is a policy in the making.
type Draft struct {
	Name    string                 `json:"name"`
	About   string                 `json:"about"`
	Run     string                 `json:"run"`  // as a person types it
	Tool    string                 `json:"tool"` // as it was found
	Native  bool                   `json:"native"`
	Access  policy.WorkspaceAccess `json:"access"`
	Writes  bool                   `json:"writes"` // the run left changes in the workspace
	Files   string                 `json:"files"`  // evidence for the workspace
	Items   []Item                 `json:"items"`
	Limits  []LimitLine            `json:"limits"`
	Person  []string               `json:"needs_a_person"` // what was tried, or would be of use, and is not granted
	Never   []string               `json:"never_granted"`
	Unseen  []string               `json:"not_observed"`
	Lessons string                 `json:"lessons"` // how it came about
}

// With is the draft with these items and no others.
func (d Draft) With(items []Item) Draft {
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

// Secrets are names that usually hold secrets. A run that is learnt from does not see them, and what is learnt hides them.
func Secrets() []string {
	return []string{"**/.env", "**/.env.*", "**/*.pem", "**/*.key", "**/id_rsa", "**/id_ed25519", "**/.ssh", "**/.gnupg", "**/.aws", "**/.netrc",
		"**/.npmrc", "**/.pypirc", "**/.git-credentials"}
}
