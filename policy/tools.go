package policy

import "fmt"

// Tools is what may run.
type Tools struct {
	// Commands of bundles, as bundle/command.
	Allow Globs `json:"allow"`
	// .wasm files that a caller may name, by absolute path
	Modules Globs `json:"modules"`
	// Programs of the host, by absolute path.
	Native Globs `json:"native"`
	// Images whose root a run may have, by name, or as oci: and the absolute path of a directory.
	// All programs of such an image may run.
	Images Globs `json:"images,omitempty"`
}

// TopTools grants every tool.
func TopTools() Tools {
	return Tools{MustGlobs("**"), MustGlobs("**"), MustGlobs("**"), MustGlobs("**")}
}

// Meet grants what both grant.
func (t Tools) Meet(u Tools) Tools {
	return Tools{t.Allow.Meet(u.Allow), t.Modules.Meet(u.Modules), t.Native.Meet(u.Native),
		t.Images.Meet(u.Images)}
}

// LessEq reports whether u grants every tool that t grants.
func (t Tools) LessEq(u Tools) bool {
	return t.Allow.LessEq(u.Allow) && t.Modules.LessEq(u.Modules) && t.Native.LessEq(u.Native) &&
		t.Images.LessEq(u.Images)
}

// Normal brings each list into normal form.
func (t Tools) Normal() Tools {
	return Tools{t.Allow.Normal(), t.Modules.Normal(), t.Native.Normal(), t.Images.Normal()}
}

func (t Tools) String() string {
	text := fmt.Sprintf("allow %s modules %s native %s", t.Allow, t.Modules, t.Native)
	if len(t.Images) > 0 {
		text += " images " + t.Images.String()
	}
	return text
}

// Empty reports whether nothing at all may run.
func (t Tools) Empty() bool {
	return len(t.Allow) == 0 && len(t.Modules) == 0 && len(t.Native) == 0 && len(t.Images) == 0
}
