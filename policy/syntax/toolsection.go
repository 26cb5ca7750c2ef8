package syntax

import (
	"fmt"

	"github.com/jail-sandbox/jail/policy"
)

// toolSections reads [tool."python/python3"]: what narrows the runs of single tools. Like a
// request, and unlike a profile, a section that leaves a key out narrows nothing by it.
func (r *reader) toolSections(key string, v *node) {
	if r.draft.section.prefix != "" || v.table == nil {
		r.wrongType(key, v, "a table by tools, as in [tool.\"python/python3\".limits]")
		return
	}
	if r.tooMany(key, v, len(v.keys)) {
		return
	}
	for _, name := range v.keys {
		if r.errs.full() {
			return
		}
		item, itemKey := v.get(name), key+"."+quote(name)
		r.draft.at[itemKey] = v.keyAt[name]
		tool, err := policy.ParseGlob(name)
		if err == nil {
			err = checkToolPattern(tool)
		}
		if err != nil {
			r.errs.add(v.keyAt[name], "", "%s: %v", itemKey, err)
			continue
		}
		d := &draft{at: r.draft.at, section: section{tool, itemKey + "."}}
		sub := &reader{values{d, r.errs}, Request, false, r.places}
		sub.table(itemKey, item, map[string]func(string, *node){"limits": sub.limits,
			"mount": sub.mounts, "fetch": sub.fetch})
		r.draft.tools = append(r.draft.tools, d)
	}
}

// checkToolPattern returns what is wrong with the pattern of a section of a tool: it stands
// for commands of bundles, as bundle/command, or for programs or modules, by absolute path.
func checkToolPattern(g policy.Glob) error {
	if policy.CheckToolGlob(g) != nil && (policy.CheckNativeGlob(g) != nil || g.String() == "**") {
		return fmt.Errorf(
			"pattern %q is neither a bundle/command, such as python/python3, nor an absolute path",
			g)
	}
	return nil
}
