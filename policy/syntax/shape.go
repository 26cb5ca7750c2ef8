package syntax

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"unicode"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/jail-sandbox/jail/policy"
)

// version is the only version of the language.
const version = 1

// reader converts the tree of one file into a draft.
type reader struct {
	values
	kind     Kind
	included bool // by another file
	places   Places
}

func (r *reader) file(root *node) {
	r.keys("", root, map[string]func(string, *node){
		"policy":      r.version,
		"name":        r.name,
		"about":       r.about,
		"include":     r.include,
		"workspace":   r.section,
		"mount":       r.mounts,
		"limits":      r.section,
		"tools":       r.section,
		"fetch":       r.fetch,
		"env":         r.env,
		"syscalls":    r.section,
		"audit":       r.section,
		"session":     r.section,
		"approve":     r.approve,
		"agent":       r.section,
		"outer":       outerOf(r),
		"tool":        r.toolSections,
		"without":     r.without,
		"version":     r.fileVersion,
		"signed":      r.signed,
		"profiles":    r.audiences,
		"permissions": r.permissions,
	})
	if root.get("policy") == nil {
		r.errs.add(root.pos, fmt.Sprintf("write `policy = %d` as the first line", version),
			"the version of the language is missing")
	}
}

func (r *reader) version(key string, v *node) {
	if n, ok := v.integer(); v.kind != unstable.Integer || !ok || n != version {
		r.errs.add(v.pos, fmt.Sprintf("write `policy = %d`", version),
			"%s is the version of the language, and there is only %d", key, version)
	}
}

func (r *reader) name(key string, v *node) {
	if text, ok := r.str(key, v); ok && r.report(key, v, CheckName(text)) {
		r.draft.name = text
	}
}

// CheckName returns an error unless name is a policy's: segments of lower-case letters, digits,
// hyphens and underscores, separated by slashes.
func CheckName(name string) error {
	if len(name) > 128 {
		return errors.New("the name is longer than 128 bytes")
	}
	for part := range strings.SplitSeq(name, "/") {
		bad := func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
		}
		if part == "" || part[0] == '-' || strings.ContainsFunc(part, bad) {
			return fmt.Errorf(
				"%q is no name of lower-case letters, digits, - and _, such as python or "+
					"tools/python", name)
		}
	}
	return nil
}

func (r *reader) about(key string, v *node) {
	text, ok := r.str(key, v)
	switch {
	case !ok:
	case len(text) > 500 || strings.ContainsFunc(text,
		func(c rune) bool { return !unicode.IsPrint(c) }):
		r.errs.add(v.pos, "", "%s is longer than 500 bytes, or has characters that cannot be shown",
			key)
	default:
		r.draft.about = text
	}
}

func (r *reader) include(key string, v *node) {
	r.each(key, v, "names", func(itemKey string, item *node) {
		if text, ok := r.str(itemKey, item); ok && r.report(itemKey, item, CheckName(text)) {
			r.draft.include = append(r.draft.include, included{text, item.pos})
		}
	})
}

// section reads a section that has only fields.
func (r *reader) section(key string, v *node) { r.sectionAnd(key, v, nil) }

// sectionAnd reads a section that has other keys, too.
func (r *reader) sectionAnd(key string, v *node, others map[string]func(string, *node)) {
	known := map[string]func(string, *node){}
	for _, f := range policy.Fields(strings.TrimPrefix(key, r.draft.section.prefix)) {
		known[f.Name] = r.field(f)
	}
	maps.Copy(known, others)
	r.table(key, v, known)
}

// field returns the function that reads a field.
func (r *reader) field(f policy.Field) func(string, *node) {
	switch into := f.At(&r.draft.policy).(type) {
	case *[]string:
		return func(k string, v *node) { *into = r.texts(k, v, f.Check) }
	case *policy.Globs:
		return func(k string, v *node) {
			if f.Key == "tools.modules" {
				v = r.filledItems(k, v, r.places.expandGlob)
			}
			*into = r.globs(k, v, f.CheckGlob)
		}
	case *int64:
		return func(k string, v *node) { r.limit(k, v, f.Unit, into) }
	default:
		return r.oneOf(into.(choice))
	}
}

func (r *reader) mounts(key string, v *node) {
	r.each(key, v, "tables", func(itemKey string, item *node) {
		var m policy.Mount
		before := len(*r.errs)
		text := func(into *string, check func(string) error) func(string, *node) {
			return func(k string, v *node) {
				s, ok := r.str(k, v)
				if ok && s == "" {
					r.errs.add(v.pos, "", "%s is empty", k)
				}
				if ok && r.report(k, v, check(s)) {
					*into = s
				}
			}
		}
		r.table(itemKey, item, map[string]func(string, *node){
			"source": func(k string, v *node) {
				if filled, ok := r.filled(k, v, r.places.expand); ok {
					text(&m.Source, policy.CheckMountSource)(k, filled)
				}
			},
			"target": text(&m.Target, policy.CheckMountTarget),
			"access": r.oneOf(&m.Access),
			"name":   text(&m.Name, policy.CheckCacheName),
			"size":   func(k string, v *node) { r.limit(k, v, policy.Bytes, &m.Size) },
		})
		if m.Access == policy.Cache && item.get("size") == nil {
			m.Size = policy.Unlimited
		}
		if len(*r.errs) > before {
			return
		}
		if item.get("access") == nil {
			r.errs.add(item.pos, "say what it may be used for, as in access = \"read\"",
				"%s: access is missing", itemKey)
		} else if m.Target == "" && r.kind == Profile {
			r.errs.add(item.pos, "say where it appears in the jail, as in target = \"/data\"",
				"%s: target is missing", itemKey)
		} else if m.Access == policy.Cache && m.Name == "" && r.kind == Profile {
			r.errs.add(item.pos, "say which cache it is, as in name = \"go-build\"",
				"%s: name of the cache is missing", itemKey)
		} else if m.Access == policy.Cache && m.Size == policy.Unlimited && r.kind == Profile {
			r.errs.add(item.pos, "say how large it may become, as in size = \"2GiB\"",
				"%s: size of the cache is missing", itemKey)
		} else if r.report(itemKey, item, policy.CheckMount(m)) {
			r.draft.policy.Mounts = append(r.draft.policy.Mounts, m)
			r.draft.mountAt = append(r.draft.mountAt, item.pos)
			r.says("mount", m.String(), item.pos)
		}
	})
}

// filled returns v with its variable expanded, or v itself if it has none.
func (r *reader) filled(key string, v *node, expand func(string) (string, error)) (*node, bool) {
	if v.kind != unstable.String {
		// The reader of the key reports a wrong type.
		return v, true
	}
	text, err := expand(v.text)
	if !r.report(key, v, err) {
		return nil, false
	}
	out := *v
	out.text = text
	return &out, true
}

// filledItems calls filled on each item of a list.
func (r *reader) filledItems(key string, v *node, expand func(string) (string, error)) *node {
	out := *v
	out.items = nil
	for i, item := range v.items {
		if one, ok := r.filled(indexed(key, i), item, expand); ok {
			out.items = append(out.items, one)
		}
	}
	return &out
}

// fetch reads the section fetch.
func (r *reader) fetch(key string, v *node) {
	rules := fetchReader{r.values, r.kind}
	r.sectionAnd(key, v, map[string]func(string, *node){
		"allow":  func(k string, v *node) { r.each(k, v, "tables", rules.rule) },
		"deny":   func(k string, v *node) { r.each(k, v, "tables", rules.deny) },
		"limits": r.section,
	})
}

func (r *reader) env(key string, v *node) {
	r.sectionAnd(key, v, map[string]func(string, *node){"set": r.envSet})
}

func (r *reader) envSet(key string, v *node) {
	if v.kind != unstable.InlineTable {
		r.wrongType(key, v, "a table, such as { LANG = \"C.UTF-8\" }")
		return
	}
	if r.tooMany(key, v, len(v.keys)) {
		return
	}
	values := map[string]string{}
	for _, name := range v.keys {
		item, itemKey := v.get(name), join(key, name)
		r.draft.at[itemKey] = item.pos
		text, ok := r.str(itemKey, item)
		if ok && r.report(itemKey, item,
			errors.Join(policy.CheckEnvName(name), policy.CheckEnvValue(text))) {
			values[name] = text
		}
	}
	r.draft.policy.Env.Set = policy.Vars{Values: values}
}

func (r *reader) approve(key string, v *node) {
	r.each(key, v, "tables", func(itemKey string, item *node) {
		rule, before := policy.ApproveRule{}, len(*r.errs)
		target := (&fetchReader{r.values, r.kind}).target(&rule.Host, nil, &rule.Methods, nil)
		r.table(itemKey, item, map[string]func(string, *node){
			"action": func(k string, v *node) {
				text, ok := r.str(k, v)
				if name, isTool := strings.CutPrefix(text, policy.ApproveToolPrefix); ok && isTool {
					tool, err := policy.ParseApproveTool(name)
					if err == nil && item.get("tool") != nil {
						err = errors.New("the tool is named twice")
					}
					if r.report(k, v, err) {
						rule.Action, rule.Tool = policy.ActionTool, tool
					}
				} else if ok && r.report(k, v, policy.CheckApproveAction(text)) {
					rule.Action = text
				}
			},
			"host":    target["host"],
			"methods": target["methods"],
			"tool": func(k string, v *node) {
				if text, ok := r.str(k, v); ok {
					tool, err := policy.ParseApproveTool(text)
					if r.report(k, v, err) {
						rule.Tool = tool
					}
				}
			},
			"mode": r.oneOf(&rule.Mode),
		})
		switch {
		case len(*r.errs) > before:
		case item.get("action") == nil:
			r.errs.add(item.pos, "name one, as in action = \"workspace.commit\"",
				"%s: action is missing", itemKey)
		case item.get("mode") == nil:
			r.errs.add(item.pos, "say whether it waits, as in mode = \"ask\"",
				"%s: mode is missing", itemKey)
		case rule.Action != policy.ActionFetch &&
			(item.get("host") != nil || item.get("methods") != nil):
			r.errs.add(item.pos, "write action = \"fetch\", or leave them out",
				"%s: host and methods are of fetches", itemKey)
		case rule.Action != policy.ActionTool && item.get("tool") != nil:
			r.errs.add(item.pos, "write action = \"tool\", or leave it out",
				"%s: tool is of the action tool", itemKey)
		case item.get("methods") != nil && len(rule.Methods) == 0:
			r.errs.add(item.pos, "leave the empty list out for all",
				"%s: an empty list holds nothing back", itemKey)
		default:
			r.draft.policy.Approve = append(r.draft.policy.Approve, rule)
			r.says("approve", rule.String(), item.pos)
		}
	})
}

func outerOf(r *reader) func(string, *node) {
	return func(key string, v *node) {
		o := &r.draft.policy.Outer
		r.table(key, v, map[string]func(string, *node){
			"layer": func(k string, v *node) {
				if name, ok := r.str(k, v); ok && r.report(k, v, policy.CheckOuter(name)) {
					*o = policy.OuterOf(name)
				}
			},
			"allow": func(k string, v *node) {
				*o = policy.OuterOf(r.texts(k, v, policy.CheckOuter)...)
			},
		})
		if v.get("layer") != nil && v.get("allow") != nil {
			r.errs.add(v.pos, "write one of them: a layer is a list of one",
				"%s has both layer and allow", key)
		}
		if v.get("layer") == nil && v.get("allow") == nil {
			delete(r.draft.at, r.draft.section.prefix+key)
		}
	}
}

// toolSections reads sections such as [tool."python/python3"], which narrow the runs of tools. As
// in a request, a missing key narrows nothing.
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
		item, itemKey := v.get(name), key+"."+Quote(name)
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
		sub.table(itemKey, item, map[string]func(string, *node){"limits": sub.section,
			"mount": sub.mounts, "fetch": sub.fetch})
		r.draft.tools = append(r.draft.tools, d)
	}
}

// checkToolPattern returns an error unless a pattern can match commands of bundles, as
// bundle/command, or programs and modules by absolute path.
func checkToolPattern(g policy.Glob) error {
	if policy.CheckToolGlob(g) != nil && (policy.CheckNativeGlob(g) != nil || g.String() == "**") {
		return fmt.Errorf(
			"pattern %q is neither a bundle/command, such as python/python3, nor an absolute path",
			g)
	}
	return nil
}
