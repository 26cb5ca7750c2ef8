package syntax

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// schemaID is the URI of the schema.
const schemaID = "https://jail-sandbox.github.io/jail/policy.schema.json"

type object = map[string]any

// Schema returns a JSON Schema (2020-12) of policy files, for editors. It accepts more than Parse:
// it cannot express relations between keys, the maximum of sizes, and the kind of the file.
func Schema() []byte {
	root := tableOf(object{})
	forms := forms()
	for _, k := range Keys() {
		// Tool sections have the same keys as the file itself.
		if strings.HasPrefix(k.Path, "tool.") {
			continue
		}
		form := maps.Clone(forms[k.Path])
		if strings.HasPrefix(k.Path, "without.") {
			form = texts()
		}
		form["description"] = k.About
		section, name, _ := cutLast(k.Path)
		below(root, section)["properties"].(object)[name] = form
	}
	props := root["properties"].(object)
	props["tool"] = object{"type": "object", "additionalProperties": tableOf(object{
		"limits": props["limits"], "mount": props["mount"], "fetch": props["fetch"]}),
		"propertyNames": object{"pattern": "^(/|[^/]+/|\\*\\*/)"},
		"description":   "what narrows the runs of single tools, met with the rest"}
	props["without"].(object)["description"] = "what is taken out of what is inherited"
	props["signed"].(object)["minProperties"] = 1
	for section, keys := range map[string][]string{"": {"policy"}, "mount": {"access"},
		"fetch.allow": {"host"}, "fetch.deny": {"host"}, "approve": {"action", "mode"}} {
		below(root, section)["required"] = keys
	}
	root["$schema"], root["$id"] = "https://json-schema.org/draft/2020-12/schema", schemaID
	root["title"] = "Policy of jail"
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		// Maps, lists and texts can always be encoded.
		panic("syntax: bug: " + err.Error())
	}
	return append(text, '\n')
}

// below returns the schema of a section, and creates it if it is missing. For a list of tables that
// is the schema of an item, and for NAME that of every name.
func below(table object, section string) object {
	path := ""
	for name := range strings.SplitSeq(section, ".") {
		path = join(path, name)
		if name == "" {
			return table
		}
		if name == "NAME" {
			delete(table, "properties")
			if table["additionalProperties"] == false {
				table["additionalProperties"] = tableOf(object{})
			}
			table = table["additionalProperties"].(object)
			continue
		}
		props := table["properties"].(object)
		next, ok := props[name].(object)
		if !ok {
			if next = tableOf(object{}); isList(path) {
				next = object{"type": "array", "items": next}
			}
			props[name] = next
		}
		if table = next; isList(path) {
			table = next["items"].(object)
		}
	}
	return table
}

// isList reports whether a section is a list of tables.
func isList(section string) bool {
	switch section {
	case "mount", "approve", "fetch.allow", "fetch.deny":
		return true
	}
	return false
}

func tableOf(props object) object {
	return object{"type": "object", "additionalProperties": false, "properties": props}
}

func texts() object {
	return object{"type": "array", "uniqueItems": true,
		"items": object{"type": "string", "minLength": 1, "maxLength": 4096}}
}

// globs returns the schema of patterns, which excludes characters without a meaning.
func globs(pattern string) object {
	out := texts()
	out["items"].(object)["pattern"] = pattern
	return out
}

const plainGlob = `^[^?\[\]{}\\]+$`

// forms returns the schemas of values, by key.
func forms() map[string]object {
	text := func(pattern string) object { return object{"type": "string", "pattern": pattern} }
	words := func(all ...string) object { return object{"enum": all} }
	sets := func(all []string) object {
		return object{"type": "array", "uniqueItems": true, "items": words(all...)}
	}
	flag := object{"type": "boolean"}
	host := text(`^(\*|(\*\.|\*\*\.)?[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?)$`)
	ports := object{"type": "array", "items": object{"oneOf": []object{
		{"type": "integer", "minimum": 1, "maximum": 65535},
		{"type": "string", "pattern": `^(\*|[1-9][0-9]{0,4}-[1-9][0-9]{0,4})$`}}}}
	methods := globs(`^(\*|[A-Z_-]+)$`)
	paths := globs(`^(/([A-Za-z0-9._~!$&'()*,=:@/-]|%[0-9A-F]{2})*|\*\*)$`)
	name := object{"type": "string", "maxLength": 128,
		"pattern": `^[a-z0-9_][a-z0-9_-]*(/[a-z0-9_][a-z0-9_-]*)*$`}
	out := map[string]object{
		"policy":  {"const": version},
		"name":    name,
		"about":   {"type": "string", "maxLength": 500},
		"include": {"type": "array", "items": name},
		"version": {"type": "integer", "minimum": 1, "maximum": maxVersion},

		"mount.source": text(`^(/|\$\{(home|workspace)\}(/|$))`),
		"mount.target": text(`^/.`),
		"mount.access": words(policy.Rights(0).Choices()...),
		"mount.name":   text(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`),
		"mount.size":   unitSchema(policy.Bytes),

		"tools.modules": globs(`^(/|\*\*|\$\{(home|workspace)\}/)`),
		"tools.native":  globs(`^(/[^?\[\]{}\\]*[^?\[\]{}\\/]|\*\*)$`),
		"tools.images":  globs(`^(\*\*|[^/?\[\]{}\\]+|oci:/[^?\[\]{}\\]*[^?\[\]{}\\/])$`),

		"fetch.allow.host": host, "fetch.allow.ports": ports,
		"fetch.allow.methods": methods, "fetch.allow.paths": paths,
		"fetch.allow.credential": text(`^(\*|[A-Za-z0-9._-]{0,128})$`),
		"fetch.allow.types":      globs(`^(\*\*|[a-z0-9*+._-]+/[a-z0-9*+._-]+)$`),
		"fetch.allow.websocket":  flag,
		"fetch.allow.tls":        words(policy.TLSIntercept.Choices()...),
		"fetch.deny.host":        host, "fetch.deny.ports": ports,
		"fetch.deny.methods": methods, "fetch.deny.paths": paths,

		"env.set": {"type": "object", "additionalProperties": object{"type": "string"},
			"propertyNames": object{"pattern": `^[!-~]+$`}},
		"syscalls.groups": sets(policy.NamesOf(policy.SyscallGroups())),
		"agent.bindings":  sets(policy.NamesOf(policy.AllBindings())),
		"outer.layer":     words(policy.OuterWords()...),
		"outer.allow":     sets(policy.OuterWords()),

		"approve.action": {"anyOf": []object{words(policy.ApproveActions()...),
			text("^" + policy.ApproveToolPrefix + ".")}},
		"approve.host": host, "approve.methods": methods, "approve.tool": text(plainGlob),
		"approve.mode": words(policy.ApproveAsk.Choices()...),

		"signed.by": texts(), "signed.images": flag,
		"profiles.NAME.users": texts(), "profiles.NAME.groups": texts(),
	}
	for _, who := range []string{"read", "run", "administer", "approve"} {
		out["permissions."+who+".users"], out["permissions."+who+".groups"] = texts(), texts()
	}
	for _, b := range policy.FetchBoundFields() {
		out["fetch.allow."+b.Name] = unitSchema(b.Unit)
	}
	for _, f := range policy.Fields() {
		if out[f.Key] != nil {
			continue
		}
		switch v := f.At(&policy.Policy{}).(type) {
		case policy.Word:
			out[f.Key] = words(v.Choices()...)
		case *int64:
			out[f.Key] = unitSchema(f.Unit)
		default:
			out[f.Key] = globs(plainGlob)
		}
	}
	return out
}

func unitSchema(u policy.Unit) object {
	switch u {
	case policy.Bytes:
		return object{"type": "string", "pattern": `^0*[1-9][0-9]*(B|KiB|MiB|GiB|TiB)$`}
	case policy.Duration:
		return object{"type": "string",
			"pattern": `^((([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`}
	case policy.Cores:
		return object{"type": "number", "exclusiveMinimum": 0, "maximum": 4096}
	}
	return object{"type": "integer", "minimum": 1, "maximum": 1 << 31}
}
